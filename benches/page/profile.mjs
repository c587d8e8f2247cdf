// A profile of any size, the same on each run, for the viewer and for speedscope.

const FUNCTIONS = 5000;
const BINARIES = 40;
const MOST_CALLEES = 7;

// mulberry32
function randomNumbers(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// In the order of their numbers.
function functionName(index) {
  return `service::function_${String(index).padStart(4, '0')}_of_module_${index % 97}`;
}

// A tree in depth-first order, callees sorted by name. Each node has samples of its own, so there are as many distinct stacks as nodes.
export function makeTree(count) {
  const random = randomNumbers(count);
  const depth = new Uint32Array(count);
  const frame = new Uint32Array(count);
  const self = new Float64Array(count);
  // Depth, function and number of descendants of the nodes to come, the next one last.
  const open = [[0, 0, count - 1]];
  for (let node = 0; node < count; node++) {
    const [at, called, below] = open.pop();
    depth[node] = at;
    frame[node] = called;
    self[node] = (1 + Math.floor(random() ** 4 * 1000)) * 1e6;
    const callees = Math.min(below, random() < 0.5 ? 1 : 1 + Math.floor(random() ** 2 * MOST_CALLEES));
    const parts = Array.from({ length: callees }, () => random() ** 2 + 1e-6);
    const sum = parts.reduce((before, part) => before + part, 0);
    const next = [];
    let left = below - callees;
    let callee = Math.floor(random() * (FUNCTIONS - 10 * MOST_CALLEES));
    parts.forEach((part, index) => {
      const descendants = index === callees - 1 ? left : Math.min(left, Math.floor((part / sum) * (below - callees)));
      left -= descendants;
      next.push([at + 1, callee, descendants]);
      callee += 1 + Math.floor(random() * 9);
    });
    open.push(...next.reverse());
  }
  return { count, depth, frame, self };
}

// As profcol's server answers.
export function viewerDocument({ count, depth, frame, self }, { from, until }) {
  const strings = [''];
  const frames = { name: [], file: [], line: [], binary: [], kind: [] };
  for (let binary = 0; binary < BINARIES; binary++) strings.push(`/usr/lib/service/part_${binary}.so`);
  for (let index = 0; index < FUNCTIONS; index++) {
    strings.push(functionName(index));
    frames.name.push(strings.length - 1);
    frames.file.push(0);
    frames.line.push(0);
    frames.binary.push(1 + (index % BINARIES));
    frames.kind.push(0);
  }
  const total = Array.from(self);
  for (let node = count - 1, sums = []; node >= 0; node--) {
    const at = depth[node];
    total[node] += sums[at + 1] ?? 0;
    sums[at + 1] = 0;
    sums[at] = (sums[at] ?? 0) + total[node];
  }
  let sum = 0;
  for (const value of self) sum += value;
  return {
    type: 'cpu', unit: 'nanoseconds', from, until, total: sum, samples: count, strings, kinds: ['native'], frames,
    nodes: { depth: Array.from(depth), frame: Array.from(frame), self: Array.from(self), total }, cut: { nodes: 0, value: 0 },
    ...functionTable(frame, self),
  };
}

// With the self values alone: the table is not measured.
function functionTable(frame, self) {
  const own = new Array(FUNCTIONS).fill(0);
  frame.forEach((called, node) => { own[called] += self[node]; });
  return { functions: { frame: own.map((_, index) => index), self: own, total: own }, function_count: FUNCTIONS };
}

// The stack and weight of each node.
export function speedscopeDocument({ count, depth, frame, self }) {
  const samples = [];
  const stack = [];
  for (let node = 0; node < count; node++) {
    stack.length = depth[node];
    stack.push(frame[node]);
    samples.push(stack.slice());
  }
  let endValue = 0;
  for (const value of self) endValue += value;
  return {
    $schema: 'https://www.speedscope.app/file-format-schema.json', name: 'bench',
    shared: { frames: Array.from({ length: FUNCTIONS }, (_, index) => ({ name: functionName(index), file: `/usr/lib/service/part_${index % BINARIES}.so` })) },
    profiles: [{ type: 'sampled', name: 'bench', unit: 'nanoseconds', startValue: 0, endValue, samples, weights: Array.from(self) }],
  };
}
