// The pipelines and their data flow, the metrics and dropped samples of a component, the configuration and the log.
import { abbreviate, formatDate, formatDuration, formatNumber, formatRate, printable } from './format.js';
import { describeDrops, dropsOf, metricOf, rateOf } from './metrics.js';
import { button, element, setPressed, setText } from './dom.js';
import { request } from './api.js';
import { TapPanel } from './tap.js';

const PIPELINES_POLL_MILLISECONDS = 2000;
const MOST_LOG_LINES = 1000;

// Per component kind: the label of its metrics, the counter behind its rate, and the counters that indicate trouble.
const KINDS = {
  receiver: {
    main: 'otelcol_receiver_accepted_profile_samples',
    trouble: [['otelcol_receiver_refused_profile_samples', 'refused']],
  },
  processor: { main: 'otelcol_processor_outgoing_items', incoming: 'otelcol_processor_incoming_items', trouble: [['otelcol_processor_refused_profile_samples', 'refused']] },
  exporter: {
    main: 'otelcol_exporter_sent_profile_samples',
    trouble: [['otelcol_exporter_send_failed_profile_samples', 'failed to send']],
    queue: ['otelcol_exporter_queue_size', 'otelcol_exporter_queue_capacity'],
  },
  connector: { main: 'otelcol_connector_produced_items', incoming: 'otelcol_connector_consumed_items', trouble: [] },
};

function indented(lines) {
  return lines.map((line) => `  ${line}`);
}

function scalarAsYaml(value) {
  if (typeof value !== 'string') return String(value);
  const isPlain = /^[A-Za-z0-9_./:][A-Za-z0-9_./: -]*$/.test(value) && !/: |:$| $|^(true|false|null|[\d.]+)$/.test(value);
  return isPlain ? value : JSON.stringify(value);
}

// The lines of a value as YAML.
export function asYaml(value) {
  if (Array.isArray(value)) {
    if (value.every((item) => item === null || typeof item !== 'object')) return [`[${value.map(scalarAsYaml).join(', ')}]`];
    return value.flatMap((item) => {
      const [first, ...others] = asYaml(item);
      return [`- ${first}`, ...indented(others)];
    });
  }
  if (value === null || typeof value !== 'object') return [scalarAsYaml(value)];
  const entries = Object.entries(value);
  if (entries.length === 0) return ['{}'];
  return entries.flatMap(([key, item]) => {
    const lines = asYaml(item);
    const isBlock = item !== null && typeof item === 'object' && (lines.length > 1 || !/^[[{]/.test(lines[0]));
    return isBlock ? [`${scalarAsYaml(key)}:`, ...indented(lines)] : [`${scalarAsYaml(key)}: ${lines[0]}`];
  });
}

export class PipelineView {
  // `events`: onError(error), onState(changes, isStep).
  constructor(events) {
    this.events = events;
    this.before = null;
    this.nextLine = 0;
    this.selected = null;
    this.cards = [];
    this.graph = element('div', { class: 'pipelines' });
    this.tap = new TapPanel((side) => events.onState({ side }, true));
    this.drops = new DropTable();
    this.metricsTitle = element('h3', {});
    this.metricsBody = element('tbody');
    this.showsZeros = false;
    this.zeroButton = button('', () => this.toggleZeros(), { class: 'quiet' });
    this.configuration = element('pre', { class: 'text-block' });
    this.log = element('pre', { class: 'text-block log', tabindex: '0', 'aria-label': 'Log' });
    this.configurationBox = element('details', {}, element('summary', {}, 'Configuration, with all defaults'), this.configuration);
    this.configurationBox.addEventListener('toggle', () => this.loadConfiguration());
    this.element = element(
      'div', { class: 'table-scroll service', tabindex: '-1' }, this.graph, this.tap.element, this.drops.element, this.metricsTitle,
      element('table', { class: 'metrics' }, element('caption', { class: 'hidden-text' }, 'Metrics of the selected component'), element('thead', {}, element(
        'tr', {}, element('th', { scope: 'col', class: 'text' }, 'Metric'), element('th', { scope: 'col', class: 'number' }, 'Value'), element('th', { scope: 'col', class: 'number' }, 'Per second'),
      )), this.metricsBody), this.zeroButton,
      element('h3', {}, 'Log'), this.log, this.configurationBox,
    );
  }

  // Applies a state from the URL.
  setState({ component, pipeline, side }) {
    const [, kind, id] = /^(\w+)\/(.+)$/.exec(component) ?? [];
    this.select(Object.hasOwn(KINDS, kind ?? '') ? { kind, id, pipeline } : null, side);
  }

  // Starts when the view is shown.
  start() {
    this.follow();
    this.tap.follow();
  }

  // Polls while this view is shown.
  async follow() {
    clearTimeout(this.timer);
    if (!this.element.parentNode) return;
    if (!document.hidden) await this.load();
    this.timer = setTimeout(() => this.follow(), PIPELINES_POLL_MILLISECONDS);
  }

  async load() {
    try {
      const [state, log] = await Promise.all([request('pipelines', {}), request('log', { since: this.nextLine })]);
      this.show(state, performance.now() / 1000);
      this.addLog(log);
    } catch (error) {
      this.events.onError(error);
    }
  }

  async loadConfiguration() {
    if (!this.configurationBox.open) return;
    try {
      setText(this.configuration, printableLines(asYaml(await request('configuration', {}))));
    } catch (error) {
      this.events.onError(error);
    }
  }

  show(state, now) {
    this.state = state;
    this.seconds = this.before ? now - this.before.at : 0;
    const shape = JSON.stringify(state.pipelines);
    if (this.shape !== shape) {
      this.shape = shape;
      this.build(state.pipelines);
    }
    for (const card of this.cards) this.update(card);
    this.showMetrics();
    this.before = { at: now, metrics: state.metrics };
  }

  build(pipelines) {
    this.cards = [];
    const stage = (label, kind, ids, pipeline) => element(
      'div', { class: 'stage', role: 'group', 'aria-label': label },
      ...(ids.length === 0 ? [element('span', { class: 'dim' }, 'none')] : ids.map((id) => this.buildCard(kind, id, pipeline))),
    );
    this.graph.replaceChildren(...pipelines.map(({ id, receivers, processors, exporters }) => element(
      'section', { class: 'pipeline', tabindex: '-1', 'aria-label': `Pipeline ${printable(id)}` }, element('h3', {}, printable(id)),
      element('div', { class: 'stages' }, stage('Receivers', 'receiver', receivers, id),
        ...processors.map((processor) => stage('Processor', 'processor', [processor], id)), stage('Exporters', 'exporter', exporters, id)),
    )));
    this.showSelected();
  }

  buildCard(role, id, pipeline) {
    // A connector is an exporter of some pipelines and a receiver of others.
    const kind = `connector ${id}` in this.state.components ? 'connector' : role;
    const card = {
      kind, id, pipeline,
      rate: element('span', { class: 'rate' }), status: element('span', { class: 'status' }), facts: element('span', { class: 'dim facts' }),
      drops: element('span', { class: 'card-drops' }),
      fill: element('span', { class: 'queue-fill' }), error: element('span', { class: 'card-error' }),
    };
    card.queue = element('span', { class: 'queue', 'aria-hidden': 'true', hidden: true }, card.fill);
    const name = abbreviate(printable(id), 60);
    card.button = button('', () => this.choose(this.isSelected(card) ? null : card), { class: 'card', 'aria-pressed': 'false', title: `What passes the ${kind} ${name}, and its metrics` });
    card.button.append(element('span', { class: 'card-kind' }, kind), element('span', { class: 'name' }, name), card.rate, card.facts, card.drops, card.queue, card.status, card.error);
    this.cards.push(card);
    return kind === 'connector' ? element('div', { class: 'connector' }, card.button, ...this.linksOf(role, id)) : card.button;
  }

  // A connector has a card in each of its pipelines, with links to those at its other side.
  linksOf(role, id) {
    const [word, side] = role === 'exporter' ? ['to', 'receivers'] : ['from', 'exporters'];
    return this.state.pipelines.flatMap((pipeline, position) => {
      if (!pipeline[side].includes(id)) return [];
      const name = abbreviate(printable(pipeline.id), 60);
      return [button(`${word} ${name}`, () => this.graph.children[position].focus(), { class: 'quiet', title: `Go to the pipeline ${name}` })];
    });
  }

  valueOf(metrics, card, name) {
    return metricOf(metrics, name, card.kind, card.id);
  }

  dropsOf({ kind, id }) {
    return dropsOf(this.state.metrics, this.before?.metrics, this.seconds, kind, id);
  }

  rate(card, name) {
    const before = this.before ? this.valueOf(this.before.metrics, card, name) : null;
    return rateOf(this.valueOf(this.state.metrics, card, name), before, this.seconds);
  }

  update(card) {
    const kind = KINDS[card.kind];
    const label = card.kind === 'processor' ? `processor ${card.id} in pipeline ${card.pipeline}` : `${card.kind} ${card.id}`;
    const { status, error } = this.state.components[label] ?? { status: 'unknown' };
    const rate = this.rate(card, kind.main);
    setText(card.rate, rate === null ? '' : `${formatRate(rate)} samples/s`);
    const facts = kind.trouble.map(([name, word]) => [this.valueOf(this.state.metrics, card, name), word])
      .filter(([value]) => value > 0).map(([value, word]) => `${formatNumber(value)} ${word}`);
    if (kind.incoming) {
      const [incoming, outgoing] = [kind.incoming, kind.main].map((name) => this.valueOf(this.state.metrics, card, name));
      facts.push(`${formatNumber(incoming ?? 0)} in, ${formatNumber(outgoing ?? 0)} out`);
    }
    if (kind.queue) this.updateQueue(card, kind.queue, facts);
    setText(card.facts, facts.join(', '));
    setText(card.drops, describeDrops(this.dropsOf(card)));
    setText(card.status, status === 'ok' ? '' : status);
    setText(card.error, error ? abbreviate(printable(error), 300) : '');
    card.button.classList.toggle('is-failing', status.endsWith('error'));
    card.button.dataset.rate = rate === null ? '' : String(rate);
  }

  updateQueue(card, [sizeName, capacityName], facts) {
    const [size, capacity] = [sizeName, capacityName].map((name) => this.valueOf(this.state.metrics, card, name));
    card.queue.hidden = !(capacity > 0);
    if (card.queue.hidden) return;
    card.fill.style.width = `${Math.min(100, (100 * size) / capacity)}%`;
    card.queue.classList.toggle('is-full', size >= capacity);
    facts.push(`${formatNumber(size)} of ${formatNumber(capacity)} queued`);
  }

  // A processor has one instance per pipeline.
  isSelected({ kind, id, pipeline }) {
    const { selected } = this;
    return selected !== null && selected.kind === kind && selected.id === id && (kind !== 'processor' || selected.pipeline === pipeline);
  }

  choose(card) {
    this.select(card);
    const { kind, id, pipeline } = card ?? {};
    this.events.onState({ component: card ? `${kind}/${id}` : '', pipeline: kind === 'processor' ? pipeline : '', side: '' }, true);
  }

  select(card, side = '') {
    this.selected = card ? { kind: card.kind, id: card.id, pipeline: card.kind === 'processor' ? card.pipeline : '' } : null;
    this.tap.look(this.selected, this.selected?.kind === 'processor' ? side : '');
    this.showSelected();
  }

  showSelected() {
    for (const other of this.cards) setPressed(other.button, this.isSelected(other));
    if (this.state) this.showMetrics();
  }

  // The metrics of the selected component, or of the process.
  showMetrics() {
    const { selected } = this;
    setText(this.metricsTitle, selected ? `Metrics of the ${selected.kind} ${printable(selected.id)}` : 'Metrics of profcol itself');
    if (selected) this.drops.show(`${selected.kind} ${printable(selected.id)}`, this.dropsOf(selected));
    else this.drops.hide();
    const isShown = (series) => (selected ? series.labels[selected.kind] === selected.id : !Object.keys(KINDS).some((kind) => kind in series.labels));
    const key = ({ name, labels }) => `${name} ${JSON.stringify(labels)}`;
    const before = new Map((this.before?.metrics ?? []).map((series) => [key(series), series.value]));
    const all = this.state.metrics.filter(isShown);
    const notZero = all.filter(({ value }) => value !== 0);
    this.zeroButton.hidden = all.length === notZero.length;
    setText(this.zeroButton, `${this.showsZeros ? 'Hide' : 'Show'} ${all.length - notZero.length} metrics that are 0`);
    this.metricsBody.replaceChildren(...(this.showsZeros ? all : notZero).map((series) => {
      const labels = Object.entries(series.labels).filter(([name]) => name !== selected?.kind).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
      const rate = rateOf(series.value, before.get(key(series)), this.seconds);
      return element('tr', {},
        element('th', { scope: 'row', class: 'text name' }, ...breakable(abbreviate(printable(series.name + (labels.length > 0 ? `{${labels.join(', ')}}` : '')), 200))),
        element('td', { class: 'number' }, this.metricValue(series)), element('td', { class: 'number dim' }, rate ? formatRate(rate) : ''));
    }));
  }

  toggleZeros() {
    this.showsZeros = !this.showsZeros;
    this.showMetrics();
  }

  metricValue({ name, value }) {
    if (name.endsWith('_timestamp_seconds') && value > 0) return formatDate(value * 1000);
    if (name === 'otelcol_process_uptime') return formatDuration(value);
    return formatNumber(value);
  }

  // Keeps the log scrolled to the end if the reader is there.
  addLog({ lines, next }) {
    const { log } = this;
    // A new process starts its counters at zero.
    if (next < this.nextLine) {
      log.replaceChildren();
      this.nextLine = 0;
      return;
    }
    this.nextLine = next;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 8;
    for (const line of lines) {
      const level = /^\S+ +(WARN|ERROR) /.exec(line)?.[1];
      log.append(element('span', { class: level ? `log-${level.toLowerCase()}` : undefined }, `${printableLines([line])}\n`));
    }
    while (log.childElementCount > MOST_LOG_LINES) log.firstChild.remove();
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }
}

// The dropped samples of the selected component by reason.
class DropTable {
  constructor() {
    this.title = element('h3', {});
    this.body = element('tbody');
    this.element = element('div', { class: 'drops' }, this.title, element(
      'table', { class: 'metrics' }, element('caption', { class: 'hidden-text' }, 'Dropped samples by reason'), element('thead', {}, element(
        'tr', {}, element('th', { scope: 'col', class: 'text' }, 'Reason'), element('th', { scope: 'col', class: 'number' }, 'Samples'), element('th', { scope: 'col', class: 'number' }, 'Per second'),
      )), this.body,
    ));
    this.hide();
  }

  hide() {
    this.element.hidden = true;
  }

  show(name, { reasons }) {
    this.element.hidden = reasons.length === 0;
    setText(this.title, `Samples dropped by the ${name}`);
    this.body.replaceChildren(...reasons.map(({ reason, samples, rate }) => element('tr', {},
      element('th', { scope: 'row', class: 'text' }, printable(reason)),
      element('td', { class: 'number' }, formatNumber(samples)), element('td', { class: 'number dim' }, rate === null ? '' : formatRate(rate)))));
  }
}

// Lines break between the words of a metric.
function breakable(name) {
  return name.split(/(?<=[_{])/).flatMap((word) => [word, element('wbr')]);
}

// Keeps line breaks: a message may span several lines.
function printableLines(lines) {
  return lines.flatMap((line) => line.split('\n')).map(printable).join('\n');
}
