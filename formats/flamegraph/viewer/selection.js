// The selected function in one line, with its actions.
import { abbreviate, printable } from './format.js';
import { button, element } from './dom.js';
import { describeValue } from './details.js';
import { withoutSymbol } from './profile.js';

const HINTS = {
  flame: 'Click zooms, Escape goes back, ctrl + wheel zooms, drag pans', sandwich: 'Click selects a function, ctrl + wheel zooms, drag pans',
  table: 'Click selects a function', tree: 'Click selects a function, arrow keys open and close',
};
const ANSWER_MILLISECONDS = 1500;

export class SelectionBar {
  // `events`: onZoom() returns whether there was a node to zoom to, onSandwich(), onClear(), onKeys().
  constructor(events) {
    this.events = events;
    this.element = element('div', { class: 'selection' });
  }

  showHint(view) {
    this.element.replaceChildren(element('span', { class: 'hint' }, HINTS[view] ?? ''), button('Keys', () => this.events.onKeys(), { class: 'quiet', title: 'Also by ?' }));
  }

  // `selected` is the number of the function, or -1 if this profile does not have it.
  show(profile, selected, { name, binary, view }) {
    const { onZoom, onSandwich, onClear } = this.events;
    const facts = selected < 0 ? ['not sampled in this range'] : functionFacts(profile, selected);
    const shownName = selected >= 0 ? profile.frames.nameOf(selected) : printable(name) || withoutSymbol(binary);
    const zoom = (event) => {
      if (!onZoom()) flashLabel(event.currentTarget, 'Too small for the graph');
    };
    this.element.replaceChildren(
      element('code', { class: 'selection-name', title: abbreviate(shownName, 1000) }, abbreviate(shownName, 300)),
      ...facts.filter(Boolean).map((fact) => element('span', { class: 'fact' }, fact)),
      element('span', { class: 'actions' },
        name === '' ? null : button('Copy name', (event) => copyName(event.currentTarget, name), { class: 'quiet' }),
        button('Zoom', zoom, { class: 'quiet', disabled: selected < 0 }),
        view === 'sandwich' ? null : button('Sandwich', onSandwich, { class: 'quiet' }),
        button('Clear', onClear, { class: 'quiet' })),
    );
  }
}

function functionFacts(profile, selected) {
  const { frames, functions } = profile;
  const kind = frames.kindOf(selected);
  const place = [frames.placeOf(selected), frames.binaryOf(selected), kind === 'native' ? '' : kind];
  const facts = [place.filter(Boolean).map((fact) => abbreviate(fact, 120)).join(' · ')];
  const row = functions.frame.findIndex((frame) => frames.function[frame] === selected);
  if (row >= 0) {
    facts.push(`self ${describeValue(profile, functions.self[row], functions.baseSelf[row])}`);
    facts.push(`total ${describeValue(profile, functions.total[row], functions.baseTotal[row])}`);
  }
  return facts;
}

async function copyName(clicked, name) {
  flashLabel(clicked, await copyText(name) ? 'Copied' : 'Copy failed');
}

// Briefly replaces the label of a button by the result of the click.
function flashLabel(clicked, result) {
  const label = clicked.textContent;
  clicked.textContent = result;
  setTimeout(() => { clicked.textContent = label; }, ANSWER_MILLISECONDS);
}

// The clipboard API needs a secure context or localhost; elsewhere the deprecated command still works.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element('textarea', { class: 'hidden-text', readonly: true });
    field.value = text;
    document.body.append(field);
    field.select();
    const copied = document.execCommand('copy');
    field.remove();
    return copied;
  }
}
