// Mouse, wheel, touch and keyboard input of a flame graph.
import { ROOT } from './profile.js';

const WHEEL_LINE = 20;
const DRAG_THRESHOLD = 4;

export class GraphInput {
  constructor(graph) {
    this.graph = graph;
    this.drag = null;
    const { canvas } = graph;
    canvas.addEventListener('wheel', (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.onPointerDown(event));
    canvas.addEventListener('pointermove', (event) => this.onPointerMove(event));
    canvas.addEventListener('pointerup', (event) => this.onPointerUp(event));
    canvas.addEventListener('pointercancel', () => { this.drag = null; });
    canvas.addEventListener('pointerleave', () => graph.hover(-1));
    canvas.addEventListener('keydown', (event) => this.onKey(event));
  }

  onWheel(event) {
    if (!this.graph.layout) return;
    const unit = event.deltaMode === 1 ? WHEEL_LINE : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.graph.zoomAt(event.offsetX, Math.exp(Math.max(-1, Math.min(1, event.deltaY * unit * 0.004))));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.graph.pan((event.deltaX || event.deltaY) * unit);
    }
  }

  onPointerDown(event) {
    if (event.button !== 0) return;
    this.drag = { x: event.clientX, y: event.clientY, lastX: event.clientX, lastY: event.clientY, moved: false };
  }

  onPointerMove(event) {
    // The button may have been released outside the window.
    if (event.buttons === 0) this.drag = null;
    const { drag } = this;
    if (!drag) {
      if (event.pointerType !== 'touch') this.graph.hover(this.graph.nodeAt(event.offsetX, event.offsetY), event.clientX, event.clientY);
      return;
    }
    if (!drag.moved && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < DRAG_THRESHOLD) return;
    if (!drag.moved) {
      drag.moved = true;
      this.graph.canvas.setPointerCapture(event.pointerId);
      this.graph.hover(-1);
    }
    this.graph.pan(drag.lastX - event.clientX);
    if (event.pointerType !== 'touch') this.graph.element.scrollTop += drag.lastY - event.clientY;
    drag.lastX = event.clientX;
    drag.lastY = event.clientY;
  }

  onPointerUp(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag || drag.moved) return;
    const node = this.graph.nodeAt(event.offsetX, event.offsetY);
    if (node < 0) return;
    this.graph.choose(node);
  }

  onKey(event) {
    if (!this.graph.layout || event.altKey || event.ctrlKey || event.metaKey) return;
    const handled = this.keyAction(event.key);
    if (!handled) return;
    event.preventDefault();
    event.stopPropagation();
  }

  keyAction(key) {
    const outward = this.graph.orientation === 'icicle' ? 'ArrowUp' : 'ArrowDown';
    const inward = this.graph.orientation === 'icicle' ? 'ArrowDown' : 'ArrowUp';
    const at = this.graph.cursor < 0 ? this.graph.focus : this.graph.cursor;
    switch (key) {
      case outward: return this.step(at === ROOT ? ROOT : this.graph.nodes.parent[at]);
      case inward: return this.step(this.widestChild(at));
      case 'ArrowLeft': return this.step(this.neighbour(at, -1));
      case 'ArrowRight': return this.step(this.neighbour(at, 1));
      case 'Enter': case ' ': this.graph.choose(at); return true;
      case 'Escape': case 'Backspace':
        if (!this.graph.isZoomed && this.graph.history.length === 0) return false;
        this.graph.zoomBack();
        return true;
      case 'Home': case '0': this.graph.zoomTo(ROOT); return true;
      case '+': case '=': this.graph.zoomAt(this.graph.width / 2, 0.6); return true;
      case '-': this.graph.zoomAt(this.graph.width / 2, 1 / 0.6); return true;
      default: return false;
    }
  }

  step(node) {
    if (node < 0) return true;
    this.graph.moveCursor(node);
    const { start, end, barOf } = this.graph.layout;
    if (end[barOf[node]] <= this.graph.view.from || start[barOf[node]] >= this.graph.view.until) this.graph.zoomTo(this.graph.nodes.parent[node]);
    this.graph.revealRow(this.graph.nodes.depth[node]);
    this.graph.events.onCursor?.(node);
    return true;
  }

  widestChild(node) {
    let widest = -1;
    for (let child = node + 1; child < this.graph.nodes.end[node]; child = this.graph.nodes.end[child]) {
      if (widest < 0 || this.graph.nodes.total[child] > this.graph.nodes.total[widest]) widest = child;
    }
    return widest;
  }

  neighbour(node, direction) {
    const row = this.graph.nodes.depth[node];
    let bar = this.graph.layout.barOf[node] + direction;
    while (bar >= this.graph.layout.rowStart[row] && bar < this.graph.layout.rowStart[row + 1] && this.graph.layout.node[bar] < 0) bar += direction;
    return bar >= this.graph.layout.rowStart[row] && bar < this.graph.layout.rowStart[row + 1] ? this.graph.layout.node[bar] : -1;
  }
}
