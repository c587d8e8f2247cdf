// Nodes identified by the names on their path, which stay the same from one profile to the next.
import { hashText } from './colors.js';
import { ROOT } from './profile.js';

// Longer paths are hashed in the URL.
const MOST_PATH_CHARACTERS = 2000;

// The steps from the root to a node: a name; a tab and the binary if it differs from the caller's; another tab and the
// line if the caller calls the same function from several lines.
export function pathOf(frames, nodes, node) {
  const path = [];
  for (let at = node; at !== ROOT; at = nodes.parent[at]) path.push(stepTo(frames, nodes, at));
  return path.reverse();
}

function stepTo(frames, nodes, node) {
  const frame = nodes.frame[node];
  const parent = nodes.parent[node];
  const name = frames.rawName(frame);
  const binary = frames.rawBinary(frame);
  for (let sibling = parent + 1; sibling < node; sibling = nodes.end[sibling]) {
    if (frames.function[nodes.frame[sibling]] === frames.function[frame]) return `${name}\t${binary}\t${frames.lineOf(frame)}`;
  }
  return binary === frames.rawBinary(nodes.frame[parent]) ? name : `${name}\t${binary}`;
}

// The deepest node of a path that exists in this profile.
export function findPath(frames, nodes, path) {
  let node = ROOT;
  for (const step of path) {
    const child = findChild(frames, nodes, node, step);
    if (child < 0) return node;
    node = child;
  }
  return node;
}

function findChild(frames, nodes, parent, step) {
  const [name, binary = frames.rawBinary(nodes.frame[parent]), line] = step.split('\t');
  let match = -1;
  for (let child = parent + 1; child < nodes.end[parent]; child = nodes.end[child]) {
    const frame = nodes.frame[child];
    if (frames.rawName(frame) !== name || frames.rawBinary(frame) !== binary) continue;
    if (line === undefined || frames.lineOf(frame) === Number(line)) return child;
    if (match < 0) match = child;
  }
  return match;
}

// A hash of the names and binaries on the path to each node.
export function pathHashes(frames, nodes) {
  const ofFrame = new Uint32Array(frames.count + 1);
  for (let frame = 0; frame < frames.count; frame++) {
    const called = frames.function[frame];
    ofFrame[frame] = called < frame ? ofFrame[called] : hashText(`${frames.rawName(frame)}\t${frames.rawBinary(frame)}`);
  }
  const hashes = new Uint32Array(nodes.count);
  for (let node = 1; node < nodes.count; node++) {
    hashes[node] = Math.imul(hashes[nodes.parent[node]] ^ ofFrame[nodes.frame[node]], 0x9e3779b1) + 0x7f4a7c15;
  }
  return hashes;
}

// A node as stored in the URL: its path, or depth and hash if the path is too long.
export function pathForAddress(frames, nodes, node) {
  const path = pathOf(frames, nodes, node);
  let characters = 0;
  for (const step of path) characters += step.length;
  if (characters + path.length <= MOST_PATH_CHARACTERS) return path;
  return [`\t${nodes.depth[node]}:${pathHashes(frames, nodes)[node]}`];
}

export function findFromAddress(frames, nodes, path) {
  const hashed = path.length === 1 ? /^\t(\d+):(\d+)$/.exec(path[0]) : null;
  if (!hashed) return findPath(frames, nodes, path);
  const hashes = pathHashes(frames, nodes);
  for (let node = 1; node < nodes.count; node++) {
    if (hashes[node] === Number(hashed[2]) && nodes.depth[node] === Number(hashed[1])) return node;
  }
  return ROOT;
}
