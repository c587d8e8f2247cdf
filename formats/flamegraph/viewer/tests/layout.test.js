import assert from 'node:assert/strict';
import { test } from 'node:test';
import { barAt, barNear, firstEndingAfter, layoutTree, rowsBelow, visibleBars, widthScale } from '../layout.js';
import { decodeProfile, ROOT } from '../profile.js';
import { documentOf, randomDocument, randomNumbers } from './support.js';

function layoutOf(document, byShare = true) {
  const { nodes, frames } = decodeProfile(document);
  return { nodes, frames, layout: layoutTree(nodes, widthScale(nodes, byShare)) };
}

test('bars have the width of their share and start with their parent', () => {
  const { nodes, layout } = layoutOf(documentOf([[['main', 'a'], 25], [['main', 'b'], 50], [['zzz'], 25]]));
  const place = (node) => [layout.start[layout.barOf[node]], layout.end[layout.barOf[node]]];
  assert.deepEqual(place(ROOT), [0, 1]);
  assert.deepEqual([1, 2, 3, 4].map(place), [[0, 0.75], [0, 0.25], [0.25, 0.75], [0.75, 1]]);
  assert.equal(rowsBelow(nodes, layout, ROOT), 3);
  assert.equal(rowsBelow(nodes, layout, 4), 2);
});

test('nodes not shown become a bar after the children', () => {
  const document = documentOf([[['main', 'a'], 25], [['main', 'b'], 25]]);
  document.total = 100;
  document.nodes.total[0] = 75;
  const { layout } = layoutOf(document);
  const row = (at) => Array.from(layout.node.subarray(layout.rowStart[at], layout.rowStart[at + 1]));
  assert.deepEqual(row(1), [1, -2 - ROOT]);
  assert.deepEqual(row(2), [2, 3, -2 - 1]);
  assert.equal(layout.end[layout.rowStart[3] - 1], 0.75);
});

test('a comparison by share gives each side half of the width', () => {
  const { layout } = layoutOf(documentOf([[['gone'], 0, 1000], [['new'], 10, 0]]));
  assert.deepEqual([...layout.end.subarray(1)], [0.5, 1]);
  const absolute = layoutOf(documentOf([[['gone'], 0, 30], [['new'], 10, 0]]), false);
  assert.deepEqual([...absolute.layout.end.subarray(1)], [0.75, 1]);
});

test('rows are sorted and lie within their parents', () => {
  const { nodes, layout } = layoutOf(randomDocument(20_000, 3));
  for (let row = 0; row < layout.rows; row++) {
    for (let bar = layout.rowStart[row]; bar < layout.rowStart[row + 1]; bar++) {
      assert.ok(layout.start[bar] <= layout.end[bar]);
      if (bar > layout.rowStart[row]) assert.ok(layout.end[bar - 1] <= layout.start[bar]);
    }
  }
  for (let node = 1; node < nodes.count; node++) {
    const parent = layout.barOf[nodes.parent[node]];
    assert.ok(layout.start[parent] <= layout.start[layout.barOf[node]] && layout.end[layout.barOf[node]] <= layout.end[parent]);
  }
});

test('culling yields exactly the visible bars, in at most two steps per pixel', () => {
  const { layout } = layoutOf(randomDocument(100_000, 5));
  const random = randomNumbers(9);
  const width = 300;
  for (let round = 0; round < 60; round++) {
    const row = Math.floor(random() * layout.rows);
    const from = round === 0 ? 0 : random() * 0.9;
    const until = round === 0 ? 1 : from + random() * (1 - from) * (round % 3 === 0 ? 0.01 : 1);
    const pixel = (until - from) / width;
    const seen = new Set();
    let steps = 0;
    visibleBars(layout, row, from, until, pixel, (bar) => {
      steps += 1;
      seen.add(bar);
      assert.ok(layout.end[bar] - layout.start[bar] >= pixel);
    }, (first, last) => {
      steps += 1;
      assert.ok(last > first);
      assert.ok(layout.end[last - 1] - layout.start[first] <= 2 * pixel);
      for (let bar = first; bar < last; bar++) seen.add(bar);
    });
    assert.ok(steps <= 2 * width + 2, `${steps} steps`);
    for (let bar = layout.rowStart[row]; bar < layout.rowStart[row + 1]; bar++) {
      const isVisible = layout.end[bar] > from && layout.start[bar] < until;
      if (isVisible && layout.start[bar] < until - pixel) assert.ok(seen.has(bar), `bar ${bar} of row ${row}`);
      if (!isVisible && (layout.end[bar] < from || layout.start[bar] > until + pixel)) assert.ok(!seen.has(bar));
    }
  }
});

test('a position maps to its bar', () => {
  const { layout } = layoutOf(documentOf([[['main', 'a'], 25], [['main', 'c'], 25], [['zzz'], 50]]));
  assert.equal(layout.node[barAt(layout, 1, 0.1)], 1);
  assert.equal(layout.node[barAt(layout, 1, 0.5)], 4);
  assert.equal(barAt(layout, 2, 0.7), -1);
  assert.equal(barAt(layout, 9, 0.1), -1);
  assert.equal(barAt(layout, -1, 0.1), -1);
  assert.equal(layout.node[barNear(layout, 2, 0.505, 0.01)], 3);
  assert.equal(barNear(layout, 2, 0.6, 0.01), -1);
});

test('bisection agrees with a scan', () => {
  const ends = Float64Array.from([1, 2, 2, 5, 9]);
  for (const place of [0, 1, 1.5, 2, 4.9, 5, 9, 10]) {
    const scanned = ends.findIndex((end) => end > place);
    assert.equal(firstEndingAfter(ends, 0, ends.length, place), scanned < 0 ? ends.length : scanned);
  }
});

test('a million nodes are laid out and culled in bounded time', () => {
  const { layout } = layoutOf(randomDocument(1_000_000, 7));
  let bars = 0;
  for (let row = 0; row < Math.min(layout.rows, 50); row++) {
    visibleBars(layout, row, 0, 1, 1 / 1280, () => { bars += 1; }, () => { bars += 1; });
  }
  assert.ok(bars <= 50 * 2 * 1281, `${bars} rectangles`);
});
