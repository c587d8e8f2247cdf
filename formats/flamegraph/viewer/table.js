// The function table: sortable, filtered by the search, rendered page by page.
import { abbreviate, formatDifference, formatPoints, formatShare, formatValue, shortenName } from './format.js';
import { button, element } from './dom.js';
import { changeClass, shareDifference } from './details.js';
import { nextMatch } from './search.js';

const PAGE_ROWS = 200;
const MOST_CELL_NAME = 300;
// Of a character, and of what surrounds the name in its cell.
const NAME_GLYPH = 7.25;
const NAME_MARGIN = 32;

const COLUMNS = [
  { id: 'name', label: 'Function', text: true },
  { id: 'binary', label: 'Binary', text: true, class: 'wide-only' },
  { id: 'self', label: 'Self' },
  { id: 'total', label: 'Total' },
];
const COMPARISON_COLUMNS = [
  { id: 'name', label: 'Function', text: true },
  { id: 'binary', label: 'Binary', text: true, class: 'wide-only' },
  { id: 'self', label: 'Self' },
  { id: 'baseSelf', label: 'Baseline', class: 'wide-only' },
  { id: 'selfChange', label: 'Change' },
  { id: 'total', label: 'Total', class: 'wide-only' },
  { id: 'baseTotal', label: 'Baseline', class: 'wide-only' },
  { id: 'totalChange', label: 'Change', class: 'wide-only' },
];

// The matching rows of a table, in order. `matches` is one byte per frame, or null.
export function sortRows(frames, functions, key, matches) {
  const rows = [];
  for (let row = 0; row < functions.count; row++) if (!matches || matches[functions.frame[row]]) rows.push(row);
  const text = sortText(frames, key.id);
  const direction = key.ascending ? 1 : -1;
  const ranks = frames.rank;
  const rank = (row) => ranks[functions.frame[row]];
  if (text) rows.sort((left, right) => direction * compareCells(text(functions.frame[left]), text(functions.frame[right])) || rank(left) - rank(right));
  else rows.sort((left, right) => direction * (key.value(left) - key.value(right)) || rank(left) - rank(right));
  return rows;
}

function compareCells(left, right) {
  return left < right ? -1 : left > right ? 1 : 0;
}

function sortText(frames, id) {
  if (id === 'name') return (frame) => frames.nameOf(frame).toLowerCase();
  if (id === 'binary') return (frame) => frames.binaryOf(frame).toLowerCase();
  return null;
}

// The number shown in a column of the table.
export function columnValue(profile, byShare, id) {
  const { functions } = profile;
  const change = (now, base) => (row) => (byShare ? shareDifference(profile, now[row], base[row]) : now[row] - base[row]);
  if (id === 'selfChange') return change(functions.self, functions.baseSelf);
  if (id === 'totalChange') return change(functions.total, functions.baseTotal);
  const column = functions[id] ?? functions.self;
  return (row) => column[row];
}

export class FunctionTable {
  // `events`: onSelect(frame), onOpen(frame), onSort(id, ascending).
  constructor(events) {
    this.events = events;
    this.sort = { id: 'self', ascending: false };
    this.shown = PAGE_ROWS;
    this.head = element('tr');
    this.body = element('tbody');
    this.caption = element('caption', { class: 'hidden-text' }, 'Functions');
    this.table = element('table', { class: 'functions' }, this.caption, element('thead', {}, this.head), this.body);
    this.more = button('', () => this.showMore(), { class: 'more' });
    this.note = element('p', { class: 'note' });
    this.element = element('div', { class: 'table-scroll', tabindex: '-1' }, this.table, this.more, this.note);
    new ResizeObserver(() => this.resize()).observe(this.element);
    this.body.addEventListener('click', (event) => this.onRow(event, (frame) => this.events.onSelect(frame)));
    this.body.addEventListener('dblclick', (event) => this.onRow(event, (frame) => this.events.onOpen(frame)));
    this.body.addEventListener('keydown', (event) => this.onKey(event));
  }

  show(profile, byShare, matches, selected) {
    this.profile = profile;
    this.byShare = byShare;
    this.matches = matches;
    this.selected = selected;
    this.table.classList.toggle('compares', profile.comparison);
    this.columns = profile.comparison ? COMPARISON_COLUMNS : COLUMNS;
    if (!this.columns.some((column) => column.id === this.sort.id)) this.sort = { id: 'self', ascending: false };
    this.render();
  }

  setSort(id, ascending) {
    this.sort = { id, ascending };
    this.shown = PAGE_ROWS;
    if (this.profile) this.render();
  }

  setSelected(selected) {
    this.selected = selected;
    for (const row of this.body.children) this.markSelected(row);
  }

  markSelected(row) {
    const chosen = this.profile.frames.function[Number(row.dataset.frame)] === this.selected;
    row.classList.toggle('selected', chosen);
    if (chosen) row.setAttribute('aria-current', 'true');
    else row.removeAttribute('aria-current');
  }

  render() {
    const { profile, sort } = this;
    const key = { ...sort, value: columnValue(profile, this.byShare, sort.id) };
    const rows = sortRows(profile.frames, profile.functions, key, this.matches);
    this.rows = rows;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest('tr').functionName : null;
    this.renderHead();
    this.width = this.head.firstChild.clientWidth;
    this.body.replaceChildren(...rows.slice(0, this.shown).map((row) => this.renderRow(row)));
    // Keyed by name, because frame numbers change with each profile.
    if (focused !== null) [...this.body.children].find((row) => row.functionName === focused)?.querySelector('button').focus({ preventScroll: true });
    this.more.hidden = rows.length <= this.shown;
    this.more.textContent = `Show ${Math.min(PAGE_ROWS, rows.length - this.shown)} more of ${rows.length.toLocaleString('en-US')}`;
    const left = profile.functionCount - profile.functions.count;
    this.note.textContent = rows.length === 0 ? (this.matches ? 'No function matches the search.' : 'No samples in this range.')
      : left > 0 ? `${left.toLocaleString('en-US')} more functions with less self time are not listed.` : '';
  }

  renderHead() {
    const headers = this.columns.map((column) => {
      const active = column.id === this.sort.id;
      const arrow = active ? (this.sort.ascending ? ' ▲' : ' ▼') : '';
      const next = active ? !this.sort.ascending : Boolean(column.text);
      return element(
        'th', {
          scope: 'col', class: [column.text ? 'text' : 'number', column.class].filter(Boolean).join(' '),
          'aria-sort': active ? (this.sort.ascending ? 'ascending' : 'descending') : 'none',
        },
        button(column.label + arrow, () => this.events.onSort(column.id, next), { 'data-sort': column.id }),
      );
    });
    const focused = this.head.contains(document.activeElement) ? document.activeElement.dataset.sort : null;
    this.head.replaceChildren(...headers);
    if (focused) this.head.querySelector(`[data-sort="${focused}"]`)?.focus();
  }

  renderRow(row) {
    const { frames, functions } = this.profile;
    const frame = functions.frame[row];
    const made = element('tr', { 'data-frame': frame });
    made.functionName = `${frames.rawName(frame)}\n${frames.rawBinary(frame)}`;
    for (const column of this.columns) made.append(this.renderCell(column, row, frame, frames));
    this.markSelected(made);
    return made;
  }

  renderCell(column, row, frame, frames) {
    if (column.id === 'name') {
      const name = frames.nameOf(frame);
      const place = frames.placeOf(frame);
      return element(
        'th', { scope: 'row', class: 'text name', title: abbreviate(place ? `${name}\n${place}` : name, 1000) },
        element('span', { class: `kind kind-${frames.kindOf(frame)}`, 'aria-hidden': 'true' }),
        button(shortenName(name, this.nameCharacters), () => {}, { class: 'plain' }),
      );
    }
    if (column.id === 'binary') return element('td', { class: 'text wide-only dim' }, abbreviate(frames.binaryOf(frame), 120));
    const value = columnValue(this.profile, this.byShare, column.id)(row);
    if (column.id.endsWith('Change')) return this.renderChange(column, value);
    const whole = column.id.startsWith('base') ? this.profile.baseTotal : this.profile.total;
    const bar = element('span', { class: 'bar', 'aria-hidden': 'true' });
    bar.style.width = `${Math.min(100, whole > 0 ? (100 * value) / whole : 0)}%`;
    const share = element('span', { class: 'share' }, formatShare(value, whole));
    const amount = element('span', { class: 'value' }, formatValue(value, this.profile.unit));
    // A comparison has too many columns for both.
    const parts = !this.profile.comparison ? [share, amount] : this.byShare ? [share] : [amount];
    return element('td', { class: `number ${column.class ?? ''}` }, bar, ...parts);
  }

  renderChange(column, value) {
    const format = this.byShare ? formatPoints : (difference) => formatValue(difference, this.profile.unit);
    return element('td', { class: `number ${column.class ?? ''} ${changeClass(value)}` }, formatDifference(value, format));
  }

  // Selects the next row.
  stepMatch(direction) {
    const { rows, profile: { frames, functions } } = this;
    if (rows.length === 0) return null;
    const at = rows.findIndex((row) => frames.function[functions.frame[row]] === this.selected);
    const next = at < 0 ? 0 : nextMatch(rows.length, at, direction);
    this.events.onSelect(functions.frame[rows[next]]);
    if (next >= this.shown) {
      this.shown = next + PAGE_ROWS;
      this.render();
    }
    this.body.children[next].scrollIntoView({ block: 'center' });
    return { place: next, count: rows.length };
  }

  resize() {
    if (this.profile && this.head.firstChild?.clientWidth !== this.width) this.render();
  }

  // As many as fit, so that the end of a name is there.
  get nameCharacters() {
    return this.width > 0 ? Math.min(MOST_CELL_NAME, Math.floor((this.width - NAME_MARGIN) / NAME_GLYPH)) : MOST_CELL_NAME;
  }

  showMore() {
    this.shown += PAGE_ROWS;
    this.render();
  }

  onRow(event, action) {
    const row = event.target.closest('tr');
    if (row) action(Number(row.dataset.frame));
  }

  onKey(event) {
    const row = event.target.closest('tr');
    const next = event.key === 'ArrowDown' ? row?.nextElementSibling : event.key === 'ArrowUp' ? row?.previousElementSibling : null;
    if (next) {
      event.preventDefault();
      next.querySelector('button').focus();
    }
  }
}
