// The sampled processes with their labels, languages and stack end reasons, and what the processors did to their labels.
import { abbreviate, formatShare, formatValue, printable } from './format.js';
import { button, element, setText } from './dom.js';
import { request } from './api.js';

const MOST_PROCESSES = 500;
const LABELS_LOOK = '6s';
const LABELS_PAUSE_MILLISECONDS = 10000;
const HEADS = [
  { id: 'pid', label: 'PID', class: 'number pid', ascending: true },
  { id: 'name', label: 'Process', class: 'text', ascending: true },
  { id: 'total', label: 'Total', class: 'number total' },
  { id: 'samples', label: 'Samples', class: 'number count wide-only' },
  { id: 'unit', label: 'Unit', class: 'text wide-only', ascending: true },
  { id: 'languages', label: 'Languages', class: 'text wide-only', ascending: true },
  { id: 'ends', label: 'Stacks end', class: 'text wide-only' },
  { id: 'labels', label: 'Labels', class: 'text labels-head' },
];
const SORTS = HEADS.map(({ id }) => id).filter((id) => id !== 'ends' && id !== 'labels');
// As in style.css.
const NARROW = '(max-width: 640px)';
const HOST_LABELS = ['host_name', 'host_id'];
const UNIT_LABELS = ['systemd_unit', 'k8s_pod_name', 'container_name'];
const UNIT_ATTRIBUTES = ['systemd.unit', 'k8s.pod.name', 'container.name'];
const NAME_ATTRIBUTES = ['process.executable.name', 'process.comm'];

// "whole 98 %, cut 2 %", most frequent first.
export function describeEnds(ends) {
  const counts = Object.entries(ends ?? {}).filter(([, count]) => count > 0).sort((left, right) => right[1] - left[1]);
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  return counts.map(([reason, count]) => `${abbreviate(printable(reason), 40)} ${formatShare(count, all)}`).join(', ');
}

function firstOf(values, names) {
  const name = names.find((known) => values?.[known]);
  return name === undefined ? '' : String(values[name]);
}

// Processes of several hosts may have the same PID.
function hostOf({ labels }) {
  return firstOf(labels, HOST_LABELS);
}

// The labels that select a process: its PID, and its host if there are several.
export function selectionOf(process, processes) {
  const hosts = new Set(processes.map(hostOf));
  const names = hosts.size > 1 ? HOST_LABELS.filter((name) => process.labels?.[name]) : [];
  return [['pid', String(process.pid)], ...names.map((name) => [name, process.labels[name]])];
}

export function unitOf({ labels, attributes }) {
  return firstOf(labels, UNIT_LABELS) || firstOf(attributes, UNIT_ATTRIBUTES);
}

function cellOf(process, id) {
  if (id === 'unit') return unitOf(process).toLowerCase();
  if (id === 'languages') return (process.languages ?? []).join(', ').toLowerCase();
  if (id === 'name') return (process.name ?? '').toLowerCase();
  return process[id] ?? 0;
}

// Equal ones by total, highest first.
export function sortProcesses(processes, { id, ascending }) {
  const direction = ascending ? 1 : -1;
  const compare = (left, right) => (left < right ? -1 : left > right ? 1 : 0);
  return [...processes].sort((left, right) => direction * compare(cellOf(left, id), cellOf(right, id)) || right.total - left.total || left.pid - right.pid);
}

// Whether each word occurs in the PID, name, unit, languages or labels.
export function matchesProcess(process, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const labels = Object.entries(process.labels ?? process.attributes ?? {}).map(([name, value]) => `${name}=${value}`);
  const all = [String(process.pid), process.name ?? '', unitOf(process), ...(process.languages ?? []), process.fate ?? '', ...labels].join('\n').toLowerCase();
  return words.every((word) => all.includes(word));
}

// Processes that are not in the history: a processor dropped them.
export function droppedProcesses(processes, { dropped, processes: seen }) {
  const known = new Set(processes.map(({ pid }) => pid));
  const found = new Map();
  for (const { pid, processor, pipeline, reason, attributes } of dropped) {
    if (!known.has(pid)) found.set(pid, { pid, attributes, fate: `Dropped by ${processor} in ${pipeline}: ${reason}` });
  }
  for (const { pid, pipeline, received, not_passed_on_by: processor } of seen) {
    if (processor && !known.has(pid) && !found.has(pid)) found.set(pid, { pid, attributes: received, fate: `Not passed on by ${processor} in ${pipeline}` });
  }
  return [...found.values()].map((process) => ({ ...process, name: firstOf(process.attributes, NAME_ATTRIBUTES), total: 0, samples: 0 }));
}

export class ProcessList {
  // `events`: onFilter(labels) with those of the process to show alone, onState(changes). `isLive()` is whether new data is wanted.
  constructor(events, isLive) {
    this.events = events;
    this.isLive = isLive;
    this.sort = { id: 'total', ascending: false };
    this.processes = [];
    // The keys of the processes whose labels are shown.
    this.open = new Set();
    this.changes = { processes: [], dropped: [] };
    this.head = element('tr');
    this.body = element('tbody');
    this.note = element('p', { class: 'note' });
    this.find = element('input', {
      type: 'search', class: 'search', placeholder: 'Find name, PID, unit, language, label', 'aria-label': 'Find processes', spellcheck: 'false', autocomplete: 'off', maxlength: '200', oninput: () => this.setFind(),
    });
    this.count = element('output', { class: 'dim', 'aria-live': 'polite' });
    this.element = element(
      'div', { class: 'table-scroll', tabindex: '-1' },
      element('div', { class: 'view-tools' }, this.find, this.count),
      element('table', { class: 'processes' }, element('caption', { class: 'hidden-text' }, 'Processes'), element('thead', {}, this.head), this.body),
      this.note,
    );
  }

  // Applies a state from the URL.
  setState({ processes, processSort, processAscending }) {
    this.find.value = processes;
    this.sort = SORTS.includes(processSort) ? { id: processSort, ascending: processAscending } : { id: 'total', ascending: false };
    if (this.total !== undefined) this.render();
  }

  setFind() {
    this.events.onState({ processes: this.find.value });
    this.render();
  }

  show(processes, total, unit, isFiltered) {
    Object.assign(this, { processes, total, unit, isFiltered });
    this.render();
  }

  // Looks at the labels in the pipelines from time to time while this view is shown.
  async follow() {
    clearTimeout(this.timer);
    if (this.isLooking || !this.element.isConnected) return;
    if (!document.hidden && this.isLive()) {
      this.isLooking = true;
      try {
        this.take(await request('process_labels', { timeout: LABELS_LOOK }));
      } catch {
        // Another viewer may be in the way; the labels in the history are still there.
      }
      this.isLooking = false;
    }
    this.timer = setTimeout(() => this.follow(), LABELS_PAUSE_MILLISECONDS);
  }

  // Keeps what earlier looks saw of other processes.
  take({ processes, dropped }) {
    const key = ({ pid, pipeline }) => `${pid} ${pipeline}`;
    const seen = new Map(this.changes.processes.map((process) => [key(process), process]));
    for (const process of processes) {
      seen.delete(key(process));
      seen.set(key(process), process);
    }
    this.changes = { processes: [...seen.values()].slice(-2 * MOST_PROCESSES), dropped };
    this.render();
  }

  render() {
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset : null;
    const all = this.isFiltered ? this.processes : [...this.processes, ...droppedProcesses(this.processes, this.changes)];
    const found = sortProcesses(all.filter((process) => matchesProcess(process, this.find.value)), this.sort);
    this.renderHead();
    this.body.replaceChildren(...found.slice(0, MOST_PROCESSES).flatMap((process) => this.renderRows(process)));
    if (focused) [...this.body.querySelectorAll('button')].find(({ dataset }) => dataset.key === focused.key && dataset.role === focused.role)?.focus({ preventScroll: true });
    setText(this.count, all.length === found.length ? `${all.length.toLocaleString('en-US')} processes` : `${found.length.toLocaleString('en-US')} of ${all.length.toLocaleString('en-US')} processes`);
    setText(this.note, all.length === 0 ? 'No processes sampled in this range.'
      : found.length === 0 ? 'No process matches the search.'
        : found.length > MOST_PROCESSES ? `${found.length - MOST_PROCESSES} more processes are not listed; search for them.` : '');
  }

  // Not with each poll: a pointer over it would lose it.
  renderHead() {
    const sort = `${this.sort.id} ${this.sort.ascending}`;
    if (this.shownSort === sort) return;
    this.shownSort = sort;
    const focused = this.head.contains(document.activeElement) ? document.activeElement.dataset.sort : null;
    this.head.replaceChildren(...HEADS.map(({ id, label, class: kind, ascending = false }) => {
      if (!SORTS.includes(id)) return element('th', { scope: 'col', class: kind }, label);
      const isActive = id === this.sort.id;
      const next = { id, ascending: isActive ? !this.sort.ascending : ascending };
      return element('th', { scope: 'col', class: kind, 'aria-sort': isActive ? (this.sort.ascending ? 'ascending' : 'descending') : 'none' },
        button(label + (isActive ? (this.sort.ascending ? ' ▲' : ' ▼') : ''), () => this.setSort(next), { 'data-sort': id }));
    }));
    if (focused) this.head.querySelector(`[data-sort="${focused}"]`)?.focus();
  }

  setSort(sort) {
    this.sort = sort;
    this.events.onState({ processSort: sort.id, processAscending: sort.ascending });
    this.render();
  }

  // One row, and one with the labels if they are open.
  renderRows(process) {
    const pid = String(process.pid);
    const selection = selectionOf(process, this.processes);
    const key = selection.map(([, value]) => value).join(' ');
    const host = selection.length > 1 ? ` on ${abbreviate(printable(hostOf(process)), 60)}` : '';
    const name = abbreviate(printable(process.name ?? ''), 120) || '(no name)';
    const languages = (process.languages ?? []).map(printable).join(', ');
    const unit = abbreviate(printable(unitOf(process)), 120);
    const ends = describeEnds(process.ends);
    const bar = element('span', { class: 'bar', 'aria-hidden': 'true' });
    bar.style.width = `${Math.min(100, this.total > 0 ? (100 * process.total) / this.total : 0)}%`;
    const amounts = process.fate ? [element('span', { class: 'share dim' }, '–')] : [
      bar, element('span', { class: 'share' }, formatShare(process.total, this.total)), element('span', { class: 'value' }, formatValue(process.total, this.unit)),
    ];
    const labels = process.labels ?? process.attributes ?? {};
    const trails = this.changes.processes.filter((trail) => trail.pid === process.pid);
    const row = element(
      'tr', {},
      element('td', { class: 'number' }, pid),
      element('th', { scope: 'row', class: 'text name' },
        process.fate ? name : button(name + host, () => this.events.onFilter(selection), { class: 'plain', 'data-key': key, 'data-role': 'filter', title: 'Show this process only' })),
      element('td', { class: 'number' }, ...amounts),
      element('td', { class: 'number wide-only' }, process.fate ? '–' : formatValue(process.samples ?? 0, 'count')),
      element('td', { class: 'text wide-only', title: unit }, unit),
      element('td', { class: 'text wide-only', title: languages }, languages),
      element('td', { class: 'text wide-only', title: ends }, ends),
      element('td', { class: 'text' }, this.renderToggle(process, key, Object.keys(labels).length, trails)),
    );
    if (!this.open.has(key)) return [row];
    // A cell over columns that are not shown would make room for them.
    const columns = HEADS.filter((head) => !(matchMedia(NARROW).matches && head.class.includes('wide-only'))).length;
    return [row, element('tr', { class: 'expanded' }, element('td', { colspan: columns }, element('div', { class: 'label-steps' }, ...describeLabels(process, labels, trails))))];
  }

  renderToggle(process, key, count, trails) {
    const changed = trails.reduce((sum, { changes }) => sum + changes.length, 0);
    const isOpen = this.open.has(key);
    const text = process.fate ? printable(process.fate) : `${count} labels${changed > 0 ? `, changed by ${changed} ${changed === 1 ? 'processor' : 'processors'}` : ''}`;
    return button(`${isOpen ? '▾' : '▸'} ${abbreviate(text, 200)}`, () => this.toggle(key), {
      class: process.fate ? 'plain fate' : 'plain', 'aria-expanded': String(isOpen), 'data-key': key, 'data-role': 'labels',
    });
  }

  toggle(key) {
    if (!this.open.delete(key)) this.open.add(key);
    this.render();
  }
}

// From the receiver to the history: what was received, what each processor changed, what is left.
function describeLabels(process, labels, trails) {
  const step = (title, list, kind) => element('section', { class: kind }, element('h4', {}, abbreviate(printable(title), 200)), list);
  const steps = trails.flatMap(({ pipeline, receiver, received, changes, not_passed_on_by: processor }) => [
    step(`Received by ${receiver}, for ${pipeline}`, labelList(Object.entries(received))),
    ...changes.map((change) => step(`Changed by ${change.processor}`, labelList([
      ...Object.entries(change.set).map(([name, value]) => [`+\u00a0${name}`, value]), ...change.removed.map((name) => [`−\u00a0${name}`, '']),
    ]))),
    ...(processor ? [step(`Not passed on by ${processor}`, null, 'fate')] : []),
  ]);
  if (process.fate && trails.length > 0) return steps;
  return [...steps, step(process.fate ? 'Before it was dropped' : 'Labels shown here', labelList(Object.entries(labels)))];
}

// Values as text; what is not text as JSON.
export function labelList(entries) {
  const text = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
  return element('dl', { class: 'labels' }, ...entries.flatMap(([name, value]) => [
    element('dt', {}, abbreviate(printable(name), 80)), element('dd', {}, abbreviate(printable(text(value)), 300)),
  ]));
}
