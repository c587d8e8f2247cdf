// The token of servers that require one. It is never in the address, and no other tab, site or later session has it.
import { element } from './dom.js';

const TOKEN_KEY = 'authorization';

// Browsers that block storage ask again after a reload.
let current = null;
try {
  current = sessionStorage.getItem(TOKEN_KEY);
} catch {
  // As without one.
}

export function hasToken() {
  return current !== null;
}

export function authorization() {
  return current === null ? {} : { authorization: current };
}

function keep(value) {
  current = value;
  try {
    if (value === null) sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, value);
  } catch {
    // `current` has it until the next reload.
  }
}

// One dialog for all requests that wait for it.
let asking = null;

// Resolves with another token than `refused`.
export function takeToken(scheme, refused) {
  if (current !== null && current !== refused) return Promise.resolve();
  keep(null);
  asking ??= askForToken(scheme, refused !== undefined).finally(() => { asking = null; });
  return asking;
}

async function askForToken(scheme, isRefused) {
  const field = element('input', { type: 'password', autocomplete: 'current-password', 'aria-label': 'Token', required: true, pattern: '[ -~]+' });
  const dialog = element(
    'dialog', { class: 'login', 'aria-labelledby': 'login', oncancel: (event) => event.preventDefault() },
    element('form', { method: 'dialog' },
      element('h2', { id: 'login' }, 'This page requires a token'),
      element('p', { class: 'error', role: 'alert', hidden: !isRefused }, 'profcol refused the token.'),
      field, element('button', { type: 'submit' }, 'Log in')),
  );
  document.body.append(dialog);
  dialog.showModal();
  await new Promise((resolve) => { dialog.addEventListener('close', resolve, { once: true }); });
  dialog.remove();
  keep(`${scheme} ${field.value.trim()}`);
}
