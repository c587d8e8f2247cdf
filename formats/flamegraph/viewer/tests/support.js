// Profiles for tests: documents in the server's format.

// `stacks` are pairs of names (outermost first) and a value, or [names, value, base value].
export function documentOf(stacks, extra = {}) {
  const strings = ['', 'bin', 'file.c'];
  const names = new Map();
  const frames = { name: [], file: [], line: [], binary: [], kind: [] };
  const frameOf = (name) => {
    if (!names.has(name)) {
      names.set(name, frames.name.length);
      strings.push(name);
      frames.name.push(strings.length - 1);
      frames.file.push(2);
      frames.line.push(frames.name.length);
      frames.binary.push(1);
      frames.kind.push(0);
    }
    return names.get(name);
  };
  const root = { children: new Map(), total: 0, base: 0 };
  for (const [path, value, base = 0] of stacks) {
    let node = root;
    node.total += value;
    node.base += base;
    for (const name of path) {
      if (!node.children.has(name)) node.children.set(name, { frame: frameOf(name), children: new Map(), self: 0, total: 0, baseSelf: 0, base: 0 });
      node = node.children.get(name);
      node.total += value;
      node.base += base;
    }
    node.self += value;
    node.baseSelf += base;
  }
  const compares = stacks.some((stack) => stack.length > 2);
  const nodes = { depth: [], frame: [], self: [], total: [], ...(compares ? { base_self: [], base_total: [] } : {}) };
  const stack = [...root.children.values()].reverse().map((node) => [node, 0]);
  while (stack.length > 0) {
    const [node, depth] = stack.pop();
    nodes.depth.push(depth);
    nodes.frame.push(node.frame);
    nodes.self.push(node.self);
    nodes.total.push(node.total);
    if (compares) {
      nodes.base_self.push(node.baseSelf);
      nodes.base_total.push(node.base);
    }
    stack.push(...[...node.children.values()].reverse().map((child) => [child, depth + 1]));
  }
  const functions = functionsOf(stacks, frameOf, compares);
  return {
    type: 'cpu', unit: 'nanoseconds', from: 0, until: 1000, total: root.total, samples: stacks.length, ...(compares ? { base_total: root.base } : {}),
    strings, kinds: ['native', 'kernel'], frames, nodes, functions, ...extra,
  };
}

// A recursive function counts once.
function functionsOf(stacks, frameOf, compares) {
  const table = { frame: [], self: [], total: [], ...(compares ? { base_self: [], base_total: [] } : {}) };
  for (const [path, value, base = 0] of stacks) {
    for (const name of new Set(path)) {
      const row = frameOf(name);
      const isLast = name === path[path.length - 1];
      const add = (column, amount) => { if (table[column]) table[column][row] = (table[column][row] ?? 0) + amount; };
      table.frame[row] = row;
      add('self', isLast ? value : 0);
      add('total', value);
      add('base_self', isLast ? base : 0);
      add('base_total', base);
    }
  }
  return table;
}

export function namesOf(profile) {
  return Array.from(profile.nodes.frame, (frame) => profile.frames.nameOf(frame));
}

// Deterministic pseudorandom numbers.
export function randomNumbers(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

// A random tree in depth-first order with about `size` nodes.
export function randomDocument(size, seed = 1) {
  const random = randomNumbers(seed);
  const strings = ['', 'bin', ...Array.from({ length: 500 }, (_, index) => `function_${String(index).padStart(3, '0')}`)];
  const count = 500;
  const frames = {
    name: Array.from({ length: count }, (_, index) => index + 2), file: new Array(count).fill(0), line: new Array(count).fill(0),
    binary: new Array(count).fill(1), kind: new Array(count).fill(0),
  };
  const nodes = { depth: [], frame: [], self: [], total: [] };
  const total = 1e12;
  const stack = [[0, total]];
  while (stack.length > 0 && nodes.depth.length < size) {
    const [depth, value] = stack.pop();
    if (depth > 0) {
      nodes.depth.push(depth - 1);
      nodes.frame.push(Math.floor(random() * count));
      nodes.total.push(value);
      nodes.self.push(0);
    }
    let left = value;
    for (let child = 0; child < 4 && left > 1; child++) {
      const part = Math.floor(left * random() * 0.7);
      if (part > 0) stack.push([depth + 1, part]);
      left -= part;
    }
    if (depth > 0) nodes.self[nodes.self.length - 1] = left;
  }
  return { type: 'cpu', unit: 'nanoseconds', total, strings, kinds: ['native'], frames, nodes };
}
