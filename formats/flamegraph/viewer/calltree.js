// The call tree, accessible by keyboard and screen reader; only its visible rows are in the document.
import { abbreviate, formatDifference, formatPoints, formatShare, formatValue, shortenMiddle } from './format.js';
import { changeClass, shareDifference } from './details.js';
import { element, oncePerFrame } from './dom.js';
import { matchSubtrees, nextMatch } from './search.js';
import { pathHashes } from './paths.js';
import { ROOT } from './profile.js';

const TREE_ROW_HEIGHT = 24;
const MOST_INDENTS = 24;
const MOST_ROW_NAME = 300;
const MOST_TWIN = 40;
// Opening a node also opens a child with at least this share of it.
const DOMINANT = 0.6;
const MOST_OPENED = 40;

// The visible rows below the root, heaviest child first. `isOpen(node)` returns whether a node's children are shown.
export function visibleRows(nodes, isOpen, shows) {
  const rows = [];
  const stack = [];
  const pushChildren = (parent) => {
    const children = childrenByTotal(nodes, parent, shows);
    for (let place = children.length; place > 0; place--) {
      const node = children[place - 1];
      stack.push({ node, level: nodes.depth[node], place, siblings: children.length });
    }
  };
  pushChildren(ROOT);
  while (stack.length > 0) {
    const row = stack.pop();
    rows.push(row);
    if (isOpen(row.node)) pushChildren(row.node);
  }
  return rows;
}

export function childrenByTotal(nodes, parent, shows) {
  const children = [];
  for (let child = parent + 1; child < nodes.end[parent]; child = nodes.end[child]) if (!shows || shows[child]) children.push(child);
  const weight = (node) => Math.max(nodes.total[node], nodes.baseTotal[node]);
  return children.sort((left, right) => weight(right) - weight(left) || left - right);
}

export class CallTree {
  // `events`: onSelect(node).
  constructor(events) {
    this.events = events;
    this.tree = element('div', { role: 'tree', 'aria-label': 'Call tree', class: 'tree' });
    this.head = element('div', { class: 'tree-head', 'aria-hidden': 'true' });
    this.empty = element('p', { class: 'note' });
    this.element = element('div', { class: 'tree-scroll' }, this.head, this.tree, this.empty);
    this.open = new Set();
    this.rows = [];
    this.active = -1;
    this.isFirst = true;
    this.draw = oncePerFrame(() => this.render());
    this.element.addEventListener('scroll', this.draw);
    this.tree.addEventListener('click', (event) => this.onClick(event));
    this.tree.addEventListener('keydown', (event) => this.onKey(event));
    new ResizeObserver(this.draw).observe(this.element);
  }

  // Open nodes and the active node are kept by path.
  show(profile, matches, selected) {
    const activeHash = this.active > 0 ? this.hashes[this.active] : null;
    this.profile = profile;
    this.nodes = profile.nodes;
    this.frames = profile.frames;
    this.matches = matches;
    this.selected = selected;
    this.hashes = pathHashes(this.frames, this.nodes);
    this.shows = matches ? matchSubtrees(this.nodes, matches) : null;
    this.active = activeHash === null ? -1 : Math.max(-1, this.hashes.indexOf(activeHash));
    if (this.isFirst && this.nodes.count > 1) {
      this.isFirst = false;
      this.openDominant(ROOT);
    }
    this.head.replaceChildren(
      element('span', { class: 'tree-name' }, 'Function'),
      ...(profile.comparison ? [element('span', { class: 'tree-number' }, 'Change')] : []),
      element('span', { class: 'tree-number wide-only' }, 'Self'), element('span', { class: 'tree-number' }, 'Total'),
    );
    this.refresh();
  }

  // Opens the path to the heaviest match.
  openMatches() {
    let node = ROOT;
    for (let opened = 0; opened < MOST_OPENED; opened++) {
      const [child] = childrenByTotal(this.nodes, node, this.shows);
      if (child === undefined || (node !== ROOT && this.matches[this.nodes.frame[node]])) break;
      this.open.add(this.hashes[child]);
      node = child;
    }
    this.refresh();
    const row = this.rows.findIndex((candidate) => candidate.node === node);
    this.element.scrollTop = Math.max(0, (row - 3) * TREE_ROW_HEIGHT);
  }

  // Opens the path to the next match in the order of the rows, and selects it.
  stepMatch(direction) {
    const { nodes } = this;
    const found = visibleRows(nodes, () => true, this.shows).map(({ node }) => node).filter((node) => this.matches[nodes.frame[node]]);
    if (found.length === 0) return null;
    const next = nextMatch(found.length, found.indexOf(this.active), direction, (place) => nodes.total[found[place]]);
    const node = found[next];
    for (let caller = nodes.parent[node]; caller !== ROOT; caller = nodes.parent[caller]) this.open.add(this.hashes[caller]);
    this.refresh();
    this.moveTo(this.rows.findIndex((row) => row.node === node));
    return { place: next, count: found.length };
  }

  setSelected(selected) {
    this.selected = selected;
    this.draw();
  }

  openDominant(node) {
    for (let opened = 0; opened < MOST_OPENED; opened++) {
      const [heaviest] = childrenByTotal(this.nodes, node, this.shows);
      if (node !== ROOT) this.open.add(this.hashes[node]);
      if (heaviest === undefined || this.nodes.total[heaviest] < DOMINANT * this.nodes.total[node]) break;
      node = heaviest;
    }
  }

  refresh() {
    this.rows = visibleRows(this.nodes, (node) => this.open.has(this.hashes[node]), this.shows);
    this.tree.style.height = `${this.rows.length * TREE_ROW_HEIGHT}px`;
    this.empty.textContent = this.rows.length > 0 ? '' : this.matches ? 'No function matches the search.' : 'No samples in this range.';
    this.render();
  }

  render() {
    if (!this.nodes || !this.element.clientHeight) return;
    const focused = this.tree.contains(document.activeElement);
    const first = Math.max(0, Math.floor(this.element.scrollTop / TREE_ROW_HEIGHT) - 8);
    const last = Math.min(this.rows.length, first + Math.ceil(this.element.clientHeight / TREE_ROW_HEIGHT) + 16);
    const activeRow = this.rows.findIndex((row) => row.node === this.active);
    const tabStop = activeRow >= first && activeRow < last ? activeRow : first;
    const made = [];
    for (let index = first; index < last; index++) made.push(this.renderRow(index, index === tabStop));
    this.tree.replaceChildren(...made);
    if (focused) this.tree.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  }

  // What distinguishes a node from a sibling of the same name: the binary, or else the line.
  distinction(node) {
    const { frames, nodes } = this;
    const frame = nodes.frame[node];
    const parent = nodes.parent[node];
    for (let other = parent + 1; other < nodes.end[parent]; other = nodes.end[other]) {
      const twin = nodes.frame[other];
      if (other === node || frames.name[twin] !== frames.name[frame]) continue;
      return frames.binary[twin] === frames.binary[frame] ? frames.placeOf(frame) : frames.binaryOf(frame).replace(/^.*\//, '');
    }
    return '';
  }

  renderRow(index, isTabStop) {
    const { node, level, place, siblings } = this.rows[index];
    const { profile, frames, nodes } = this;
    const frame = nodes.frame[node];
    const name = abbreviate(frames.nameOf(frame), MOST_ROW_NAME);
    const hasChildren = nodes.end[node] > node + 1;
    const isOpen = this.open.has(this.hashes[node]);
    const total = formatValue(nodes.total[node], profile.unit);
    const change = profile.comparison ? shareDifference(profile, nodes.total[node], nodes.baseTotal[node]) : 0;
    const row = element(
      'div', {
        role: 'treeitem', class: 'tree-row', 'data-index': index, tabindex: isTabStop ? '0' : '-1',
        'aria-level': level, 'aria-posinset': place, 'aria-setsize': siblings,
        'aria-expanded': hasChildren ? String(isOpen) : null,
        'aria-selected': String(frames.function[frame] === this.selected),
        'aria-label': `${name}, ${formatShare(nodes.total[node], profile.total)}, ${total} of ${formatValue(profile.total, profile.unit)}`,
        title: abbreviate([frames.nameOf(frame), frames.placeOf(frame), frames.binaryOf(frame)].filter(Boolean).join('\n'), 1000),
      },
      element('span', { class: 'tree-name' },
        element('span', { class: 'twisty', 'aria-hidden': 'true' }, hasChildren ? (isOpen ? '▾' : '▸') : ''),
        element('span', { class: `kind kind-${frames.kindOf(frame)}`, 'aria-hidden': 'true' }),
        element('span', { class: this.matches?.[frame] ? 'match' : '' }, name),
        element('span', { class: 'dim twin' }, shortenMiddle(this.distinction(node), MOST_TWIN))),
      profile.comparison ? element('span', { class: `tree-number ${changeClass(change)}` }, formatDifference(change, formatPoints)) : null,
      element('span', { class: 'tree-number wide-only' },
        element('span', { class: 'share' }, formatShare(nodes.self[node], profile.total)),
        element('span', { class: 'value' }, formatValue(nodes.self[node], profile.unit))),
      element('span', { class: 'tree-number' },
        element('span', { class: 'share' }, formatShare(nodes.total[node], profile.total)), element('span', { class: 'value' }, total)),
    );
    row.style.top = `${index * TREE_ROW_HEIGHT}px`;
    row.firstChild.style.setProperty('--indents', Math.min(level - 1, MOST_INDENTS));
    return row;
  }

  toggle(node, open) {
    if (open) this.openDominant(node);
    else this.open.delete(this.hashes[node]);
    this.refresh();
  }

  activate(index) {
    if (!this.rows[index]) return;
    this.moveTo(index);
    this.tree.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  }

  moveTo(index) {
    const row = this.rows[index];
    this.active = row.node;
    const top = index * TREE_ROW_HEIGHT;
    const space = this.element.clientHeight - this.head.offsetHeight - TREE_ROW_HEIGHT;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + space) this.element.scrollTop = top - space;
    this.render();
    this.events.onSelect(row.node);
  }

  onClick(event) {
    const item = event.target.closest('[role="treeitem"]');
    if (!item) return;
    const index = Number(item.dataset.index);
    const { node } = this.rows[index];
    const isTwisty = event.target.classList.contains('twisty');
    if (isTwisty || event.detail === 2) this.toggle(node, !this.open.has(this.hashes[node]));
    if (!isTwisty) this.activate(index);
  }

  onKey(event) {
    const item = event.target.closest('[role="treeitem"]');
    if (!item || event.altKey || event.ctrlKey || event.metaKey) return;
    const index = Number(item.dataset.index);
    if (!this.keyAction(event.key, index)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  keyAction(key, index) {
    const { node, level } = this.rows[index];
    const hasChildren = this.nodes.end[node] > node + 1;
    const isOpen = hasChildren && this.open.has(this.hashes[node]);
    const page = Math.max(1, Math.floor(this.element.clientHeight / TREE_ROW_HEIGHT) - 2);
    switch (key) {
      case 'ArrowDown': this.activate(Math.min(this.rows.length - 1, index + 1)); return true;
      case 'ArrowUp': this.activate(Math.max(0, index - 1)); return true;
      case 'PageDown': this.activate(Math.min(this.rows.length - 1, index + page)); return true;
      case 'PageUp': this.activate(Math.max(0, index - page)); return true;
      case 'Home': this.activate(0); return true;
      case 'End': this.activate(this.rows.length - 1); return true;
      case 'ArrowRight':
        if (isOpen) this.activate(index + 1);
        else if (hasChildren) this.toggleAt(index, true);
        return true;
      case 'ArrowLeft':
        if (isOpen) this.toggleAt(index, false);
        else this.activate(this.parentRow(index, level));
        return true;
      case 'Enter': case ' ':
        if (hasChildren) this.toggleAt(index, !isOpen);
        return true;
      default: return false;
    }
  }

  toggleAt(index, open) {
    const { node } = this.rows[index];
    this.toggle(node, open);
    this.activate(this.rows.findIndex((row) => row.node === node));
  }

  parentRow(index, level) {
    let row = index;
    while (row > 0 && this.rows[row].level >= level) row -= 1;
    return this.rows[row].level < level ? row : index;
  }
}
