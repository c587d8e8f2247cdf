// Samples over time by one label, as stacked columns; a drag selects a range.
import { abbreviate, formatClock, formatValue, printable } from './format.js';
import { button, element, oncePerFrame, swatch } from './dom.js';
import { currentTheme, seriesColor } from './colors.js';

const AXIS_HEIGHT = 16;
const SCALE_WIDTH = 58;
const DRAG_LEAST = 4;
const LEAST_WINDOW_MILLISECONDS = 60000;
const USUAL_WINDOW_MILLISECONDS = 60 * 60000;
const TICK_SECONDS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];
const AXIS_FONT = '11px system-ui, sans-serif';

// The highest sum of a step.
export function highestStep(timeline) {
  const steps = stepsOf(timeline);
  let highest = 0;
  for (let step = 0; step < steps; step++) {
    let sum = timeline.others?.[step] ?? 0;
    for (const { points } of timeline.series) sum += points[step] ?? 0;
    highest = Math.max(highest, sum);
  }
  return highest;
}

function stepsOf(timeline) {
  let steps = timeline.others?.length ?? 0;
  for (const { points } of timeline.series) steps = Math.max(steps, points.length);
  return steps;
}

// The next round number at or above the given one.
const ROUND = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];

export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ROUND.find((factor) => value <= factor * power * 1.0001) * power;
}

export function tickStep(from, until, most) {
  const seconds = (until - from) / 1000;
  return (TICK_SECONDS.find((step) => seconds / step <= most) ?? 86400 * Math.ceil(seconds / 86400 / most)) * 1000;
}

// From the oldest sample on, and not further back than needed. `last`: the length of the live range; `fixed`: a chosen range, or null.
export function visibleWindow({ now, oldest, last, fixed, base }) {
  const reach = Math.max(oldest ?? now, now - Math.max(USUAL_WINDOW_MILLISECONDS, last));
  const starts = [reach, now - LEAST_WINDOW_MILLISECONDS];
  if (fixed) starts.push(fixed.from);
  if (base && base.from >= (oldest ?? now)) starts.push(base.from);
  return { from: Math.min(...starts), until: now };
}

// Moved by a step, or as much longer, within the window and at least as long as `least`.
export function movedRange(range, window, step, least, resizes) {
  const within = (value, low, high) => Math.max(low, Math.min(value, high));
  const from = within(range.from, window.from, window.until - least);
  const until = within(range.until, from + least, window.until);
  if (resizes) return { from, until: within(until + step, from + least, window.until) };
  const shift = within(step, window.from - from, window.until - until);
  return { from: from + shift, until: until + shift };
}

export class Timeline {
  // `events`: onRange(from, until, isBase), onBaseEnd() when arrow keys no longer move the baseline, onSeries(label, value).
  constructor(events) {
    this.events = events;
    this.canvas = element('canvas', { tabindex: '0', role: 'group', 'aria-label': 'Timeline. Arrow keys move the range, with Shift they change its length. A drag selects a range.' });
    this.frame = element('div', { class: 'timeline-canvas' }, this.canvas);
    this.legend = element('div', { class: 'timeline-legend', 'aria-label': 'Series' });
    this.readout = element('div', { class: 'timeline-readout', 'aria-live': 'off' });
    this.element = element('div', { class: 'timeline' }, this.frame, this.legend, this.readout);
    this.context = this.canvas.getContext('2d', { alpha: false });
    this.slots = new Map();
    this.dragsBase = false;
    this.draw = oncePerFrame(() => this.render());
    new ResizeObserver(() => this.resize()).observe(this.frame);
    this.canvas.addEventListener('pointerdown', (event) => this.onDown(event));
    this.canvas.addEventListener('pointermove', (event) => this.onMove(event));
    this.canvas.addEventListener('pointerup', (event) => this.onUp(event));
    this.canvas.addEventListener('pointercancel', () => this.endDrag());
    this.canvas.addEventListener('pointerleave', () => this.hoverAt(null));
    this.canvas.addEventListener('keydown', (event) => this.onKey(event));
    this.canvas.addEventListener('blur', () => this.endBase());
  }

  // `window`: the visible range; `range` and `base`: the marked {from, until}, or null.
  show(timeline, by, unit, window, theme) {
    Object.assign(this, { timeline, by, unit, window, theme });
    for (const { value } of timeline.series) if (!this.slots.has(value)) this.slots.set(value, this.freeSlot());
    // In order of first appearance, so that new data does not shuffle them.
    const order = [...this.slots.keys()];
    timeline.series.sort((left, right) => order.indexOf(left.value) - order.indexOf(right.value));
    this.renderLegend();
    this.draw();
  }

  mark(range, base) {
    this.range = range;
    this.base = base;
    this.draw();
  }

  setTheme(theme) {
    this.theme = theme;
    if (this.timeline) this.renderLegend();
    this.draw();
  }

  // The color used by the fewest visible series, so that each series keeps its color.
  freeSlot() {
    const used = new Array(10).fill(0);
    for (const { value } of this.timeline.series) if (this.slots.has(value)) used[this.slots.get(value)] += 1;
    return used.indexOf(Math.min(...used));
  }

  forgetSeries() {
    this.slots.clear();
  }

  renderLegend() {
    const items = this.timeline.series.map(({ value, points }) => {
      const total = points.reduce((sum, point) => sum + point, 0);
      const item = button('', () => this.events.onSeries(this.by, value), {
        class: 'legend-item', title: `${this.by}="${abbreviate(printable(value), 200)}": ${formatValue(total, this.unit)}. Click to filter.`,
      });
      item.append(swatch(seriesColor(this.theme, this.slots.get(value))), abbreviate(printable(value), 28) || '(none)');
      return item;
    });
    if (this.timeline.others?.some((point) => point > 0)) items.push(element('span', { class: 'legend-item' }, swatch(this.theme.hatch), 'others'));
    const same = items.length === this.legend.children.length && items.every((item, index) => item.isEqualNode(this.legend.children[index]));
    if (!same) this.legend.replaceChildren(...items);
  }

  resize() {
    const ratio = globalThis.devicePixelRatio || 1;
    this.width = this.frame.clientWidth;
    this.height = this.frame.clientHeight;
    this.ratio = ratio;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.render();
  }

  xOf(time) {
    return SCALE_WIDTH + ((time - this.window.from) / (this.window.until - this.window.from)) * (this.width - SCALE_WIDTH);
  }

  timeAt(x) {
    const share = Math.min(1, Math.max(0, (x - SCALE_WIDTH) / (this.width - SCALE_WIDTH)));
    return this.window.from + share * (this.window.until - this.window.from);
  }

  render() {
    if (!this.width) return;
    const { context } = this;
    const theme = this.theme ?? currentTheme();
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = theme.background;
    context.fillRect(0, 0, this.width, this.height);
    if (!this.timeline) return;
    this.highest = this.roundHighest();
    this.drawColumns();
    const dragged = this.drag?.moved ? this.draggedRange() : null;
    const range = dragged ?? this.range;
    this.paleAround([this.base, range].filter(Boolean));
    this.drawAxes();
    this.drawMark(this.base, theme.base, 'baseline');
    this.drawMark(range, dragged && this.drag.isBase ? theme.base : theme.selection, '');
  }

  draggedRange() {
    const times = [this.timeAt(this.drag.from), this.timeAt(this.drag.to)];
    return { from: Math.min(...times), until: Math.max(...times) };
  }

  // Pales what is outside of the ranges: inside, the colors stay those of the legend.
  paleAround(ranges) {
    const { context } = this;
    if (ranges.length === 0) return;
    context.fillStyle = (this.theme ?? currentTheme()).background;
    context.globalAlpha = 0.6;
    let end = SCALE_WIDTH;
    for (const { from, until } of [...ranges.sort((left, right) => left.from - right.from), { from: Infinity, until: 0 }]) {
      const start = Math.min(this.width, this.xOf(from));
      if (start > end) context.fillRect(end, 0, start - end, this.height);
      end = Math.max(end, this.xOf(until));
    }
    context.globalAlpha = 1;
  }

  // CPU time per wall-clock time is a number of CPUs, easier to read than nanoseconds per step.
  get perCore() {
    return this.unit === 'nanoseconds' ? this.timeline.step * 1e6 : 0;
  }

  roundHighest() {
    const highest = highestStep(this.timeline);
    return this.perCore ? roundUp(highest / this.perCore) * this.perCore : roundUp(highest);
  }

  inWords(value) {
    if (!this.perCore) return formatValue(value, this.unit);
    const cores = value / this.perCore;
    return `${cores >= 10 ? cores.toFixed(1) : Number(cores.toPrecision(2))} CPU`;
  }

  drawColumns() {
    const { context, timeline, theme } = this;
    const bottom = this.height - AXIS_HEIGHT;
    const steps = stepsOf(timeline);
    const bases = new Float64Array(steps);
    const layers = timeline.series.map(({ value, points }) => [points, seriesColor(theme, this.slots.get(value))]);
    if (timeline.others) layers.push([timeline.others, theme.hatch]);
    context.save();
    context.beginPath();
    context.rect(SCALE_WIDTH, 0, this.width - SCALE_WIDTH, this.height);
    context.clip();
    for (const [points, color] of layers) {
      context.fillStyle = color;
      for (let step = 0; step < steps; step++) {
        const value = points[step] ?? 0;
        if (value <= 0) continue;
        const time = timeline.start + step * timeline.step;
        const left = Math.round(this.xOf(time) * this.ratio) / this.ratio;
        const right = Math.round(this.xOf(time + timeline.step) * this.ratio) / this.ratio;
        const from = bottom - (bases[step] / this.highest) * (bottom - 4);
        bases[step] += value;
        const to = bottom - (bases[step] / this.highest) * (bottom - 4);
        context.fillRect(left, to, Math.max(1 / this.ratio, right - left - (right - left > 4 ? 1 : 0)), from - to);
      }
    }
    context.restore();
  }

  drawAxes() {
    const { context, theme, window } = this;
    const bottom = this.height - AXIS_HEIGHT;
    context.font = AXIS_FONT;
    context.fillStyle = theme.line;
    context.fillRect(SCALE_WIDTH, bottom, this.width - SCALE_WIDTH, 1);
    context.fillRect(SCALE_WIDTH, 4, this.width - SCALE_WIDTH, 1);
    context.fillStyle = theme.dim;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.fillText(this.inWords(this.highest), SCALE_WIDTH - 6, 8);
    context.fillText('0', SCALE_WIDTH - 6, bottom - 2);
    context.textAlign = 'center';
    const tick = tickStep(window.from, window.until, Math.max(2, (this.width - SCALE_WIDTH) / 90));
    const zone = new Date(window.from).getTimezoneOffset() * 60000;
    for (let time = Math.ceil((window.from - zone) / tick) * tick + zone; time < window.until; time += tick) {
      const x = this.xOf(time);
      if (x < SCALE_WIDTH + 24 || x > this.width - 24) continue;
      context.fillStyle = theme.line;
      context.fillRect(Math.round(x), bottom, 1, 3);
      context.fillStyle = theme.dim;
      context.fillText(formatClock(time, tick < 60000), x, this.height - 6);
    }
    context.textAlign = 'left';
  }

  drawMark(range, color, label) {
    if (!range) return;
    const { context } = this;
    const bottom = this.height - AXIS_HEIGHT;
    const left = Math.max(SCALE_WIDTH, this.xOf(range.from));
    const right = Math.min(this.width, this.xOf(range.until));
    if (right <= left) return;
    context.fillStyle = color;
    context.fillRect(left, 0, 1.5, bottom);
    context.fillRect(right - 1.5, 0, 1.5, bottom);
    context.fillRect(left, bottom, right - left, 2);
    if (label && right - left > 50) {
      context.font = AXIS_FONT;
      context.fillText(label, left + 5, 12);
    }
  }

  hoverAt(x) {
    if (x === null || !this.timeline) {
      this.readout.textContent = '';
      return;
    }
    const step = Math.floor((this.timeAt(x) - this.timeline.start) / this.timeline.step);
    if (step < 0 || step >= stepsOf(this.timeline)) {
      this.readout.textContent = '';
      return;
    }
    const parts = this.timeline.series.map(({ value, points }) => [value, points[step] ?? 0]).filter(([, value]) => value > 0);
    const total = parts.reduce((sum, [, value]) => sum + value, this.timeline.others?.[step] ?? 0);
    const first = parts.sort((left, right) => right[1] - left[1]).slice(0, 4).map(([name, value]) => `${abbreviate(printable(name), 24)} ${this.inWords(value)}`);
    this.readout.textContent = [formatClock(this.timeline.start + step * this.timeline.step), this.inWords(total), ...first].join(' · ');
  }

  onDown(event) {
    if (event.button !== 0 || !this.timeline) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { from: event.offsetX, to: event.offsetX, moved: false, isBase: event.shiftKey || this.dragsBase };
  }

  onMove(event) {
    if (!this.timeline) return;
    this.hoverAt(event.offsetX);
    if (!this.drag) return;
    this.drag.to = event.offsetX;
    this.drag.moved ||= Math.abs(this.drag.to - this.drag.from) >= DRAG_LEAST;
    this.draw();
  }

  onUp() {
    const { drag } = this;
    const dragged = drag?.moved ? this.draggedRange() : null;
    this.endDrag();
    if (!dragged) return;
    const { start, step } = this.timeline;
    // Whole steps only: the timeline cannot resolve a part of one.
    const from = start + Math.floor((dragged.from - start) / step) * step;
    const until = Math.max(from + step, start + Math.ceil((dragged.until - start) / step) * step);
    this.dragsBase = false;
    this.events.onRange(Math.round(from), Math.round(until), drag.isBase);
  }

  // The next drag chooses the baseline; arrow keys move it until the focus leaves, or until Enter or Escape.
  chooseBase() {
    this.canvas.focus();
    this.dragsBase = true;
  }

  endBase() {
    if (!this.dragsBase) return;
    this.dragsBase = false;
    this.events.onBaseEnd();
  }

  endDrag() {
    this.drag = null;
    this.draw();
  }

  onKey(event) {
    if (this.dragsBase && (event.key === 'Enter' || event.key === 'Escape')) {
      event.preventDefault();
      this.endBase();
      return;
    }
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const marked = this.dragsBase ? this.base ?? this.range : this.range;
    if (!direction || !marked || !this.timeline) return;
    event.preventDefault();
    const step = Math.max(this.timeline.step, Math.round((this.window.until - this.window.from) / 60));
    const { from, until } = movedRange(marked, this.window, direction * step, this.timeline.step, event.shiftKey);
    this.events.onRange(Math.round(from), Math.round(until), this.dragsBase);
  }
}
