// Element helpers. Untrusted text only ever becomes a text node or an attribute value.

const ANSWER_MILLISECONDS = 1500;

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function button(label, onclick, attributes = {}) {
  return element('button', { type: 'button', onclick, ...attributes }, label);
}

// A labeled <select>; choices are pairs of value and text.
export function select(label, choices, value, onchange) {
  const box = element('select', { 'aria-label': label, title: label, onchange: () => onchange(box.value) });
  for (const [choice, text] of choices) box.append(element('option', { value: choice }, text));
  box.value = value;
  return box;
}

export function setPressed(toggle, pressed) {
  toggle.setAttribute('aria-pressed', String(pressed));
}

// Skips equal text, which screen readers would announce again.
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function swatch(color) {
  const made = element('span', { class: 'swatch', 'aria-hidden': 'true' });
  made.style.background = color;
  return made;
}

// Calls `action` at most once per animation frame.
export function oncePerFrame(action) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      action();
    });
  };
}

// Briefly replaces the label of a button by the result of the click.
export function flashLabel(clicked, result) {
  const label = clicked.textContent;
  clicked.textContent = result;
  setTimeout(() => { clicked.textContent = label; }, ANSWER_MILLISECONDS);
}

export function saveFile(blob, name) {
  const href = URL.createObjectURL(blob);
  element('a', { href, download: name }).click();
  URL.revokeObjectURL(href);
}

// Copies a text, and says so on the clicked button.
export async function copyText(clicked, text) {
  flashLabel(clicked, await copied(text) ? 'Copied' : 'Copy failed');
}

// The clipboard API needs a secure context or localhost; elsewhere the deprecated command still works.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element('textarea', { class: 'hidden-text', readonly: true });
    field.value = text;
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand('copy');
    field.remove();
    return isCopied;
  }
}
