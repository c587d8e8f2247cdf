// Joins modules as the build does: in this order, without imports, exports, indentation and comment lines.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const VIEWER = join(dirname(fileURLToPath(import.meta.url)), '..');

const SHARED = [
  'format.js', 'dom.js', 'colors.js', 'tints.js', 'profile.js', 'paths.js', 'search.js', 'layout.js', 'details.js', 'legend.js', 'selection.js', 'keys.js', 'paint.js', 'graphinput.js', 'flamegraph.js', 'table.js',
  'calltree.js', 'sandwich.js', 'url.js', 'viewer.js',
];

export const PAGE_MODULES = [...SHARED, 'login.js', 'api.js', 'selector.js', 'labelfilter.js', 'timeline.js', 'processes.js', 'tap.js', 'metrics.js', 'pipelines.js', 'page.js'];
export const STANDALONE_MODULES = [...SHARED, 'callers.js', 'folded.js', 'standalone.js'];

export function readModule(name) {
  return readFileSync(join(VIEWER, name), 'utf8');
}

export function bundle(modules) {
  const lines = modules.flatMap((name) => readModule(name).split('\n')).map((line) => line.trim());
  return lines.filter((line) => line !== '' && !line.startsWith('//') && !line.startsWith('import ')).map((line) => line.replace(/^export /, '')).join('\n');
}
