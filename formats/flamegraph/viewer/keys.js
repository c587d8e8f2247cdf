// The keys and mouse actions of the page, in a dialog.
import { button, element } from './dom.js';

const KEYS = [
  ['Everywhere', [['/', 'search functions'], ['Enter', 'next match of the search, with shift the one before'], ['Escape', 'clear the search, go back'], ['?', 'this list']]],
  ['Flame graph', [
    ['← → ↑ ↓', 'move'], ['Enter', 'zoom'], ['Escape', 'back'], ['Home', 'reset the zoom'], ['+ −, ctrl + wheel', 'zoom at the middle, at the pointer'],
    ['drag, shift + wheel', 'pan'],
  ]],
  ['Table', [['↑ ↓', 'move'], ['Enter', 'select'], ['double click', 'sandwich']]],
  ['Call tree', [['↑ ↓', 'move'], ['→ ←', 'open and close']]],
];

export class KeyList {
  // `more`: groups as above.
  constructor(more = []) {
    this.element = element(
      'dialog', { class: 'keys', 'aria-labelledby': 'keys', onclick: (event) => { if (event.target === this.element) this.element.close(); } },
      element('div', {},
        element('h2', { id: 'keys' }, 'Keys and mouse'),
        ...[...KEYS, ...more].map(([title, keys]) => element(
          'section', {}, element('h3', {}, title),
          element('dl', {}, ...keys.flatMap(([key, action]) => [element('dt', {}, element('kbd', {}, key)), element('dd', {}, action)])),
        )),
        button('Close', () => this.element.close())),
    );
  }

  open() {
    if (!this.element.open) this.element.showModal();
  }
}
