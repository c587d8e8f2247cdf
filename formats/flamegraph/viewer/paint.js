// Paints a flame graph: the visible rows, their labels, and outlines.
import { BAR_HEIGHT, visibleBars } from './layout.js';
import { currentTheme, kindStripe } from './colors.js';
import { element } from './dom.js';
import { shortenName } from './format.js';
import { ROOT } from './profile.js';

const LABEL_FONT = '12px ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace';
const PADDING = 5;
const STRIPE = 3;
const LEAST_LABEL = 20;
const LEAST_CHARACTERS = 4;
const LEAST_STRIPE = 9;
// A run of frames that covers a smaller fraction of its pixels is not drawn.
const LEAST_COVER = 0.25;
const MOST_LABEL = 500;

export class GraphPainter {
  constructor(graph) {
    this.graph = graph;
    this.context = graph.canvas.getContext('2d', { alpha: false });
    this.hatchPattern = null;
  }

  // The theme has changed.
  forgetPatterns() {
    this.hatchPattern = null;
  }

  draw() {
    if (!this.graph.width) return;
    if (!this.graph.layout || !this.graph.colors) {
      // An opaque canvas is black until it is painted.
      this.clear(currentTheme());
      return;
    }
    const began = performance.now();
    if (this.graph.ratio !== (globalThis.devicePixelRatio || 1)) {
      this.graph.resize();
      return;
    }
    const { context } = this;
    this.clear(this.graph.theme);
    context.font = LABEL_FONT;
    context.textBaseline = 'middle';
    this.glyph = context.measureText('0').width;
    this.drawn = 0;
    const [first, last] = this.graph.visibleRows();
    for (let row = first; row <= last; row++) this.drawRow(row);
    this.drawOutlines();
    // For tests and measurements.
    this.graph.canvas.dataset.bars = this.drawn;
    this.graph.canvas.dataset.focus = this.graph.nodes.depth[this.graph.focus];
    this.graph.canvas.dataset.milliseconds = (performance.now() - began).toFixed(2);
  }

  clear(theme) {
    this.context.setTransform(this.graph.ratio, 0, 0, this.graph.ratio, 0, 0);
    this.context.fillStyle = theme.background;
    this.context.fillRect(0, 0, this.graph.width, this.graph.height);
  }

  drawRow(row) {
    const { context } = this;
    const { layout, nodes, theme } = this.graph;
    const { from, until } = this.graph.view;
    const scale = this.graph.width / (until - from);
    const top = this.graph.rowTop(row);
    const paler = row < nodes.depth[this.graph.focus];
    const labels = [];
    const run = { left: 0, right: -1, style: '' };
    let style = '';
    const fillWith = (fill) => {
      if (fill !== style) context.fillStyle = style = fill;
    };
    const flushRun = () => {
      if (run.right > run.left) {
        fillWith(run.style);
        context.fillRect(run.left, top, run.right - run.left, BAR_HEIGHT - 1);
        this.drawn += 1;
      }
      run.right = -1;
    };
    context.globalAlpha = paler ? 0.55 : 1;
    visibleBars(layout, row, from, until, 1 / scale, (bar) => {
      flushRun();
      const left = this.snap(Math.max(-1, (layout.start[bar] - from) * scale));
      const right = this.snap(Math.min(this.graph.width + 1, (layout.end[bar] - from) * scale));
      const node = layout.node[bar];
      const gap = right - left > 3 ? 1 / this.graph.ratio : 0;
      fillWith(this.fillOf(node));
      context.fillRect(left, top, right - left - gap, BAR_HEIGHT - 1);
      this.drawn += 1;
      if (node > 0 && !this.graph.matches && right - left >= LEAST_STRIPE) this.drawStripe(node, left, top, fillWith);
      if (right - left >= LEAST_LABEL) labels.push(node, left, right);
    }, (first, end) => {
      const matched = this.graph.matchesBefore && this.graph.matchesBefore[end] > this.graph.matchesBefore[first];
      const covered = (layout.end[end - 1] - layout.start[first]) * scale;
      if (covered < LEAST_COVER && !matched) return;
      const left = Math.floor((layout.start[first] - from) * scale);
      const fill = matched ? theme.match : theme.grey;
      if (run.right >= left && run.style === fill) {
        run.right = left + 1;
      } else {
        flushRun();
        Object.assign(run, { left, right: left + 1, style: fill });
      }
    });
    flushRun();
    context.globalAlpha = 1;
    this.drawLabels(labels, top);
  }

  snap(x) {
    return Math.round(x * this.graph.ratio) / this.graph.ratio;
  }

  fillOf(node) {
    if (node < 0) return this.hatch();
    if (this.graph.matches && node !== ROOT) return this.graph.matches[this.graph.nodes.frame[node]] ? this.graph.theme.match : this.graph.theme.grey;
    return node === ROOT ? this.graph.theme.root : this.graph.colors.styles[this.graph.colors.ofNode(this.graph.nodes, node)];
  }

  drawStripe(node, left, top, fillWith) {
    const stripe = kindStripe(this.graph.theme, this.graph.frames.kindOf(this.graph.nodes.frame[node]));
    if (!stripe) return;
    fillWith(stripe);
    this.context.fillRect(left, top, STRIPE, BAR_HEIGHT - 1);
  }

  // The fill for what is not shown: not the color of any function.
  hatch() {
    if (this.hatchPattern) return this.hatchPattern;
    const tile = element('canvas', { width: 6, height: 6 });
    const context = tile.getContext('2d');
    context.fillStyle = this.graph.theme.background;
    context.fillRect(0, 0, 6, 6);
    context.strokeStyle = this.graph.theme.hatch;
    context.beginPath();
    for (const offset of [-6, 0, 6]) {
      context.moveTo(offset - 1, 7);
      context.lineTo(offset + 7, -1);
    }
    context.stroke();
    this.hatchPattern = this.context.createPattern(tile, 'repeat');
    return this.hatchPattern;
  }

  drawLabels(labels, top) {
    const { context } = this;
    for (let index = 0; index < labels.length; index += 3) {
      const node = labels[index];
      const left = Math.max(0, labels[index + 1]) + PADDING;
      const width = Math.min(this.graph.width, labels[index + 2]) - left - PADDING + 2;
      const name = this.labelOf(node).slice(0, MOST_LABEL);
      const characters = Math.floor(width / this.glyph);
      if (characters < Math.min(name.length, LEAST_CHARACTERS)) continue;
      const text = shortenName(name, characters);
      const dimmed = node < 0 || (this.graph.matches && !this.graph.matches[this.graph.nodes.frame[node]]);
      context.fillStyle = dimmed ? this.graph.theme.dim : this.graph.theme.text;
      // Non-ASCII characters may be wider than the measured glyph.
      context.fillText(text, left, top + BAR_HEIGHT / 2, Math.max(1, width));
    }
  }

  labelOf(node) {
    if (node < 0) return 'not shown';
    if (node === ROOT) return this.graph.rootLabel;
    return this.graph.frames.nameOf(this.graph.nodes.frame[node]);
  }

  drawOutlines() {
    const { context } = this;
    const { theme, layout } = this.graph;
    context.lineWidth = 1.5;
    if (this.graph.selected >= 0) {
      context.strokeStyle = theme.selection;
      const [first, last] = this.graph.visibleRows();
      const pixel = (this.graph.view.until - this.graph.view.from) / this.graph.width;
      for (let row = first; row <= last; row++) {
        visibleBars(layout, row, this.graph.view.from, this.graph.view.until, pixel * 3, (bar) => {
          const node = layout.node[bar];
          if (node > 0 && this.graph.frames.function[this.graph.nodes.frame[node]] === this.graph.selected) this.strokeBar(bar, row);
        }, () => {});
      }
    }
    context.strokeStyle = theme.outline;
    if (this.graph.hovered >= 0) this.strokeBar(layout.barOf[this.graph.hovered], this.graph.nodes.depth[this.graph.hovered]);
    if (this.graph.cursor >= 0 && (this.graph.isFound || document.activeElement === this.graph.canvas)) {
      context.lineWidth = 2;
      this.strokeBar(layout.barOf[this.graph.cursor], this.graph.nodes.depth[this.graph.cursor]);
    }
  }

  strokeBar(bar, row) {
    const scale = this.graph.width / (this.graph.view.until - this.graph.view.from);
    const left = Math.max(-4, (this.graph.layout.start[bar] - this.graph.view.from) * scale);
    const right = Math.min(this.graph.width + 4, (this.graph.layout.end[bar] - this.graph.view.from) * scale);
    if (right < 0 || left > this.graph.width) return;
    this.context.strokeRect(left + 0.75, this.graph.rowTop(row) + 0.75, Math.max(1, right - left - 2), BAR_HEIGHT - 2.5);
  }
}
