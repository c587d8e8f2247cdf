// Callers and callees of a function.
import { ROOT } from './profile.js';

// Bounds the work for functions that recurse thousands of times: further callers of such a call are omitted.
const MOST_CALLER_STEPS = 2_000_000;
const LEAST_CALLERS = 64;

// The calls of a function in depth-first order, each with its samples minus those of nested calls.
function callsOf(frames, nodes, called) {
  const calls = [];
  const open = [];
  for (let node = 1; node < nodes.count; node++) {
    if (frames.function[nodes.frame[node]] !== called) continue;
    while (open.length > 0 && nodes.end[open[open.length - 1].node] <= node) open.pop();
    const call = { node, isOutermost: open.length === 0, value: nodes.total[node], baseValue: nodes.baseTotal[node] };
    if (open.length > 0) {
      open[open.length - 1].value -= call.value;
      open[open.length - 1].baseValue -= call.baseValue;
    }
    calls.push(call);
    open.push(call);
  }
  return calls;
}

// A tree built path by path; `columns` returns it in depth-first order.
class MergedTree {
  constructor() {
    this.frame = [];
    this.parent = [];
    this.values = { self: [], total: [], base_self: [], base_total: [] };
    this.children = new Map();
  }

  child(parent, frame, called, functions) {
    const key = (parent + 1) * (functions + 1) + called;
    let node = this.children.get(key);
    if (node === undefined) {
      node = this.frame.length;
      this.children.set(key, node);
      this.frame.push(frame);
      this.parent.push(parent);
      for (const column of Object.values(this.values)) column.push(0);
    }
    return node;
  }

  add(node, self, total, baseSelf, baseTotal) {
    this.values.self[node] += self;
    this.values.total[node] += total;
    this.values.base_self[node] += baseSelf;
    this.values.base_total[node] += baseTotal;
  }

  columns(comparison) {
    const children = this.frame.map(() => []);
    const roots = [];
    this.parent.forEach((parent, node) => (parent < 0 ? roots : children[parent]).push(node));
    const order = [];
    const depth = [];
    const stack = roots.reverse().map((node) => [node, 0]);
    while (stack.length > 0) {
      const [node, at] = stack.pop();
      order.push(node);
      depth.push(at);
      for (let index = children[node].length - 1; index >= 0; index--) stack.push([children[node][index], at + 1]);
    }
    const columns = { depth, frame: order.map((node) => this.frame[node]) };
    for (const [name, values] of Object.entries(this.values)) {
      if (comparison || !name.startsWith('base_')) columns[name] = order.map((node) => values[node]);
    }
    return columns;
  }
}

// Callers and callees as columns of nodes; the function is at depth 0 of both. A recursive stack counts once: callees
// start at the outermost call, callers at the innermost one.
export function sandwichOf(frames, nodes, called) {
  const callers = new MergedTree();
  const callees = new MergedTree();
  let total = 0;
  let baseTotal = 0;
  const calls = callsOf(frames, nodes, called);
  const innermost = calls.filter((call) => call.value > 0 || call.baseValue > 0);
  const mostCallers = Math.max(LEAST_CALLERS, Math.floor(MOST_CALLER_STEPS / Math.max(1, innermost.length)));
  for (const call of innermost) addCallers(callers, frames, nodes, call, mostCallers);
  for (const { node } of calls.filter((call) => call.isOutermost)) {
    total += nodes.total[node];
    baseTotal += nodes.baseTotal[node];
    addCallees(callees, frames, nodes, node);
  }
  return { total, baseTotal, callers: callers.columns(nodes.comparison), callees: callees.columns(nodes.comparison) };
}

function addCallers(tree, frames, nodes, { node: call, value, baseValue }, most) {
  let merged = -1;
  let steps = 0;
  for (let node = call; node !== ROOT && steps < most; node = nodes.parent[node]) {
    const frame = nodes.frame[node];
    merged = tree.child(merged, frame, frames.function[frame], frames.count);
    tree.add(merged, 0, value, 0, baseValue);
    steps += 1;
  }
  tree.add(merged, value, 0, baseValue, 0);
}

function addCallees(tree, frames, nodes, call) {
  const open = [-1];
  for (let node = call; node < nodes.end[call]; node++) {
    const level = nodes.depth[node] - nodes.depth[call];
    const frame = nodes.frame[node];
    const merged = tree.child(open[level], frame, frames.function[frame], frames.count);
    open[level + 1] = merged;
    tree.add(merged, nodes.self[node], nodes.total[node], nodes.baseSelf[node], nodes.baseTotal[node]);
  }
}
