// A flame graph or icicle on a canvas the size of its viewport: data, zoom, pan, and row positions.
import { BAR_HEIGHT, barNear, layoutTree, rowsBelow, widthScale } from './layout.js';
import { element, oncePerFrame } from './dom.js';
import { findFromAddress, pathForAddress, pathOf } from './paths.js';
import { GraphInput } from './graphinput.js';
import { GraphPainter } from './paint.js';
import { nextMatch } from './search.js';
import { ROOT } from './profile.js';

const ANIMATION_MILLISECONDS = 180;
const NARROWEST_VIEW = 1e-9;
// In pixels, of a bar that is easy to see.
const LEAST_FOUND = 60;
const MOST_HISTORY = 50;

// Moves to the next match in the graphs, in the order of the bars. Returns its place and the number of matches, or null.
export function stepMatch(graphs, direction) {
  const found = graphs.flatMap((graph) => graph.matchingNodes().map((node) => ({ graph, node })));
  if (found.length === 0) return null;
  const at = found.findIndex(({ graph, node }) => graph.isFound && graph.cursor === node);
  const next = nextMatch(found.length, at, direction, (place) => found[place].graph.nodes.total[found[place].node]);
  for (const graph of graphs) graph.moveCursor(-1);
  found[next].graph.goTo(found[next].node);
  return { place: next, count: found.length };
}

export class FlameGraph {
  // `events`: onHover(node, x, y), onSelect(node), onCursor(node), onZoom(node). Rows before `firstRow` are not drawn.
  constructor(label, events, firstRow = 0) {
    this.firstRow = firstRow;
    this.events = events;
    this.canvas = element('canvas', {
      class: 'graph-canvas', tabindex: '0', role: 'application', 'aria-roledescription': 'flame graph', 'aria-label': label,
    });
    this.sizer = element('div', { class: 'graph-sizer' }, this.canvas);
    this.element = element('div', { class: 'graph-scroll' }, this.sizer);
    this.orientation = 'icicle';
    this.rootLabel = '';
    this.zoomsOnClick = true;
    this.view = { from: 0, until: 1 };
    this.focus = ROOT;
    this.focusPath = [];
    this.history = [];
    this.hovered = -1;
    this.cursor = -1;
    // Whether the search moved the cursor, which is then shown without the focus.
    this.isFound = false;
    this.selected = -1;
    this.matchesBefore = null;
    this.painter = new GraphPainter(this);
    this.input = new GraphInput(this);
    this.redraw = oncePerFrame(() => this.painter.draw());
    this.element.addEventListener('scroll', () => this.redraw());
    this.canvas.addEventListener('blur', () => this.redraw());
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  // Shows new data; focus, view and scroll position follow the names.
  show(frames, nodes, byShare) {
    const inFocus = this.layout ? this.viewInFocus() : null;
    const cursorPath = this.cursor > 0 ? pathOf(this.frames, this.nodes, this.cursor) : null;
    this.frames = frames;
    this.nodes = nodes;
    this.layout = layoutTree(nodes, widthScale(nodes, byShare));
    this.hovered = -1;
    this.focus = findFromAddress(frames, nodes, this.focusPath);
    this.cursor = cursorPath ? findFromAddress(frames, nodes, cursorPath) : -1;
    this.stopAnimation();
    this.view = this.viewOf(this.focus);
    if (inFocus) {
      const width = this.view.until - this.view.from;
      this.view = this.clampView(this.view.from + inFocus.from * width, this.view.from + inFocus.until * width);
    }
    this.measureRows();
  }

  setColors(colors, theme) {
    this.colors = colors;
    this.theme = theme;
    this.painter.forgetPatterns();
    this.redraw();
  }

  setOrientation(orientation) {
    if (orientation === this.orientation) return;
    this.orientation = orientation;
    this.measureRows();
    this.element.scrollTop = orientation === 'flame' ? this.element.scrollHeight : 0;
  }

  // `matches`: one byte per frame, or null when not searching.
  setMatches(matches) {
    this.matches = matches;
    this.matchesBefore = null;
    this.isFound &&= matches !== null;
    if (matches && this.layout) {
      const before = new Uint32Array(this.layout.bars + 1);
      for (let bar = 0; bar < this.layout.bars; bar++) {
        const node = this.layout.node[bar];
        before[bar + 1] = before[bar] + (node >= 0 ? matches[this.nodes.frame[node]] : 0);
      }
      this.matchesBefore = before;
    }
    this.redraw();
  }

  // The number of the selected function, or -1.
  setSelected(selected) {
    this.selected = selected;
    this.redraw();
  }

  // The zoom path as stored in the URL.
  zoomPath() {
    return this.focusPath;
  }

  setZoomPath(path) {
    this.focusPath = path;
    if (!this.layout) return;
    this.focus = findFromAddress(this.frames, this.nodes, path);
    this.stopAnimation();
    this.view = this.viewOf(this.focus);
    this.measureRows();
  }

  zoomTo(node) {
    if (!this.layout) return;
    if (node !== this.focus) {
      this.history.push(this.focusPath);
      if (this.history.length > MOST_HISTORY) this.history.shift();
    }
    this.moveTo(node, pathForAddress(this.frames, this.nodes, node));
  }

  // Returns to the focus after a pan, otherwise to the previous focus.
  zoomBack() {
    const view = this.viewOf(this.focus);
    if (!this.animation && (view.from !== this.view.from || view.until !== this.view.until)) {
      this.animateTo(view);
      return;
    }
    const path = this.history.pop() ?? [];
    this.moveTo(findFromAddress(this.frames, this.nodes, path), path);
  }

  moveTo(node, path) {
    this.focus = node;
    this.focusPath = path;
    this.measureRows();
    this.animateTo(this.viewOf(node));
    this.revealRow(this.nodes.depth[node]);
    this.events.onZoom?.(node);
  }

  get isZoomed() {
    return this.focus !== ROOT || this.view.from > 0 || this.view.until < 1;
  }

  // The heaviest node of a function, as a zoom target.
  heaviestNode(called) {
    let heaviest = -1;
    for (let node = 1; node < this.nodes.count; node++) {
      if (this.frames.function[this.nodes.frame[node]] !== called) continue;
      if (heaviest < 0 || this.nodes.total[node] > this.nodes.total[heaviest]) heaviest = node;
    }
    return heaviest;
  }

  viewOf(node) {
    const bar = this.layout.barOf[node];
    const from = this.layout.start[bar];
    const until = this.layout.end[bar];
    return until - from > NARROWEST_VIEW ? { from, until } : this.clampView(from, from + NARROWEST_VIEW);
  }

  viewInFocus() {
    const focus = this.viewOf(this.focus);
    const width = focus.until - focus.from;
    const target = this.animation?.target ?? this.view;
    return { from: (target.from - focus.from) / width, until: (target.until - focus.from) / width };
  }

  clampView(from, until) {
    const width = Math.min(1, Math.max(NARROWEST_VIEW, until - from));
    const start = Math.min(1 - width, Math.max(0, from));
    return { from: start, until: start + width };
  }

  stopAnimation() {
    if (this.animation) cancelAnimationFrame(this.animation.request);
    this.animation = null;
  }

  animateTo(target) {
    this.stopAnimation();
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.view = target;
      this.redraw();
      return;
    }
    const origin = this.view;
    const began = performance.now();
    const step = (now) => {
      const progress = Math.min(1, Math.max(0, (now - began) / ANIMATION_MILLISECONDS));
      const eased = 1 - (1 - progress) ** 3;
      this.view = progress === 1 ? target : {
        from: origin.from + (target.from - origin.from) * eased,
        until: origin.until + (target.until - origin.until) * eased,
      };
      this.animation = progress === 1 ? null : { target, request: requestAnimationFrame(step) };
      this.painter.draw();
    };
    this.animation = { target, request: requestAnimationFrame(step) };
  }

  // Limits scrolling to the rows of the focus, however deep the rest of the tree is.
  measureRows() {
    if (!this.layout) return;
    const fromBottom = this.element.scrollHeight - this.element.scrollTop;
    this.contentHeight = (rowsBelow(this.nodes, this.layout, this.focus) - this.firstRow) * BAR_HEIGHT + 2;
    this.sizer.style.height = `${this.contentHeight}px`;
    if (this.orientation === 'flame') this.element.scrollTop = this.element.scrollHeight - fromBottom;
    this.redraw();
  }

  resize() {
    const width = this.element.clientWidth;
    const height = this.element.clientHeight;
    if (width === 0 || height === 0) return;
    const ratio = globalThis.devicePixelRatio || 1;
    this.width = width;
    this.height = height;
    this.ratio = ratio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    if (this.orientation === 'flame') this.element.scrollTop = this.element.scrollHeight;
    this.painter.draw();
  }

  // The position of row 0 and the direction of the rows.
  rowTop(row) {
    const scroll = this.element.scrollTop;
    if (this.orientation === 'icicle') return (row - this.firstRow) * BAR_HEIGHT - scroll;
    return Math.max(this.height, this.contentHeight) - (row - this.firstRow + 1) * BAR_HEIGHT - scroll;
  }

  rowAtY(y) {
    const scroll = this.element.scrollTop;
    const distance = this.orientation === 'icicle' ? y + scroll : Math.max(this.height, this.contentHeight) - y - scroll;
    return Math.floor(distance / BAR_HEIGHT) + this.firstRow;
  }

  revealRow(row) {
    if (!this.height) return;
    const margin = Math.min(2 * BAR_HEIGHT, this.height / 4);
    const top = this.rowTop(row);
    if (top < margin) this.element.scrollTop += top - margin;
    else if (top + BAR_HEIGHT > this.height - margin) this.element.scrollTop += top + BAR_HEIGHT - this.height + margin;
    this.redraw();
  }

  nodeAt(x, y) {
    if (!this.layout) return -1;
    const place = this.view.from + (x / this.width) * (this.view.until - this.view.from);
    const pixel = (this.view.until - this.view.from) / this.width;
    const row = this.rowAtY(y);
    const bar = row < this.firstRow ? -1 : barNear(this.layout, row, place, pixel);
    return bar < 0 ? -1 : this.layout.node[bar];
  }

  visibleRows() {
    const rows = [this.rowAtY(0), this.rowAtY(this.height - 1)];
    return [Math.max(this.firstRow, Math.min(...rows)), Math.min(this.layout.rows - 1, Math.max(...rows))];
  }

  hover(node, x = 0, y = 0) {
    const shown = Math.max(node, -1);
    if (shown !== this.hovered) {
      this.hovered = shown;
      this.redraw();
    }
    this.events.onHover?.(node === -1 ? null : node, x, y);
  }

  zoomAt(x, factor) {
    this.stopAnimation();
    const { from, until } = this.view;
    const at = from + (x / this.width) * (until - from);
    const width = Math.min(1, (until - from) * factor);
    this.view = this.clampView(at - (x / this.width) * width, at + (1 - x / this.width) * width);
    this.redraw();
  }

  pan(pixels) {
    this.stopAnimation();
    const width = this.view.until - this.view.from;
    const from = this.view.from + (pixels / this.width) * width;
    this.view = this.clampView(from, from + width);
    this.redraw();
  }

  // A click or Enter. Zooms first: the selection belongs to the new history entry of the browser.
  choose(node) {
    this.moveCursor(node);
    if (this.zoomsOnClick) this.zoomTo(node);
    this.events.onSelect?.(node);
  }

  moveCursor(node, isFound = false) {
    this.cursor = node;
    this.isFound = isFound;
    this.redraw();
  }

  matchingNodes() {
    const found = [];
    for (let node = 1; this.matches && node < this.nodes.count; node++) if (this.matches[this.nodes.frame[node]]) found.push(node);
    return found;
  }

  // Makes a match visible: zooms to the outermost caller below which it is wide enough.
  goTo(node) {
    const { start, end, barOf } = this.layout;
    const bar = barOf[node];
    const least = (LEAST_FOUND / this.width) * (this.view.until - this.view.from);
    const isVisible = start[bar] >= this.view.from && end[bar] <= this.view.until && end[bar] - start[bar] >= least;
    if (this.zoomsOnClick && !isVisible) {
      const isWide = (caller) => (end[bar] - start[bar]) * this.width >= LEAST_FOUND * (end[barOf[caller]] - start[barOf[caller]]);
      let target = node;
      while (target !== ROOT && isWide(this.nodes.parent[target])) target = this.nodes.parent[target];
      this.zoomTo(target);
    }
    this.moveCursor(node, true);
    this.revealRow(this.nodes.depth[node]);
    this.events.onCursor?.(node);
  }
}
