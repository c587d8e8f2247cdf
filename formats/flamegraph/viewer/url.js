// The state of the page, stored in the URL fragment.

export const DEFAULT_STATE = {
  type: '', last: 300, from: null, until: null, query: '', by: 'comm',
  base: '', baseFrom: null, baseUntil: null, baseQuery: '',
  view: 'flame', search: '', zoom: [], name: '', binary: '',
  orientation: 'icicle', color: 'binary', palette: 'blue-orange', difference: 'share', sort: 'self', ascending: false,
  processes: '', processSort: 'total', processAscending: false, component: '', pipeline: '', side: '',
};

const ALLOWED = {
  base: ['', 'previous', 'same', 'range'],
  orientation: ['icicle', 'flame'],
  color: ['binary', 'kind', 'language'],
  palette: ['blue-orange', 'green-red'],
  difference: ['share', 'absolute'],
  side: ['', 'input', 'output'],
};

export function encodeState(state, defaults = DEFAULT_STATE) {
  const parameters = new URLSearchParams();
  for (const [name, usual] of Object.entries(defaults)) {
    const value = state[name];
    if (Array.isArray(usual)) for (const step of value ?? []) parameters.append(name, step);
    else if (value !== undefined && value !== null && value !== usual) parameters.set(name, String(value));
  }
  return parameters.toString();
}

// Invalid values keep their default: the URL is untrusted input.
export function decodeState(fragment, defaults = DEFAULT_STATE) {
  const parameters = new URLSearchParams(fragment.replace(/^#/, ''));
  const state = { ...defaults, zoom: [] };
  for (const [name, usual] of Object.entries(defaults)) {
    if (!parameters.has(name)) continue;
    const text = parameters.get(name);
    if (Array.isArray(usual)) state[name] = parameters.getAll(name);
    else if (typeof usual === 'boolean') state[name] = text === 'true';
    else if (typeof usual === 'number' || usual === null) state[name] = wholeNumber(text, usual);
    else if (!ALLOWED[name] || ALLOWED[name].includes(text)) state[name] = text;
  }
  if (state.from === null || state.until === null || state.from >= state.until) state.from = state.until = null;
  return state;
}

// The defaults of a profile that was compared in one of the ways.
export function defaultsOf({ difference }) {
  return ALLOWED.difference.includes(difference) ? { ...DEFAULT_STATE, difference } : DEFAULT_STATE;
}

function wholeNumber(text, usual) {
  const number = Number(text);
  return text !== '' && Number.isSafeInteger(number) && number > 0 ? number : usual;
}
