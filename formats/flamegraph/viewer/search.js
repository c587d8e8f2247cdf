// Search: text or /regular expression/ in names; `binary:` and `file:` search these instead.

export function compileSearch(text) {
  const [, field, rest] = /^(?:(binary|file):)?([^]*)$/.exec(text.trim());
  if (rest === '') return null;
  const expression = /^\/(.+)\/(i?)$/.exec(rest);
  if (!expression) {
    const needle = rest.toLowerCase();
    return { field: field ?? 'name', test: (candidate) => candidate.toLowerCase().includes(needle) };
  }
  const compiled = new RegExp(expression[1], `${expression[2]}u`);
  return { field: field ?? 'name', test: (candidate) => compiled.test(candidate) };
}

// One byte per frame: 1 if it matches. Each string is tested once.
export function matchFrames(frames, search) {
  const matches = new Uint8Array(frames.count + 1);
  const column = frames[search.field];
  const tested = new Map();
  for (let frame = 0; frame < frames.count; frame++) {
    const index = column[frame];
    let result = tested.get(index);
    if (result === undefined) {
      result = search.test(frames.shown[index] ?? '') ? 1 : 0;
      tested.set(index, result);
    }
    matches[frame] = result;
  }
  return matches;
}

// The total value of all matching nodes, nested matches counted once, and the number of matching functions.
export function matchedTotal({ frames, nodes }, matches) {
  let total = 0;
  let baseTotal = 0;
  const functions = new Set();
  for (let node = 1; node < nodes.count;) {
    if (matches[nodes.frame[node]]) {
      total += nodes.total[node];
      baseTotal += nodes.baseTotal[node];
      node = nodes.end[node];
    } else {
      node += 1;
    }
  }
  for (let frame = 0; frame < frames.count; frame++) if (matches[frame]) functions.add(frames.function[frame]);
  return { total, baseTotal, functions: functions.size };
}

// The place after `at` in a list of matches, or before it; from outside of the list, the heaviest one.
export function nextMatch(count, at, direction, weight) {
  if (at >= 0) return (at + direction + count) % count;
  let heaviest = 0;
  for (let place = 1; place < count; place++) if (weight(place) > weight(heaviest)) heaviest = place;
  return heaviest;
}

// One byte per node: 1 if it or a descendant matches.
export function matchSubtrees(nodes, matches) {
  const marked = new Uint8Array(nodes.count);
  for (let node = nodes.count - 1; node > 0; node--) {
    if (matches[nodes.frame[node]]) marked[node] = 1;
    if (marked[node]) marked[nodes.parent[node]] = 1;
  }
  return marked;
}
