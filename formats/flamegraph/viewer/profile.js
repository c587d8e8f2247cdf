// The profile document in typed arrays.
import { printable } from './format.js';

export const ROOT = 0;

export class Frames {
  constructor(document) {
    const columns = document.frames ?? {};
    this.count = (columns.name ?? []).length;
    this.kinds = document.kinds ?? [];
    this.languages = document.languages ?? [];
    this.raw = document.strings ?? [];
    this.shown = this.raw.map(printable);
    this.name = indexColumn(columns.name, this.count);
    this.file = indexColumn(columns.file, this.count);
    this.line = indexColumn(columns.line, this.count);
    this.binary = indexColumn(columns.binary, this.count);
    this.kind = indexColumn(columns.kind, this.count);
    this.language = indexColumn(columns.language, this.count);
    this.function = this.functionOfFrames();
    this.ranks = null;
  }

  rawName(frame) {
    return frame === this.count ? 'all' : this.raw[this.name[frame]] ?? '';
  }

  rawBinary(frame) {
    return frame === this.count ? '' : this.raw[this.binary[frame]] ?? '';
  }

  nameOf(frame) {
    if (frame === this.count) return 'all';
    return this.shown[this.name[frame]] || withoutSymbol(this.binaryOf(frame));
  }

  binaryOf(frame) {
    return frame === this.count ? '' : this.shown[this.binary[frame]] ?? '';
  }

  fileOf(frame) {
    return frame === this.count ? '' : this.shown[this.file[frame]] ?? '';
  }

  lineOf(frame) {
    return frame === this.count ? 0 : this.line[frame];
  }

  kindOf(frame) {
    return frame === this.count ? '' : this.kinds[this.kind[frame]] ?? '';
  }

  // Empty if it is unknown.
  languageOf(frame) {
    return frame === this.count ? '' : this.languages[this.language[frame]] ?? '';
  }

  // "file.c:12", or an empty string.
  placeOf(frame) {
    const file = this.fileOf(frame);
    const line = this.lineOf(frame);
    return file && line > 0 ? `${file}:${line}` : file;
  }

  // The first frame with this name and binary, or -1.
  find(name, binary) {
    for (let frame = 0; frame < this.count; frame++) {
      if (this.rawName(frame) === name && this.rawBinary(frame) === binary) return frame;
    }
    return -1;
  }

  // A function is a name in a binary; its number is that of its first frame.
  functionOfFrames() {
    const firsts = new Map();
    const functions = new Uint32Array(this.count + 1);
    const most = this.raw.length + 1;
    for (let frame = 0; frame < this.count; frame++) {
      const key = this.name[frame] * most + this.binary[frame];
      const first = firsts.get(key);
      if (first === undefined) firsts.set(key, frame);
      functions[frame] = first ?? frame;
    }
    functions[this.count] = this.count;
    return functions;
  }

  // By name, then by what distinguishes functions of the same name. Negative: `left` comes first.
  compare(left, right) {
    if (left === right) return 0;
    return compareText(this.rawName(left), this.rawName(right)) || compareText(this.rawBinary(left), this.rawBinary(right))
      || this.line[left] - this.line[right] || left - right;
  }

  // The rank of each frame by name.
  get rank() {
    this.ranks ??= this.rankByName();
    return this.ranks;
  }

  rankByName() {
    const order = Uint32Array.from({ length: this.count }, (_, frame) => frame);
    order.sort((left, right) => this.compare(left, right));
    const rank = new Uint32Array(this.count + 1);
    order.forEach((frame, place) => { rank[frame] = place; });
    rank[this.count] = this.count;
    return rank;
  }
}

// What stands for a missing name, as in files: the binary.
export function withoutSymbol(binary) {
  const file = binary.slice(binary.lastIndexOf('/') + 1);
  return file.startsWith('[') ? file : `[${file || 'unknown'}]`;
}

function compareText(left, right) {
  return left < right ? -1 : left > right ? 1 : 0;
}

function indexColumn(column, count) {
  const decoded = new Uint32Array(count);
  if (column) decoded.set(column.length > count ? column.slice(0, count) : column);
  return decoded;
}

function valueColumn(column, count) {
  const decoded = new Float64Array(count);
  if (column) decoded.set(column.length < count ? column : column.slice(0, count - 1), 1);
  return decoded;
}

// The tree in depth-first order below a single root (node 0), children sorted by name so that new data moves nothing.
export function decodeNodes(columns, frames, total, baseTotal) {
  const count = (columns?.depth?.length ?? 0) + 1;
  const nodes = {
    count,
    comparison: columns?.base_total !== undefined,
    depth: new Uint32Array(count),
    frame: new Uint32Array(count).fill(frames.count),
    self: valueColumn(columns?.self, count),
    total: valueColumn(columns?.total, count),
    baseSelf: valueColumn(columns?.base_self, count),
    baseTotal: valueColumn(columns?.base_total, count),
  };
  for (let node = 1; node < count; node++) {
    nodes.depth[node] = Math.min(columns.depth[node - 1] + 1, nodes.depth[node - 1] + 1);
    nodes.frame[node] = Math.min(columns.frame[node - 1], frames.count);
  }
  const linked = sortedByName(link(nodes), frames);
  linked.total[ROOT] = Math.max(total ?? 0, linked.childTotal[ROOT]);
  linked.baseTotal[ROOT] = Math.max(baseTotal ?? 0, linked.childBaseTotal[ROOT]);
  return linked;
}

// Adds parents, subtree ends, and the sums of the children.
function link(nodes) {
  const { count, depth } = nodes;
  let rows = 1;
  for (let node = 1; node < count; node++) rows = Math.max(rows, depth[node] + 1);
  const open = new Uint32Array(rows);
  nodes.rows = rows;
  nodes.parent = new Uint32Array(count);
  nodes.end = new Uint32Array(count);
  nodes.childTotal = new Float64Array(count);
  nodes.childBaseTotal = new Float64Array(count);
  for (let node = 1; node < count; node++) {
    const parent = open[depth[node] - 1];
    open[depth[node]] = node;
    nodes.parent[node] = parent;
    nodes.childTotal[parent] += nodes.total[node];
    nodes.childBaseTotal[parent] += nodes.baseTotal[node];
  }
  for (let node = count - 1; node >= 0; node--) {
    nodes.end[node] = Math.max(nodes.end[node], node + 1);
    if (node > 0) nodes.end[nodes.parent[node]] = Math.max(nodes.end[nodes.parent[node]], nodes.end[node]);
  }
  return nodes;
}

// The value that the tree omits below a node: its total minus its self value and its children.
export function notShown(nodes, node) {
  return Math.max(0, nodes.total[node] - nodes.self[node] - nodes.childTotal[node]);
}

export function notShownInBase(nodes, node) {
  return Math.max(0, nodes.baseTotal[node] - nodes.baseSelf[node] - nodes.childBaseTotal[node]);
}

function isSortedByName(nodes, frames) {
  const previous = new Int32Array(nodes.rows + 1).fill(-1);
  for (let node = 1; node < nodes.count; node++) {
    const depth = nodes.depth[node];
    const frame = nodes.frame[node];
    if (previous[depth] >= 0 && frames.compare(previous[depth], frame) > 0) return false;
    previous[depth] = frame;
    previous[depth + 1] = -1;
  }
  return true;
}

function sortedByName(nodes, frames) {
  if (isSortedByName(nodes, frames)) return nodes;
  const order = orderByName(nodes, frames);
  const sorted = { ...nodes };
  for (const column of ['depth', 'frame', 'self', 'total', 'baseSelf', 'baseTotal']) sorted[column] = reordered(nodes[column], order);
  return link(sorted);
}

function reordered(column, order) {
  const sorted = new column.constructor(order.length);
  for (let place = 0; place < order.length; place++) sorted[place] = column[order[place]];
  return sorted;
}

// The depth-first order with children by rank: two counting sorts and a walk without recursion.
function orderByName(nodes, frames) {
  const byRank = countingSort(reordered(frames.rank, nodes.frame), frames.count + 1, null);
  const byParent = countingSort(nodes.parent, nodes.count, byRank.order);
  const order = new Uint32Array(nodes.count);
  const stack = [ROOT];
  for (let place = 0; stack.length > 0; place++) {
    const node = stack.pop();
    order[place] = node;
    for (let child = byParent.start[node + 1] - 1; child >= byParent.start[node]; child--) {
      if (byParent.order[child] !== ROOT) stack.push(byParent.order[child]);
    }
  }
  return order;
}

// Items by key, items of the same key in the order of `previous`; `start` holds the first position of each key.
function countingSort(keys, limit, previous) {
  const start = new Uint32Array(limit + 1);
  for (let item = 0; item < keys.length; item++) start[keys[item] + 1] += 1;
  for (let key = 0; key < limit; key++) start[key + 1] += start[key];
  const next = start.slice();
  const order = new Uint32Array(keys.length);
  for (let place = 0; place < keys.length; place++) {
    const item = previous ? previous[place] : place;
    order[next[keys[item]]++] = item;
  }
  return { start, order };
}

export function decodeProfile(document) {
  const frames = new Frames(document);
  const nodes = decodeNodes(document.nodes, frames, document.total, document.base_total);
  const functions = decodeTable(document.functions ?? { frame: [] });
  return {
    frames,
    nodes,
    functions,
    functionCount: document.function_count ?? functions.count,
    type: document.type ?? '',
    unit: document.unit ?? '',
    from: document.from,
    until: document.until,
    samples: document.samples,
    total: nodes.total[ROOT],
    baseTotal: nodes.baseTotal[ROOT],
    // A baseline without samples says nothing about what changed.
    comparison: nodes.comparison && nodes.baseTotal[ROOT] > 0,
    lacksBaseline: nodes.comparison && nodes.baseTotal[ROOT] === 0,
    cut: { nodes: document.cut?.nodes ?? 0, value: document.cut?.value ?? 0 },
  };
}

function decodeTable(columns) {
  const count = columns.frame.length;
  const values = (column) => Float64Array.from(column ?? new Array(count).fill(0));
  return {
    count,
    frame: Uint32Array.from(columns.frame),
    self: values(columns.self),
    total: values(columns.total),
    baseSelf: values(columns.base_self),
    baseTotal: values(columns.base_total),
  };
}
