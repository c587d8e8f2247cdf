// Folded stacks, as `profcol` writes them: a line per stack, outermost function first.

export function foldedOf({ frames, nodes }) {
  const lines = [];
  const stack = [];
  for (let node = 1; node < nodes.count; node++) {
    const frame = nodes.frame[node];
    stack.length = nodes.depth[node] - 1;
    // Semicolons separate functions, line breaks stacks.
    stack.push((frames.rawName(frame) || frames.nameOf(frame)).replace(/;/g, ':').replace(/\p{Cc}/gu, ' '));
    if (nodes.self[node] > 0) lines.push(`${stack.join(';')} ${nodes.self[node]}`);
  }
  return lines.map((line) => `${line}\n`).join('');
}
