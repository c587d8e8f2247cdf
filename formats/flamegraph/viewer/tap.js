// What passes a component: the last batch, with its resources and some of its samples.
import { abbreviate, formatClock, formatValue, printable } from './format.js';
import { button, element, select, setText } from './dom.js';
import { labelList } from './processes.js';
import { request } from './api.js';

const TAP_TIMEOUT = '5s';
const TAP_PAUSE_MILLISECONDS = 1500;
const TAP_RESOURCES = 20;
const TAP_SAMPLES = 3;
const TAP_COLUMNS = [['Type', 'text type'], ['Value', 'number'], ['Stack, innermost first', 'text'], ['Labels', 'text wide-only']];

// "3 resources, 40 of 1,200 samples"
export function describeBatch({ samples, resources, omitted }) {
  const number = (value) => value.toLocaleString('en-US');
  const shown = resources.flatMap(({ profiles }) => profiles).reduce((sum, profile) => sum + profile.samples.length, 0);
  const part = (some, all, word) => `${some < all ? `${number(some)} of ` : ''}${number(all)} ${word}${all === 1 ? '' : 's'}`;
  return `${part(resources.length, resources.length + omitted.resources, 'resource')}, ${part(shown, samples, 'sample')}`;
}

// What a resource is called in the table.
export function resourceName(attributes) {
  const pid = attributes['process.pid'];
  const name = ['process.executable.name', 'process.comm', 'service.name', 'container.name', 'host.name'].map((key) => attributes[key]).find((value) => value);
  return `${name ?? '(no name)'}${pid === undefined ? '' : ` (${pid})`}`;
}

export class TapPanel {
  // `onSide(side)` is called with the side that the reader chooses.
  constructor(onSide) {
    this.onSide = onSide;
    this.component = null;
    this.isPaused = false;
    this.side = 'output';
    this.title = element('h3', {});
    this.pauseButton = button('Pause', () => this.togglePause(), { class: 'live is-live' });
    this.sideBox = element('span');
    this.note = element('output', { class: 'dim' });
    this.body = element('div');
    this.element = element('section', { class: 'tap', hidden: true, 'aria-label': 'What passes the component' }, this.title, element('div', { class: 'view-tools' }, this.pauseButton, this.sideBox, this.note), this.body);
  }

  // `component` has a kind, an id and, for processors, a pipeline; null stops looking. Without a side, it is what comes out.
  look(component, side) {
    const key = JSON.stringify([component, side]);
    // The same look goes on.
    if (this.key === key) return;
    this.key = key;
    this.abort?.abort();
    this.component = component;
    this.element.hidden = component === null;
    if (component === null) return;
    setText(this.title, `What passes the ${component.kind} ${abbreviate(printable(component.id), 60)}`);
    this.side = side || (component.kind === 'exporter' ? 'input' : 'output');
    this.sideBox.replaceChildren(...(component.kind === 'processor' ? [select('Side', [['input', 'before it'], ['output', 'after it']], this.side, (side) => this.setSide(side))] : []));
    this.forget();
    this.setPaused(false);
  }

  setSide(side) {
    this.side = side;
    this.key = JSON.stringify([this.component, side]);
    this.onSide(side);
    this.forget();
    this.setPaused(false);
  }

  forget() {
    this.body.replaceChildren();
    setText(this.note, 'Waiting for a batch…');
  }

  togglePause() {
    this.setPaused(!this.isPaused);
  }

  setPaused(isPaused) {
    this.isPaused = isPaused;
    this.pauseButton.textContent = isPaused ? 'Look again' : 'Pause';
    this.pauseButton.classList.toggle('is-live', !isPaused);
    this.abort?.abort();
    this.follow();
  }

  // Shows one batch after the other while the panel is shown.
  async follow() {
    clearTimeout(this.timer);
    if (this.isPaused || this.component === null || !this.element.isConnected) return;
    const { kind, id, pipeline } = this.component;
    this.abort?.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    try {
      if (!document.hidden) {
        this.show(await request('tap', {
          component: `${kind}/${id}`, pipeline: kind === 'processor' ? pipeline : null, side: this.side, timeout: TAP_TIMEOUT, resources: TAP_RESOURCES, samples: TAP_SAMPLES,
        }, signal));
      }
    } catch (error) {
      if (error.name === 'AbortError') return;
      setText(this.note, abbreviate(printable(error.message), 200));
    }
    if (!signal.aborted) this.timer = setTimeout(() => this.follow(), TAP_PAUSE_MILLISECONDS);
  }

  show({ batches }) {
    const batch = batches.at(-1);
    if (!batch) {
      setText(this.note, this.body.childElementCount > 0 ? 'No newer batch has passed for 5 s.' : 'No batch has passed for 5 s; still waiting.');
      return;
    }
    setText(this.note, `${formatClock(batch.time)}: ${describeBatch(batch)}`);
    const open = new Set([...this.body.querySelectorAll('details[open]')].map((details) => details.dataset.name));
    this.body.replaceChildren(element(
      'table', { class: 'passing' }, element('caption', { class: 'hidden-text' }, 'Samples of the last batch'),
      element('thead', {}, element('tr', {}, ...TAP_COLUMNS.map(([label, kind]) => element('th', { scope: 'col', class: kind }, label)))),
      ...batch.resources.map((resource) => tapResource(resource, open)),
    ));
  }
}

function tapResource({ attributes, profiles }, open) {
  const name = abbreviate(printable(resourceName(attributes)), 120);
  const entries = Object.entries(attributes);
  return element(
    'tbody', {},
    element('tr', { class: 'group' }, element('th', { scope: 'rowgroup', colspan: TAP_COLUMNS.length - 1 }, element(
      'details', { 'data-name': name, open: open.has(name) }, element('summary', {}, element('span', { class: 'name' }, name), element('span', { class: 'dim' }, ` ${entries.length} labels`)), labelList(entries),
    )), element('td', { class: 'wide-only' })),
    ...profiles.flatMap((profile) => profile.samples.map((sample) => tapSample(profile, sample))),
  );
}

function tapSample({ type, unit }, { values, timestamps, attributes, stack, omitted_frames: omitted = 0 }) {
  const value = values.length > 0 ? values.reduce((sum, one) => sum + one, 0) : timestamps;
  const labels = abbreviate(printable(Object.entries(attributes).map(([name, text]) => `${name}=${text}`).join(', ')), 200);
  const functions = [...stack].reverse().map(printable).concat(omitted > 0 ? [`${omitted} more`] : []).join(' ← ');
  return element(
    'tr', {},
    element('td', { class: 'text' }, abbreviate(printable(type), 40)), element('td', { class: 'number' }, formatValue(value, unit)),
    element('td', { class: 'text name', title: abbreviate(functions, 2000) }, abbreviate(functions, 400)), element('td', { class: 'text wide-only', title: labels }, labels),
  );
}
