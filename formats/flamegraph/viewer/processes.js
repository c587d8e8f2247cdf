// The sampled processes with their labels, languages and stack end reasons.
import { abbreviate, formatShare, formatValue, printable } from './format.js';
import { button, element } from './dom.js';

const MOST_PROCESSES = 500;
const HEADS = [
  ['PID', 'number pid'], ['Process', 'text'], ['Total', 'number'], ['Samples', 'number count wide-only'], ['Languages', 'text wide-only'],
  ['Stacks end', 'text wide-only'], ['Labels', 'text labels-head'],
];

// "whole 98 %, cut 2 %", most frequent first.
export function describeEnds(ends) {
  const counts = Object.entries(ends ?? {}).filter(([, count]) => count > 0).sort((left, right) => right[1] - left[1]);
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  return counts.map(([reason, count]) => `${abbreviate(printable(reason), 40)} ${formatShare(count, all)}`).join(', ');
}

export class ProcessList {
  // `onFilter(pid)` is called with the process to show alone.
  constructor(onFilter) {
    this.onFilter = onFilter;
    this.body = element('tbody');
    this.note = element('p', { class: 'note' });
    this.element = element(
      'div', { class: 'table-scroll', tabindex: '-1' },
      element('table', { class: 'processes' }, element('caption', { class: 'hidden-text' }, 'Processes, highest total first'),
        element('thead', {}, element('tr', {}, ...HEADS.map(([label, kind]) => element('th', { scope: 'col', class: kind }, label)))), this.body),
      this.note,
    );
  }

  show(processes, total, unit) {
    const open = new Set([...this.body.querySelectorAll('details[open]')].map((details) => details.dataset.pid));
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.pid : null;
    const sorted = [...processes].sort((left, right) => right.total - left.total || left.pid - right.pid);
    this.body.replaceChildren(...sorted.slice(0, MOST_PROCESSES).map((process) => this.renderRow(process, total, unit, open)));
    if (focused) this.body.querySelector(`button[data-pid="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    this.note.textContent = sorted.length === 0 ? 'No processes sampled in this range.'
      : sorted.length > MOST_PROCESSES ? `${sorted.length - MOST_PROCESSES} more processes are not listed; narrow the filter to see them.` : '';
  }

  renderRow(process, total, unit, open) {
    const pid = String(process.pid);
    const name = abbreviate(printable(process.name ?? ''), 120) || '(no name)';
    const languages = (process.languages ?? []).map(printable).join(', ');
    const ends = describeEnds(process.ends);
    const labels = Object.entries(process.labels ?? {});
    const bar = element('span', { class: 'bar', 'aria-hidden': 'true' });
    bar.style.width = `${Math.min(100, total > 0 ? (100 * process.total) / total : 0)}%`;
    return element(
      'tr', {},
      element('td', { class: 'number' }, pid),
      element('th', { scope: 'row', class: 'text name' },
        button(name, () => this.onFilter(pid), { class: 'plain', 'data-pid': pid, title: 'Show this process only' })),
      element('td', { class: 'number' }, bar,
        element('span', { class: 'share' }, formatShare(process.total, total)),
        element('span', { class: 'value' }, formatValue(process.total, unit))),
      element('td', { class: 'number wide-only' }, formatValue(process.samples ?? 0, 'count')),
      element('td', { class: 'text wide-only', title: languages }, languages),
      element('td', { class: 'text wide-only', title: ends }, ends),
      element('td', { class: 'text' }, labels.length === 0 ? '' : element(
        'details', { 'data-pid': pid, open: open.has(pid) },
        element('summary', {}, `${labels.length} labels`),
        element('dl', { class: 'labels' }, ...labels.flatMap(([name, value]) => [
          element('dt', {}, abbreviate(printable(name), 80)), element('dd', {}, abbreviate(printable(String(value)), 300)),
        ])))),
    );
  }
}
