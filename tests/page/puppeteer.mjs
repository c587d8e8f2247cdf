// Finds puppeteer-core and starts a browser with it.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

// `import` ignores NODE_PATH, and the package has no entry for `require`.
async function loadPuppeteer(directory) {
  const directories = [directory, ...(process.env.NODE_PATH ?? '').split(':').filter(Boolean).map((path) => join(path, 'puppeteer-core'))].filter(Boolean);
  const found = directories.find((path) => existsSync(join(path, 'package.json')));
  if (!found) throw new Error('puppeteer-core is neither in NODE_PATH nor given with --puppeteer');
  const description = JSON.parse(readFileSync(join(found, 'package.json'), 'utf8'));
  const entry = description.exports?.['.'];
  const file = typeof entry === 'string' ? entry : entry?.import?.default ?? entry?.import ?? entry?.default ?? description.main;
  return (await import(pathToFileURL(join(found, file)))).default;
}

// `options`: chromium (a program), puppeteer (the directory of the package, if not in NODE_PATH), viewport, args, timeout (of a request
// to the browser, in milliseconds).
export async function launch(options) {
  const puppeteer = await loadPuppeteer(options.puppeteer);
  return puppeteer.launch({
    executablePath: options.chromium, headless: true, defaultViewport: options.viewport, timeout: options.timeout, protocolTimeout: options.timeout,
    args: [
      '--no-sandbox', '--disable-dev-shm-usage', '--no-first-run', '--disable-background-networking', '--disable-component-update',
      ...(options.args ?? ['--disable-gpu']),
    ],
  });
}
