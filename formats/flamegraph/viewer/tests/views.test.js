import assert from 'node:assert/strict';
import { test } from 'node:test';
import { childrenByTotal, visibleRows } from '../calltree.js';
import { columnValue, sortRows } from '../table.js';
import { compileSearch, matchedTotal, matchFrames, matchSubtrees, nextMatch } from '../search.js';
import { binaryTint, DARK, differenceScale, differenceStep, frameColors, kindColor, languageColor, LIGHT, tintDistance } from '../colors.js';
import { decodeProfile, ROOT } from '../profile.js';
import { decodeState, DEFAULT_STATE, defaultsOf, encodeState } from '../url.js';
import { describeDrops, dropsOf, metricOf, rateOf } from '../metrics.js';
import { asYaml } from '../pipelines.js';
import { describeBatch, resourceName } from '../tap.js';
import { describeEnds, droppedProcesses, matchesProcess, selectionOf, sortProcesses, unitOf } from '../processes.js';
import { formatDifference, formatPoints, formatRate, formatShare, formatTotal, formatValue, printable, shortenMiddle, shortenName } from '../format.js';
import { highestStep, movedRange, roundUp, tickStep, visibleWindow } from '../timeline.js';
import { Tints } from '../tints.js';
import { documentOf, namesOf } from './support.js';

const PROFILE = decodeProfile(documentOf([[['main', 'read_file', 'copy'], 30], [['main', 'parse', 'read_token'], 50], [['idle'], 20]]));

test('search finds text in any case, expressions, binaries and files', () => {
  const matched = (text) => matchedTotal(PROFILE, matchFrames(PROFILE.frames, compileSearch(text)));
  assert.deepEqual(matched('READ'), { total: 80, baseTotal: 0, functions: 2 });
  assert.equal(matched('/^read_f/').total, 30);
  assert.equal(matched('/^READ/i').total, 80);
  assert.equal(matched('binary:bin').total, 100);
  assert.equal(matched('file:nothing').functions, 0);
  assert.equal(compileSearch('  '), null);
  assert.throws(() => compileSearch('/(/'));
});

test('nested matches count once', () => {
  const profile = decodeProfile(documentOf([[['read', 'read_all', 'x'], 10], [['y'], 5]]));
  assert.equal(matchedTotal(profile, matchFrames(profile.frames, compileSearch('read'))).total, 10);
});

test('matches follow each other in a circle, the heaviest first', () => {
  const weights = [1, 9, 5];
  const next = (at, direction) => nextMatch(3, at, direction, (place) => weights[place]);
  assert.deepEqual([next(-1, 1), next(1, 1), next(2, 1), next(0, -1)], [1, 2, 0, 2]);
});

test('the table sorts by each column and honors the search', () => {
  const { frames, functions } = PROFILE;
  const names = (key, matches = null) => sortRows(frames, functions, { ...key, value: columnValue(PROFILE, true, key.id) }, matches).map((row) => frames.nameOf(functions.frame[row]));
  assert.deepEqual(names({ id: 'self', ascending: false }), ['read_token', 'copy', 'idle', 'main', 'parse', 'read_file']);
  assert.deepEqual(names({ id: 'total', ascending: true }).slice(0, 2), ['idle', 'copy']);
  assert.deepEqual(names({ id: 'name', ascending: true }), ['copy', 'idle', 'main', 'parse', 'read_file', 'read_token']);
  assert.deepEqual(names({ id: 'self', ascending: false }, matchFrames(frames, compileSearch('read'))), ['read_token', 'read_file']);
});

test('the change of a comparison is by share or absolute', () => {
  const profile = decodeProfile(documentOf([[['a'], 30, 10], [['b'], 10, 10]]));
  const a = [...profile.functions.frame].findIndex((frame) => profile.frames.nameOf(frame) === 'a');
  assert.equal(columnValue(profile, true, 'selfChange')(a), 0.25);
  assert.equal(columnValue(profile, false, 'selfChange')(a), 20);
});

test('the call tree shows open nodes, heaviest first, with places among siblings', () => {
  const { nodes } = PROFILE;
  assert.deepEqual(childrenByTotal(nodes, ROOT, null).map((node) => namesOf(PROFILE)[node]), ['main', 'idle']);
  const rows = visibleRows(nodes, (node) => namesOf(PROFILE)[node] === 'main', null);
  assert.deepEqual(rows.map(({ node, level, place, siblings }) => [namesOf(PROFILE)[node], level, place, siblings]), [
    ['main', 1, 1, 2], ['parse', 2, 1, 2], ['read_file', 2, 2, 2], ['idle', 1, 2, 2],
  ]);
  const shows = matchSubtrees(nodes, matchFrames(PROFILE.frames, compileSearch('copy')));
  assert.deepEqual(visibleRows(nodes, () => true, shows).map(({ node }) => namesOf(PROFILE)[node]), ['main', 'read_file', 'copy']);
});

test('a URL restores the state and drops invalid parts', () => {
  const state = {
    ...DEFAULT_STATE, type: 'cpu', from: 1000, until: 2000, query: '{comm="a&b",x=~"#/é"}', view: 'table', search: '/a+b/', zoom: ['a b', 'c\t1', ''],
    orientation: 'flame', ascending: true, base: 'range', baseFrom: 1, baseUntil: 2,
    processes: 'web team=a', processSort: 'name', processAscending: true, component: 'processor/relabel/a', pipeline: 'profiles', side: 'input',
  };
  assert.deepEqual(decodeState(`#${encodeState(state)}`), state);
  assert.equal(encodeState({ ...DEFAULT_STATE }), '');
  assert.deepEqual(decodeState(''), { ...DEFAULT_STATE });
  const odd = decodeState('#orientation=sideways&side=up&last=-3&from=9&until=3&color=<b>&__proto__=x&ascending=1');
  assert.deepEqual(odd, { ...DEFAULT_STATE });
});

test('a comparison opens as it was made, and a URL changes that', () => {
  const defaults = defaultsOf({ difference: 'absolute' });
  assert.equal(decodeState('', defaults).difference, 'absolute');
  assert.equal(encodeState(decodeState('', defaults), defaults), '');
  const changed = encodeState({ ...decodeState('', defaults), difference: 'share' }, defaults);
  assert.equal(changed, 'difference=share');
  assert.equal(decodeState(changed, defaults).difference, 'share');
  assert.deepEqual(defaultsOf({ difference: '<b>' }), DEFAULT_STATE);
  assert.deepEqual(defaultsOf({}), DEFAULT_STATE);
});

function luminance(hex) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((left, right) => right - left);
  return (high + 0.05) / (low + 0.05);
}

// A stack of frames of all kinds in many binaries.
function manyFrames() {
  const kinds = ['native', 'kernel', 'jit', 'interpreted', 'inlined', 'marker', 'runtime', 'unknown kind'];
  const languages = ['', 'kernel', 'native', 'Go', 'Rust', 'Python', 'JavaScript', 'Java', '.NET', 'Ruby', 'PHP', 'Perl', 'Lua', 'Erlang'];
  const count = 700;
  const languageOf = (frame) => languages[frame % languages.length];
  return { count, languages, languageOf, kindOf: (frame) => kinds[frame % kinds.length], nameOf: (frame) => `f${frame}`, binaryOf: (frame) => `/usr/lib/lib${frame % 100}.so` };
}

for (const theme of [LIGHT, DARK]) {
  test(`text on every fill of the ${theme.dark ? 'dark' : 'light'} theme has a contrast of 4.5`, () => {
    const frames = manyFrames();
    const fills = [
      theme.root, theme.match, theme.background, ...frameColors(frames, 'binary', theme, binaryTint).styles, ...frameColors(frames, 'kind', theme, binaryTint).styles,
      ...frameColors(frames, 'language', theme, binaryTint).styles,
      ...differenceScale('blue-orange', theme), ...differenceScale('green-red', theme), kindColor(theme, 'kernel'),
    ];
    for (const fill of fills) {
      assert.match(fill, /^#[0-9a-f]{6}$/);
      assert.ok(contrast(fill, theme.text) >= 4.5, `${fill}: ${contrast(fill, theme.text)}`);
    }
    for (const fill of [theme.grey, theme.background]) assert.ok(contrast(fill, theme.dim) >= 4.5, `dim on ${fill}: ${contrast(fill, theme.dim)}`);
  });
}

test('heavy binaries are easy to tell apart, and keep their tints', () => {
  const near = ['webserver', 'database'];
  assert.ok(tintDistance(...near.map(binaryTint)) < 40);
  const tints = new Tints();
  tints.choose(near);
  assert.equal(tints.of('webserver'), binaryTint('webserver'));
  assert.ok(tintDistance(...near.map((binary) => tints.of(binary))) >= 90);
  const before = near.map((binary) => tints.of(binary));
  tints.choose(['another', 'database', 'webserver', 'lib1.so', 'lib2.so', 'lib3.so', 'lib4.so', 'lib5.so']);
  assert.deepEqual(near.map((binary) => tints.of(binary)), before);
  const eight = ['another', ...near, 'lib1.so', 'lib2.so', 'lib3.so', 'lib4.so', 'lib5.so'].map((binary) => tints.of(binary));
  for (const one of eight) for (const other of eight) if (one !== other) assert.ok(tintDistance(one, other) >= 20, `${one} and ${other}`);
  assert.equal(new Set(eight).size, 8);
  for (let binary = 0; binary < 1000; binary++) tints.choose([`${binary}`]);
  assert.equal(tints.chosen.size, 200);
});

test('each language has a colour in every binary', () => {
  const languages = ['', 'kernel', 'native', 'Python'];
  const frames = { name: [2, 2, 2, 2], file: [0, 0, 0, 0], line: [0, 0, 0, 0], binary: [1, 3, 1, 1], kind: [0, 0, 0, 1], language: [3, 3, 2, 1] };
  const profile = decodeProfile({
    strings: ['', 'bin', 'f', 'other'], kinds: ['native', 'kernel'], languages, frames, total: 1, nodes: { depth: [0], frame: [0], self: [1], total: [1] },
  });
  assert.deepEqual([0, 2, 3, 4].map((frame) => profile.frames.languageOf(frame)), ['Python', 'native', 'kernel', '']);
  const colorOf = (mode, frame) => {
    const { styles, ofNode } = frameColors(profile.frames, mode, LIGHT, binaryTint);
    return styles[ofNode({ frame: [frame] }, 0)];
  };
  assert.equal(colorOf('language', 0), colorOf('language', 1));
  assert.notEqual(colorOf('language', 0), colorOf('language', 2));
  assert.equal(colorOf('language', 3), colorOf('kind', 3));
  assert.equal(decodeState('#color=language').color, 'language');
  const all = manyFrames().languages.map((language) => languageColor(LIGHT, manyFrames().languages, language));
  assert.equal(new Set(all).size, all.length);
});

test('the scale of a comparison goes from removed via unchanged to new', () => {
  const scale = differenceScale('blue-orange', LIGHT);
  assert.equal(differenceStep(0, 1), 0);
  assert.equal(differenceStep(1, 0), scale.length - 1);
  assert.equal(differenceStep(0.3, 0.3), (scale.length - 1) / 2);
  assert.equal(differenceStep(0, 0), (scale.length - 1) / 2);
});

test('numbers are short and have units', () => {
  assert.equal(formatValue(0, 'nanoseconds'), '0');
  assert.equal(formatValue(1_500_000, 'nanoseconds'), '1.50 ms');
  assert.equal(formatValue(90e9, 'nanoseconds'), '90 s');
  assert.equal(formatValue(7.2e12, 'nanoseconds'), '2 h');
  assert.equal(formatValue(1536, 'bytes'), '1.50 KiB');
  assert.equal(formatValue(12345, 'count'), '12,345');
  assert.equal(formatValue(3, 'pages'), '3 pages');
  assert.equal(formatTotal(90e9, { type: 'cpu', unit: 'nanoseconds' }), '90 s CPU time');
  assert.equal(formatTotal(1234, { type: 'samples', unit: 'count' }), '1,234 samples');
  assert.equal(formatShare(1, 8), '12.5 %');
  assert.equal(formatShare(1, 1e9), '<0.01 %');
  assert.equal(formatShare(1, 0), '–');
  assert.equal(formatDifference(-0.021, formatPoints), '−2.10 pp');
  assert.equal(formatDifference(0.000001, formatPoints), '0');
});

test('names are shortened in the middle and stay plain', () => {
  assert.equal(shortenMiddle('tokio::runtime::task::poll', 12), 'tokio:…:poll');
  assert.equal(shortenMiddle('abc', 12), 'abc');
  assert.equal(shortenMiddle('abcdefghijkl', 5), 'abcd…');
  assert.equal(shortenName('llvm::FPPassManager::runOnFunction', 40), 'llvm::FPPassManager::runOnFunction');
  assert.equal(shortenName('llvm::FPPassManager::runOnFunction', 30), 'FPPassManager::runOnFunction');
  assert.equal(shortenName('llvm::FPPassManager::runOnFunction', 14), 'runOnFunction');
  assert.equal(shortenName('llvm::FPPassManager::runOnFunction', 5), 'runO…');
  assert.equal(shortenName('<std::thread::Builder as a::B>::spawn::{closure#0}', 20), 'spawn::{closure#0}');
  assert.equal(shortenName('core::ops::FnOnce::call_once::<F, ()>', 26), 'FnOnce::call_once::<F, ()>');
  assert.equal(shortenName('operator>>::x::yyyyyyyy', 9), 'yyyyyyyy');
  assert.equal(printable('日本 ok'), '日本 ok');
  assert.equal(printable('a\u2066b\nc'), 'a\\u{2066}b\\u{a}c');
});

test('the timeline has round scales', () => {
  assert.deepEqual([0, 0.5, 1, 1.2, 3, 70, 91].map(roundUp), [1, 0.5, 1, 1.5, 3, 80, 100]);
  assert.equal(tickStep(0, 3_600_000, 10), 600_000);
  assert.equal(highestStep({ series: [{ points: [1, 5] }, { points: [2, 2] }], others: [0, 1, 4] }), 8);
});

test('arrow keys move a range within the timeline', () => {
  const window = { from: 100, until: 200 };
  const moved = (from, until, step, resizes = false) => Object.values(movedRange({ from, until }, window, step, 2, resizes));
  assert.deepEqual(moved(150, 160, -10), [140, 150]);
  assert.deepEqual(moved(105, 115, -10), [100, 110]);
  assert.deepEqual(moved(185, 195, 10), [190, 200]);
  assert.deepEqual(moved(150, 160, 10, true), [150, 170]);
  assert.deepEqual(moved(150, 160, -10, true), [150, 152]);
  // Of a range that begins or lies before the window, what is visible.
  assert.deepEqual(moved(0, 190, 10), [110, 200]);
  assert.deepEqual(moved(0, 50, 10), [110, 112]);
});

test('the timeline begins at the oldest sample', () => {
  const now = 100 * 3600e3;
  const from = (given) => (visibleWindow({ now, last: 300e3, fixed: null, base: null, ...given }).from - now) / 1000;
  assert.equal(from({ oldest: now - 90e3 }), -90);
  assert.equal(from({ oldest: now - 5e3 }), -60);
  assert.equal(from({ oldest: null }), -60);
  assert.equal(from({ oldest: now - 7200e3 }), -3600);
  assert.equal(from({ oldest: now - 7200e3, last: 6000e3 }), -6000);
  assert.equal(from({ oldest: now - 90e3, fixed: { from: now - 200e3, until: now } }), -200);
  assert.equal(from({ oldest: now - 7200e3, base: { from: now - 5000e3, until: now - 4000e3 } }), -5000);
  assert.equal(from({ oldest: now - 90e3, base: { from: now - 600e3, until: now - 300e3 } }), -90);
});

test('stack end reasons are shown by share', () => {
  assert.equal(describeEnds({ whole: 3, cut: 1, never: 0 }), 'whole 75.0 %, cut 25.0 %');
  assert.equal(describeEnds(undefined), '');
});

test('rates of a component are differences between two polls', () => {
  const metrics = [
    { name: 'sent', labels: { exporter: 'otlp' }, value: 30 },
    { name: 'sent', labels: { exporter: 'otlp', transport: 'grpc' }, value: 12 },
    { name: 'sent', labels: { exporter: 'parca' }, value: 5 },
  ];
  assert.equal(metricOf(metrics, 'sent', 'exporter', 'otlp'), 42);
  assert.equal(metricOf(metrics, 'sent', 'exporter', 'nop'), null);
  assert.equal(rateOf(42, 22, 2), 10);
  assert.equal(rateOf(5, 42, 2), null);
  assert.equal(rateOf(5, undefined, 2), null);
  assert.deepEqual([0, 1.25, 12345.6].map(formatRate), ['0', '1.3', '12,346']);
});

test('dropped samples of a component have a total, a rate and reasons', () => {
  const series = (name, labels, value) => ({ name, labels, value, help: 'Samples that it dropped.' });
  const exporter = (reason, value) => series('profcol_exporter_dropped_samples', { exporter: 'otlp', reason }, value);
  const before = [exporter('queue_full', 10), exporter('rejected', 0)];
  const metrics = [
    exporter('rejected', 4), exporter('queue_full', 30), exporter('shutdown', 0),
    series('profcol_exporter_dropped_samples', { exporter: 'parca', reason: 'queue_full' }, 7),
    series('otelcol_exporter_send_failed_profile_samples', { exporter: 'otlp' }, 4),
    series('profcol_relabel_dropped_samples', { processor: 'relabel' }, 5),
    series('profcol_ebpf_cpu_lost_samples', { receiver: 'ebpf_cpu' }, 3), series('profcol_ebpf_cpu_lost_mappings', { receiver: 'ebpf_cpu' }, 9),
    series('otelcol_exporter_padata_dropped_profile_samples', { exporter: 'padata' }, 6),
  ];
  const otlp = dropsOf(metrics, before, 2, 'exporter', 'otlp');
  assert.deepEqual(otlp, { reasons: [{ reason: 'queue full', samples: 30, rate: 10 }, { reason: 'rejected', samples: 4, rate: 2 }], samples: 34, rate: 12 });
  assert.equal(describeDrops(otlp), '12 dropped/s, 34 in all');
  assert.deepEqual(dropsOf(metrics, before, 2, 'processor', 'relabel').reasons, [{ reason: 'Samples that it dropped', samples: 5, rate: 2.5 }]);
  assert.equal(describeDrops(dropsOf(metrics, null, 0, 'receiver', 'ebpf_cpu')), '3 dropped');
  assert.equal(dropsOf(metrics, null, 0, 'exporter', 'padata').samples, 6);
  assert.equal(describeDrops(dropsOf(metrics, before, 2, 'exporter', 'nop')), '');
  assert.equal(dropsOf(before, metrics, 2, 'exporter', 'otlp').rate, null);
});

test('a configuration is shown as YAML', () => {
  const configuration = {
    exporters: { 'otlp_grpc/b': { endpoint: 'b:4317', headers: { 'x-a': 'yes: no' }, tls: {} } },
    list: ['a', 1, null], rules: [{ action: 'keep', regex: '"' }, { action: 'drop' }], version: '1.0', wide: 'ends:',
  };
  assert.deepEqual(asYaml(configuration), [
    'exporters:', '  otlp_grpc/b:', '    endpoint: b:4317', '    headers:', '      x-a: "yes: no"', '    tls: {}',
    'list: [a, 1, null]', 'rules:', '  - action: keep', '    regex: "\\""', '  - action: drop', 'version: "1.0"', 'wide: "ends:"',
  ]);
});

const PROCESSES = [
  { pid: 3, name: 'Web', total: 5, samples: 1, languages: ['native'], labels: { systemd_unit: 'web.service' } },
  { pid: 20, name: 'db', total: 50, samples: 2, languages: ['java', 'native'], labels: { k8s_pod_name: 'db-0' } },
  { pid: 1, name: 'init', total: 5, samples: 9, labels: {} },
];

test('processes sort by each column', () => {
  const pids = (id, ascending) => sortProcesses(PROCESSES, { id, ascending }).map(({ pid }) => pid);
  assert.deepEqual(pids('total', false), [20, 1, 3]);
  assert.deepEqual(pids('pid', true), [1, 3, 20]);
  assert.deepEqual(pids('name', true), [20, 1, 3]);
  assert.deepEqual(pids('unit', false), [3, 20, 1]);
  assert.deepEqual(pids('languages', true), [1, 20, 3]);
  assert.deepEqual(PROCESSES.map(unitOf), ['web.service', 'db-0', '']);
});

test('a process is selected by its PID, and by its host if there are several', () => {
  const [one, other] = ['a', 'b'].map((host) => ({ pid: 1, name: 'init', labels: { host_name: host, systemd_unit: 'x' } }));
  assert.deepEqual(selectionOf(one, [one, { ...one, pid: 2 }]), [['pid', '1']]);
  assert.deepEqual(selectionOf(other, [one, other]), [['pid', '1'], ['host_name', 'b']]);
  const unknown = { pid: 3, labels: {} };
  assert.deepEqual(selectionOf(unknown, [one, unknown]), [['pid', '3']]);
  const numbered = { pid: 1, labels: { host_name: 'a', host_id: '7' } };
  assert.deepEqual(selectionOf(numbered, [one, other, numbered]), [['pid', '1'], ['host_name', 'a'], ['host_id', '7']]);
});

test('processes are found by name, PID, unit, language and label', () => {
  const found = (text) => PROCESSES.filter((process) => matchesProcess(process, text)).map(({ pid }) => pid);
  assert.deepEqual(found(''), [3, 20, 1]);
  assert.deepEqual(found('WEB'), [3]);
  assert.deepEqual(found('20'), [20]);
  assert.deepEqual(found('native db'), [20]);
  assert.deepEqual(found('k8s_pod_name=db'), [20]);
  assert.deepEqual(found('web db'), []);
});

test('dropped processes are listed next to those in the history', () => {
  const attributes = { 'process.executable.name': 'spam' };
  const changes = {
    dropped: [{ pid: 7, processor: 'relabel', pipeline: 'profiles', reason: 'rule 1: drop', attributes }, { pid: 3, processor: 'relabel', pipeline: 'x', reason: 'r', attributes }],
    processes: [{ pid: 8, pipeline: 'profiles', received: {}, changes: [], not_passed_on_by: 'filter' }, { pid: 9, pipeline: 'profiles', received: {}, changes: [] }, { pid: 7, pipeline: 'profiles', received: {}, changes: [], not_passed_on_by: 'relabel' }],
  };
  const fates = droppedProcesses(PROCESSES, changes).map(({ pid, name, fate }) => [pid, name, fate]);
  assert.deepEqual(fates, [[7, 'spam', 'Dropped by relabel in profiles: rule 1: drop'], [8, '', 'Not passed on by filter in profiles']]);
});

test('a batch that passes is described with what is left out', () => {
  const profiles = [{ samples: [1, 2] }, { samples: [] }];
  assert.equal(describeBatch({ samples: 1200, resources: [{ profiles }], omitted: { resources: 2 } }), '1 of 3 resources, 2 of 1,200 samples');
  assert.equal(describeBatch({ samples: 2, resources: [{ profiles }], omitted: { resources: 0 } }), '1 resource, 2 samples');
  assert.equal(resourceName({ 'process.pid': 4, 'process.comm': 'a' }), 'a (4)');
  assert.equal(resourceName({}), '(no name)');
});
