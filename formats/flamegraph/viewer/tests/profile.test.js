import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeNodes, decodeProfile, notShown, ROOT } from '../profile.js';
import { findFromAddress, findPath, pathForAddress, pathOf } from '../paths.js';
import { foldedOf } from '../folded.js';
import { sandwichOf } from '../callers.js';
import { documentOf, namesOf, randomDocument } from './support.js';

const STACKS = [[['main', 'read', 'copy'], 30], [['main', 'parse'], 50], [['idle'], 20]];

test('children are sorted by name, values and subtrees go with them', () => {
  const profile = decodeProfile(documentOf(STACKS));
  assert.deepEqual(namesOf(profile), ['all', 'idle', 'main', 'parse', 'read', 'copy']);
  assert.deepEqual([...profile.nodes.total], [100, 20, 80, 50, 30, 30]);
  assert.deepEqual([...profile.nodes.self], [0, 20, 0, 50, 0, 30]);
  assert.deepEqual([...profile.nodes.parent], [0, 0, 0, 2, 2, 4]);
  assert.deepEqual([...profile.nodes.end], [6, 2, 6, 4, 6, 6]);
});

test('the order of the response does not move a bar', () => {
  const one = decodeProfile(documentOf(STACKS));
  const other = decodeProfile(documentOf([...STACKS].reverse()));
  assert.deepEqual(namesOf(one), namesOf(other));
});

test('a large tree keeps every node and value when it is sorted', () => {
  const document = randomDocument(50_000);
  const profile = decodeProfile(document);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  assert.equal(profile.nodes.count, document.nodes.depth.length + 1);
  assert.equal(sum([...profile.nodes.self]), sum(document.nodes.self));
  for (let node = 1; node < profile.nodes.count; node++) {
    assert.ok(profile.nodes.parent[node] < node);
    assert.ok(profile.nodes.total[node] <= profile.nodes.total[profile.nodes.parent[node]]);
  }
});

test('nodes cut by the server are marked as not shown', () => {
  const document = documentOf(STACKS);
  document.total = 130;
  document.nodes.total[document.nodes.frame.indexOf(0)] += 7;
  const { nodes } = decodeProfile(document);
  assert.equal(notShown(nodes, ROOT), 23);
  assert.equal(notShown(nodes, 2), 7);
});

test('a baseline without samples makes no comparison', () => {
  const of = (base) => decodeProfile(documentOf([[['a'], 10, base]]));
  assert.deepEqual([of(5).comparison, of(5).lacksBaseline], [true, false]);
  assert.deepEqual([of(0).comparison, of(0).lacksBaseline], [false, true]);
  assert.equal(decodeProfile(documentOf(STACKS)).lacksBaseline, false);
});

test('folded stacks have plain names, and a line per stack', () => {
  const stacks = [[['main', 'read;\n'], 30, 1], [['main'], 5, 1], [['main', 'gone'], 0, 7]];
  assert.deepEqual(foldedOf(decodeProfile(documentOf(stacks))).split('\n'), ['main 5', 'main;read:  30', '']);
  const unnamed = documentOf([[['main', 'x'], 1]]);
  unnamed.strings[unnamed.frames.name[1]] = '';
  assert.match(foldedOf(decodeProfile(unnamed)), /^main;.*bin.* 1\n$/);
});

test('the table of the server is used unchanged', () => {
  const functions = { frame: [1], self: [7], total: [9] };
  const profile = decodeProfile(documentOf(STACKS, { functions, function_count: 12 }));
  assert.deepEqual([...profile.functions.self], [7]);
  assert.deepEqual([...profile.functions.baseSelf], [0]);
  assert.equal(profile.functionCount, 12);
});

test('a recursion of 100,000 calls does not overflow the stack', () => {
  const deep = Array.from({ length: 100_000 }, (_, index) => (index % 2 ? 'odd' : 'even'));
  const profile = decodeProfile(documentOf([[deep, 5]]));
  assert.equal(profile.nodes.rows, 100_001);
  const last = profile.nodes.count - 1;
  assert.equal(findFromAddress(profile.frames, profile.nodes, pathForAddress(profile.frames, profile.nodes, last)), last);
  const { callers, callees } = sandwichOf(profile.frames, profile.nodes, profile.frames.function[profile.nodes.frame[1]]);
  assert.equal(callers.depth.length, 99_999);
  assert.equal(callees.depth.length, 100_000);
});

test('callers go up from the innermost call, callees down from the outermost', () => {
  const { frames, nodes } = decodeProfile(documentOf([[['main', 'f', 'g', 'f', 'h'], 10], [['other', 'f', 'h'], 4], [['f'], 1], [['main'], 100]]));
  const called = frames.find('f', 'bin');
  const { total, callers, callees } = sandwichOf(frames, nodes, called);
  assert.equal(total, 15);
  const tree = (columns) => {
    const decoded = decodeNodes(columns, frames, 0, 0);
    return Array.from(decoded.frame, (frame, node) => `${'  '.repeat(decoded.depth[node])}${frames.nameOf(frame)} ${decoded.total[node]} ${decoded.self[node]}`);
  };
  assert.deepEqual(tree(callers), ['all 15 0', '  f 15 1', '    g 10 0', '      f 10 0', '        main 10 10', '    other 4 4']);
  assert.deepEqual(tree(callees), ['all 15 0', '  f 15 1', '    g 10 0', '      f 10 0', '        h 10 10', '    h 4 4']);
});

test('a recursion with samples at each call has bounded callers', () => {
  const stacks = Array.from({ length: 3000 }, (_, depth) => [new Array(depth + 1).fill('f'), 1]);
  const { frames, nodes } = decodeProfile(documentOf(stacks));
  const { total, callers } = sandwichOf(frames, nodes, frames.find('f', 'bin'));
  assert.equal(total, 3000);
  assert.equal(callers.total[0], 3000);
  assert.ok(callers.depth.length <= 3000);
});

test('a comparison keeps both values of each node', () => {
  const profile = decodeProfile(documentOf([[['main', 'gone'], 0, 40], [['main', 'new'], 30, 0], [['main', 'same'], 10, 10]]));
  assert.equal(profile.comparison, true);
  assert.equal(profile.total, 40);
  assert.equal(profile.baseTotal, 50);
  assert.deepEqual(namesOf(profile), ['all', 'main', 'gone', 'new', 'same']);
  assert.deepEqual([...profile.nodes.baseTotal], [50, 50, 40, 0, 10]);
  const { callees } = sandwichOf(profile.frames, profile.nodes, profile.frames.find('main', 'bin'));
  assert.deepEqual(callees.base_total, [50, 40, 0, 10]);
});

test('a path finds its node again, or the nearest one if the node no longer exists', () => {
  const one = decodeProfile(documentOf(STACKS));
  const path = pathOf(one.frames, one.nodes, 5);
  assert.deepEqual(path, ['main\tbin', 'read', 'copy']);
  const other = decodeProfile(documentOf([[['aaa'], 1], [['main', 'read', 'copy'], 1], [['main', 'abc'], 9]]));
  assert.equal(other.frames.nameOf(other.nodes.frame[findPath(other.frames, other.nodes, path)]), 'copy');
  assert.equal(findPath(other.frames, other.nodes, ['main\tbin', 'gone', 'copy']), 2);
  assert.equal(findPath(other.frames, other.nodes, ['nothing']), ROOT);
});

test('a path distinguishes functions of the same name by binary and by line', () => {
  const document = documentOf([[['main', 'a'], 1], [['other', 'b'], 2], [['third', 'c'], 3]]);
  const [main, other, third] = ['main', 'other', 'third'].map((name) => document.frames.name.indexOf(document.strings.indexOf(name)));
  document.strings.push('bin2');
  for (const frame of [other, third]) document.frames.name[frame] = document.frames.name[main];
  document.frames.binary[other] = document.strings.length - 1;
  const { frames, nodes } = decodeProfile(document);
  for (let node = 1; node < nodes.count; node++) assert.equal(findPath(frames, nodes, pathOf(frames, nodes, node)), node);
  assert.deepEqual([1, 3, 5].map((node) => pathOf(frames, nodes, node)), [['main\tbin'], [`main\tbin\t${document.frames.line[third]}`], ['main\tbin2']]);
  assert.deepEqual(pathOf(frames, nodes, 6), ['main\tbin2', 'b\tbin']);
});

test('names of JavaScript properties are ordinary names', () => {
  const profile = decodeProfile(documentOf([[['__proto__', 'constructor', 'toString'], 3], [['hasOwnProperty'], 2]]));
  assert.deepEqual(namesOf(profile), ['all', '__proto__', 'constructor', 'toString', 'hasOwnProperty']);
});

test('bidirectional characters are made visible', () => {
  const profile = decodeProfile(documentOf([[['\u202egpj.exe', 'a\u0000b'], 3]]));
  assert.deepEqual(namesOf(profile), ['all', '\\u{202e}gpj.exe', 'a\\u{0}b']);
  assert.equal(profile.frames.rawName(profile.nodes.frame[1]), '\u202egpj.exe');
});

test('an empty or broken document decodes to an empty profile', () => {
  assert.equal(decodeProfile({}).nodes.count, 1);
  const broken = decodeProfile({ strings: ['a'], frames: { name: [0, 99] }, nodes: { depth: [5, 9], frame: [1, 77], self: [1, 1], total: [2, 1] } });
  assert.deepEqual([...broken.nodes.depth], [0, 1, 2]);
  assert.equal(broken.frames.nameOf(1), '[a]');
});
