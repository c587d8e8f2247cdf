// The position of each bar of a flame graph, and which bars are visible.
import { ROOT, notShown, notShownInBase } from './profile.js';

export const BAR_HEIGHT = 20;

// What the width of a bar represents: `now` and `base` are factors for the values of a node.
export function widthScale(nodes, byShare) {
  const now = nodes.total[ROOT];
  const base = nodes.baseTotal[ROOT];
  if (!nodes.comparison) return { now: now > 0 ? 1 / now : 0, base: 0 };
  if (!byShare) return { now: now + base > 0 ? 1 / (now + base) : 0, base: now + base > 0 ? 1 / (now + base) : 0 };
  const parts = (now > 0 ? 1 : 0) + (base > 0 ? 1 : 0);
  return { now: now > 0 ? 1 / (now * parts) : 0, base: base > 0 ? 1 / (base * parts) : 0 };
}

// Bars in rows, each row sorted by position, the root spanning 0 to 1. `node` is -2 - n for what is not shown below
// node n, `hidden` the width of that.
export function layoutTree(nodes, scale) {
  const { count, depth, total, baseTotal } = nodes;
  const hidden = hiddenWidths(nodes, scale);
  const { rowStart, bars, rows } = countBars(nodes, hidden);
  const start = new Float64Array(bars);
  const end = new Float64Array(bars);
  const shown = new Int32Array(bars);
  const barOf = new Uint32Array(count);
  const next = rowStart.slice();
  const cursor = new Float64Array(rows + 1);
  const limit = new Float64Array(rows + 1).fill(1);
  const open = new Uint32Array(rows + 1);
  const place = (row, width, node) => {
    const bar = next[row]++;
    start[bar] = Math.min(cursor[row], limit[row]);
    // Rounding must not push a bar beyond its parent.
    end[bar] = Math.min(start[bar] + width, limit[row]);
    shown[bar] = node;
    cursor[row] = end[bar];
    return bar;
  };
  let deepest = -1;
  for (let node = 0; node <= count; node++) {
    // The last round only closes what is open.
    const row = node < count ? depth[node] : 0;
    for (; deepest >= row; deepest--) {
      const closed = open[deepest];
      if (hidden[closed] > 0) place(deepest + 1, hidden[closed], -2 - closed);
    }
    if (node === count) break;
    const bar = place(row, total[node] * scale.now + baseTotal[node] * scale.base, node);
    barOf[node] = bar;
    cursor[row + 1] = start[bar];
    limit[row + 1] = end[bar];
    open[row] = node;
    deepest = row;
  }
  return { rows, rowStart, bars, start, end, node: shown, barOf, hidden };
}

function hiddenWidths(nodes, scale) {
  const hidden = new Float64Array(nodes.count);
  for (let node = 0; node < nodes.count; node++) {
    hidden[node] = notShown(nodes, node) * scale.now + notShownInBase(nodes, node) * scale.base;
  }
  return hidden;
}

function countBars({ count, depth, rows: levels }, hidden) {
  const perRow = new Uint32Array(levels + 1);
  for (let node = 0; node < count; node++) {
    perRow[depth[node]] += 1;
    if (hidden[node] > 0) perRow[depth[node] + 1] += 1;
  }
  const rows = perRow[levels] > 0 ? levels + 1 : levels;
  const rowStart = new Uint32Array(rows + 1);
  for (let row = 0; row < rows; row++) rowStart[row + 1] = rowStart[row] + perRow[row];
  return { rows, rowStart, bars: rowStart[rows] };
}

// The first bar in [low, high) that ends after `place`.
export function firstEndingAfter(ends, low, high, place) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (ends[middle] > place) high = middle;
    else low = middle + 1;
  }
  return low;
}

// As firstEndingAfter, by exponential search: fast if the result is near.
function firstEndingAfterNear(ends, low, high, place) {
  let step = 1;
  while (low + step < high && ends[low + step] <= place) {
    low += step;
    step *= 2;
  }
  return firstEndingAfter(ends, low, Math.min(high, low + step + 1), place);
}

// Calls `onBar(bar)` for each visible bar of at least a pixel, `onRun(first, last)` for adjacent narrower bars that
// share pixels. Takes at most two steps per pixel, regardless of the row's length.
export function visibleBars(layout, row, from, until, pixel, onBar, onRun) {
  const { start, end } = layout;
  const last = layout.rowStart[row + 1];
  let bar = firstEndingAfter(end, layout.rowStart[row], last, from);
  while (bar < last && start[bar] < until) {
    if (end[bar] - start[bar] >= pixel) {
      onBar(bar);
      bar += 1;
      continue;
    }
    const pixelEnd = from + (Math.floor((start[bar] - from) / pixel) + 1) * pixel;
    const next = Math.max(bar + 1, firstEndingAfterNear(end, bar, last, pixelEnd));
    onRun(bar, next);
    bar = next;
  }
}

// The bar at a position, or -1.
export function barAt(layout, row, place) {
  if (row < 0 || row >= layout.rows) return -1;
  const bar = firstEndingAfter(layout.end, layout.rowStart[row], layout.rowStart[row + 1], place);
  return bar < layout.rowStart[row + 1] && layout.start[bar] <= place ? bar : -1;
}

// The nearest non-empty bar at or around a position, which may fall between narrow bars.
export function barNear(layout, row, place, distance) {
  const exact = barAt(layout, row, place);
  if (exact >= 0 || row < 0 || row >= layout.rows) return exact;
  const after = firstEndingAfter(layout.end, layout.rowStart[row], layout.rowStart[row + 1], place);
  if (after < layout.rowStart[row + 1] && layout.start[after] - place <= distance) return after;
  const before = after - 1;
  return before >= layout.rowStart[row] && place - layout.end[before] <= distance ? before : -1;
}

// The deepest row below a node, including bars that are not shown.
export function rowsBelow(nodes, layout, node) {
  if (node === ROOT) return layout.rows;
  let deepest = nodes.depth[node];
  for (let below = node; below < nodes.end[node]; below++) {
    const row = nodes.depth[below] + (layout.hidden[below] > 0 ? 1 : 0);
    if (row > deepest) deepest = row;
  }
  return Math.min(deepest, layout.rows - 1) + 1;
}
