import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { bundle, PAGE_MODULES, readModule, STANDALONE_MODULES, VIEWER } from './bundle.js';

const BUNDLES = { page: PAGE_MODULES, standalone: STANDALONE_MODULES };
const IMPORT = /^import \{ ([\w, ]+) \} from '\.\/([\w]+\.js)';$/;
const DECLARATION = /^(?:export )?(?:async )?(?:function\*?|const|let|var|class) (\w+)/;

test('every module is in a bundle', () => {
  const files = readdirSync(VIEWER).filter((name) => name.endsWith('.js')).sort();
  assert.deepEqual(files, [...new Set([...PAGE_MODULES, ...STANDALONE_MODULES])].sort());
});

test('the build joins the same modules in the same order', () => {
  const source = readFileSync(join(VIEWER, '../src/viewer.rs'), 'utf8');
  const list = (name) => [...new RegExp(`const ${name}: [^=]*= modules!\\(([^)]*)\\)`).exec(source)[1].matchAll(/"([\w.]+)"/g)].map(([, file]) => file);
  assert.deepEqual([...list('SHARED'), ...list('LIVE')], PAGE_MODULES);
  assert.deepEqual([...list('SHARED'), ...list('STANDALONE')], STANDALONE_MODULES);
});

test('imports are named, on one line, and exported by the module', () => {
  for (const name of new Set([...PAGE_MODULES, ...STANDALONE_MODULES])) {
    for (const line of readModule(name).split('\n').filter((text) => /^\s*import\b/.test(text))) {
      const match = IMPORT.exec(line);
      assert.ok(match, `${name}: ${line}`);
      const [, names, from] = match;
      for (const imported of names.split(', ')) {
        const exported = new RegExp(`^export (?:async )?(?:function|const|class) ${imported}\\b`, 'm');
        assert.match(readModule(from), exported, `${name} imports ${imported} from ${from}`);
      }
    }
  }
});

test('exports are declarations at the start of a line', () => {
  for (const name of new Set([...PAGE_MODULES, ...STANDALONE_MODULES])) {
    for (const line of readModule(name).split('\n').filter((text) => /^\s*export\b/.test(text))) {
      assert.match(line, /^export (?:async )?(?:function|const|class) \w+/, `${name}: ${line}`);
    }
  }
});

for (const [bundleName, modules] of Object.entries(BUNDLES)) {
  test(`${bundleName}: a module comes after its imports`, () => {
    modules.forEach((name, place) => {
      for (const line of readModule(name).split('\n')) {
        const match = IMPORT.exec(line);
        if (match) assert.ok(modules.indexOf(match[2]) >= 0 && modules.indexOf(match[2]) < place, `${name} needs ${match[2]} before it`);
      }
    });
  });

  test(`${bundleName}: no name is declared twice`, () => {
    const declared = new Map();
    for (const name of modules) {
      for (const line of readModule(name).split('\n')) {
        const match = DECLARATION.exec(line);
        if (!match) continue;
        assert.ok(!declared.has(match[1]), `${match[1]} is in ${declared.get(match[1])} and ${name}`);
        declared.set(match[1], name);
      }
    }
  });

  test(`${bundleName}: the bundle is JavaScript and cannot end its <script>`, () => {
    const text = bundle(modules);
    assert.doesNotMatch(text, /^\s*(import|export)\b/m);
    assert.doesNotMatch(text, /<\/script|<!--/i);
    assert.doesNotThrow(() => new Function(`"use strict"; async () => {\n${text}\n};`));
  });
}

test('no string spans lines: the build drops indentation', () => {
  for (const name of new Set([...PAGE_MODULES, ...STANDALONE_MODULES])) {
    for (const line of readModule(name).split('\n')) assert.equal((line.match(/`/g)?.length ?? 0) % 2, 0, `${name}: ${line}`);
  }
});

test('markup is never built from text', () => {
  for (const name of new Set([...PAGE_MODULES, ...STANDALONE_MODULES])) {
    assert.doesNotMatch(readModule(name), /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|setAttribute\('style'/, name);
  }
});

test('no external resources are loaded', () => {
  for (const name of [...PAGE_MODULES, 'standalone.js', 'style.css', 'page.html', 'standalone.html']) {
    const text = readModule(name).replaceAll('http://www.w3.org/2000/svg', '');
    assert.doesNotMatch(text, /https?:\/\/|@import/, name);
  }
});

test('the first load stays small', () => {
  const parts = [readFileSync(join(VIEWER, 'page.html')), readFileSync(join(VIEWER, 'style.css')), Buffer.from(bundle(PAGE_MODULES))];
  const compressed = parts.reduce((sum, part) => sum + gzipSync(part, { level: 9 }).length, 0);
  assert.ok(compressed < 60_000, `${compressed} bytes compressed`);
});
