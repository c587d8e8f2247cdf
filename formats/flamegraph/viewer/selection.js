// The selected function in one line, with its actions.
import { abbreviate, printable } from './format.js';
import { button, copyText, element, flashLabel } from './dom.js';
import { describeValue } from './details.js';
import { withoutSymbol } from './profile.js';

// What a finger can do, and what needs a mouse or a keyboard.
const HINTS = {
  flame: ['Click zooms', ', Escape goes back, ctrl + wheel zooms, drag pans'], sandwich: ['Click selects a function', ', ctrl + wheel zooms, drag pans'],
  table: ['Click selects a function', ''], tree: ['Click selects a function', ', arrow keys open and close'],
};

export class SelectionBar {
  // `events`: onZoom() returns whether there was a node to zoom to, onSandwich(), onClear(), onKeys().
  constructor(events) {
    this.events = events;
    this.element = element('div', { class: 'selection' });
  }

  showHint(view) {
    const [short, more] = HINTS[view] ?? ['', ''];
    this.element.replaceChildren(element('span', { class: 'hint' }, short, element('span', { class: 'mouse-only' }, more)), button('Keys', () => this.events.onKeys(), { class: 'quiet', title: 'Also by ?' }));
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
        name === '' ? null : button('Copy name', (event) => copyText(event.currentTarget, name), { class: 'quiet' }),
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
