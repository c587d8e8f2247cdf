// Opens the page of a running profcol in Chromium and uses it.
//
//   node browser.mjs URL SCREENSHOT_FOLDER [--puppeteer FOLDER] [--chromium PROGRAM] [--hostile NAME]
//
// puppeteer-core comes from NODE_PATH or from --puppeteer (the folder of the package). With --hostile, a function of that name
// and a label of that value must be in the profile and must stay text (see main.rs). Exits with 1 and a reason at the first failed check.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { launch } from './puppeteer.mjs';

const PATIENCE_MILLISECONDS = 30000;

function parseArguments(given) {
  const options = { chromium: '/usr/bin/chromium' };
  const places = [];
  for (let index = 0; index < given.length; index++) {
    if (given[index].startsWith('--')) options[given[index].slice(2)] = given[++index];
    else places.push(given[index]);
  }
  if (places.length !== 2) throw new Error('usage: browser.mjs URL SCREENSHOT_FOLDER [--puppeteer FOLDER] [--chromium PROGRAM] [--hostile NAME]');
  return { ...options, url: new URL(places[0]).href, screenshots: places[1] };
}

function check(holds, reason) {
  if (!holds) throw new Error(reason);
}

class Visit {
  constructor(page, options) {
    this.page = page;
    this.options = options;
    this.problems = [];
    this.origin = new URL(options.url).origin;
  }

  // Errors that must not happen on any page.
  watch() {
    this.page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') this.problems.push(`console ${message.type()}: ${message.text()}`);
    });
    this.page.on('pageerror', (error) => this.problems.push(`exception: ${error.stack ?? error}`));
    this.page.on('dialog', (dialog) => {
      this.problems.push(`a dialog opened: ${dialog.message()}`);
      dialog.dismiss();
    });
    this.page.on('request', (request) => {
      const address = request.url();
      if (!address.startsWith(`${this.origin}/`) && !address.startsWith('data:')) this.problems.push(`a request left the host: ${address}`);
    });
    this.page.on('response', (response) => {
      if (response.status() >= 400) this.problems.push(`${response.status()} for ${response.url()}`);
    });
  }

  checkProblems() {
    check(this.problems.length === 0, this.problems.join('\n'));
  }

  async waitFor(what, condition, ...given) {
    try {
      await this.page.waitForFunction(condition, { timeout: PATIENCE_MILLISECONDS, polling: 50 }, ...given);
    } catch (error) {
      const shown = await this.page.evaluate(() => document.querySelector('.error:not([hidden])')?.textContent ?? '');
      throw new Error(`waited in vain for ${what}${shown ? `; the page says: ${shown}` : ''}`, { cause: error });
    }
  }

  // Opens a state of the page with a new load.
  async open(fragment) {
    await this.page.goto('about:blank');
    await this.page.goto(`${this.options.url}${fragment ? `#${fragment}` : ''}`, { waitUntil: 'load' });
    await this.waitForData();
  }

  async waitForData() {
    await this.waitFor('the profile', () => Number(document.querySelector('.viewer')?.dataset.total) > 0 && !document.querySelector('.viewer[aria-busy]'));
  }

  async waitForGraph() {
    await this.waitFor('a drawn flame graph', () => Number(document.querySelector('.graph-canvas')?.dataset.bars) > 1);
  }

  total() {
    return this.page.$eval('.viewer', (viewer) => Number(viewer.dataset.total));
  }

  fragment() {
    return this.page.evaluate(() => new URLSearchParams(location.hash.slice(1)).toString());
  }

  parameter(name) {
    return this.page.evaluate((wanted) => new URLSearchParams(location.hash.slice(1)).getAll(wanted), name);
  }

  // The number of colours in the first rows of the first graph.
  colors() {
    return this.page.$eval('.graph-canvas', (canvas) => {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, Math.min(canvas.height, 300));
      const seen = new Set();
      for (let at = 0; at < data.length && seen.size < 1000; at += 4) seen.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
      return seen.size;
    });
  }

  async screenshot(name) {
    await this.page.screenshot({ path: join(this.options.screenshots, `${name}.png`) });
  }

  async get(path, parameters = {}) {
    const response = await fetch(`${this.origin}/api/v1/${path}?${new URLSearchParams(parameters)}`);
    check(response.ok, `${path} answered ${response.status}`);
    return response.json();
  }

  async lastMinutes() {
    const { now } = await this.get('status');
    return { from: Math.round(now - 300000), until: Math.round(now) };
  }
}

const STEPS = {
  async 'loads without errors and draws'(visit) {
    await visit.open('');
    await visit.waitForGraph();
    check(await visit.colors() > 5, 'the canvas has hardly any colour: nothing was drawn');
    const policy = await visit.page.evaluate(async () => (await fetch('/')).headers.get('content-security-policy'));
    check(policy?.includes("default-src 'none'"), `the page has no strict Content-Security-Policy, but: ${policy}`);
    await visit.screenshot('flame-graph');
  },

  async 'search finds functions and says their share'(visit) {
    await visit.open('');
    const name = await heaviestName(visit);
    await visit.page.type('.search', name);
    await visit.waitFor('the share of what was found', () => document.querySelector('.search-result').textContent.includes('%'));
    await visit.waitFor('the search in the address', (wanted) => new URLSearchParams(location.hash.slice(1)).get('search') === wanted, name);
    await visit.screenshot('search');
    await visit.page.click('#tab-table');
    const names = await visit.page.$$eval('.functions tbody tr .name', (cells) => cells.map((cell) => cell.textContent));
    check(names.length > 0, 'the table is empty under a search that found something');
    check(names.every((shown) => shown.toLowerCase().includes(name.toLowerCase())), 'the table has functions that do not match the search');
    await visit.page.$eval('.search', (box) => { box.value = ''; });
    await visit.page.type('.search', '/(/');
    await visit.waitFor('a word on the wrong expression', () => document.querySelector('.search').getAttribute('aria-invalid') === 'true');
  },

  async 'a click zooms, Escape goes back, a reload restores'(visit) {
    await visit.open('');
    await visit.waitForGraph();
    // A fixed range, so that the graph does not change.
    const { from, until } = await visit.lastMinutes();
    await visit.open(`from=${from}&until=${until}`);
    await visit.waitForGraph();
    const place = await visit.page.$eval('.graph-canvas', (canvas) => {
      const box = canvas.getBoundingClientRect();
      return { x: box.left + box.width / 2, y: box.top + 50 };
    });
    await visit.page.mouse.click(place.x, place.y);
    await visit.waitFor('a zoom in the address', () => new URLSearchParams(location.hash.slice(1)).has('zoom'));
    await new Promise((done) => { setTimeout(done, 400); });
    const reset = await visit.page.evaluate(() => [...document.querySelectorAll('.tools button')].some((button) => button.textContent === 'Reset zoom' && !button.hidden));
    check(reset, 'a zoom has no button that takes it back');
    await visit.screenshot('zoom');
    const zoom = await visit.parameter('zoom');
    const focus = await visit.page.$eval('.graph-canvas', (canvas) => Number(canvas.dataset.focus));
    check(focus > 0, 'the address has a zoom, but the picture has none');
    await visit.page.reload({ waitUntil: 'load' });
    await visit.waitForData();
    await visit.waitForGraph();
    check(JSON.stringify(await visit.parameter('zoom')) === JSON.stringify(zoom), 'the zoom was lost by a reload');
    const restored = await visit.page.$eval('.graph-canvas', (canvas) => Number(canvas.dataset.focus));
    check(restored === focus, `the picture is zoomed to depth ${restored} after the reload, ${focus} before`);
    await visit.page.focus('.graph-canvas');
    await visit.page.keyboard.press('Escape');
    await visit.waitFor('the zoom to be gone', () => !new URLSearchParams(location.hash.slice(1)).has('zoom'));
  },

  async 'new data keeps the zoom'(visit) {
    await visit.open('');
    await visit.waitForGraph();
    await visit.page.focus('.graph-canvas');
    await visit.page.keyboard.press('ArrowDown');
    await visit.page.keyboard.press('Enter');
    await visit.waitFor('a zoom by Enter', () => new URLSearchParams(location.hash.slice(1)).has('zoom'));
    const zoom = await visit.parameter('zoom');
    for (let round = 0; round < 2; round++) {
      await visit.page.waitForResponse((response) => response.url().includes('/api/v1/profile'), { timeout: PATIENCE_MILLISECONDS });
      await visit.waitForData();
    }
    check(JSON.stringify(await visit.parameter('zoom')) === JSON.stringify(zoom), 'new data took the zoom away');
    await visit.page.click('.live');
    const asked = [];
    visit.page.on('request', (request) => asked.push(request.url()));
    await new Promise((done) => { setTimeout(done, 7000); });
    check(!asked.some((address) => address.includes('/api/v1/profile')), 'a paused page asked for new data');
  },

  async 'the keyboard moves in the flame graph'(visit) {
    await visit.open('');
    await visit.waitForGraph();
    await visit.page.focus('.graph-canvas');
    await visit.page.keyboard.press('ArrowDown');
    await visit.page.keyboard.press('ArrowDown');
    await visit.waitFor('words for screen readers', () => /total .*%/.test(document.querySelector('.viewer [aria-live].hidden-text').textContent));
    await visit.page.keyboard.press('Enter');
    await visit.waitFor('a zoom by Enter', () => new URLSearchParams(location.hash.slice(1)).has('zoom'));
  },

  async 'the table sorts'(visit) {
    await visit.open('view=table');
    const self = await visit.page.$$eval('thead th', (heads) => heads.map((head) => head.getAttribute('aria-sort')));
    check(self.includes('descending'), `no column says that it is sorted: ${self}`);
    await visit.page.click('[data-sort="name"]');
    const names = await visit.page.$$eval('.functions tbody tr .name', (cells) => cells.map((cell) => cell.textContent.toLowerCase()));
    check(names.every((name, index) => index === 0 || names[index - 1] <= name || name.endsWith('…')), 'the table is not in the order of names');
    check((await visit.parameter('sort'))[0] === 'name', 'the order is not in the address');
    await visit.page.click('[data-sort="self"]');
    await visit.screenshot('table');
  },

  async 'the call tree opens and closes by keyboard'(visit) {
    await visit.open('view=tree');
    await visit.waitFor('rows of the tree', () => document.querySelectorAll('[role="treeitem"]').length > 0);
    await visit.page.focus('[role="treeitem"][tabindex="0"]');
    const open = () => visit.page.$eval('[role="treeitem"]', (row) => row.getAttribute('aria-expanded'));
    const before = await open();
    if (before !== null) {
      await visit.page.keyboard.press(before === 'true' ? 'ArrowLeft' : 'ArrowRight');
      check(await open() !== before, 'the arrow keys do not open or close a node');
      await visit.page.keyboard.press('ArrowRight');
    }
    await visit.screenshot('call-tree');
  },

  async 'the sandwich has callers and callees'(visit) {
    await visit.open('view=table');
    await visit.page.click('.functions tbody tr:first-child button');
    await visit.page.click('#tab-sandwich');
    await visit.waitFor('both graphs', () => {
      const canvases = [...document.querySelectorAll('.sandwich .graph-canvas')];
      return canvases.length === 2 && canvases.every((canvas) => Number(canvas.dataset.bars) > 0);
    });
    await visit.screenshot('sandwich');
  },

  async 'the processes can be found and sorted, and have their labels before and after'(visit) {
    await visit.open('view=processes');
    const names = () => visit.page.$$eval('.processes tbody tr:not(.expanded) .name', (cells) => cells.map((cell) => cell.textContent));
    await visit.waitFor('processes', () => document.querySelectorAll('.processes tbody tr').length > 1);
    const sorted = () => visit.page.$eval('.processes [aria-sort]:not([aria-sort="none"])', (head) => `${head.textContent} ${head.getAttribute('aria-sort')}`);
    check((await sorted()).endsWith('descending'), `the processes are not in the order of their totals: ${await sorted()}`);
    await visit.page.click('.processes [data-sort="name"]');
    const inOrder = await names();
    check(inOrder.length > 1 && inOrder.every((name, index) => index === 0 || inOrder[index - 1] <= name), `the processes are not in the order of their names: ${inOrder}`);
    await visit.page.click('.processes [data-sort="name"]');
    check((await names()).join() === inOrder.reverse().join(), 'a second click does not reverse the order');
    if (!visit.options.hostile) {
      await visit.screenshot('processes');
      return;
    }
    await visit.waitFor('the work of a processor', () => /changed by 1 processor/.test(document.querySelector('.processes').textContent));
    await visit.waitFor('the dropped process', () => [...document.querySelectorAll('.processes .fate')].some((cell) => /Dropped by relabel in profiles: rule 1: drop, source_labels \[comm\], regex "unwanted"/.test(cell.textContent)));
    await visit.page.type('.view-tools .search', 'team=team-web');
    check((await names()).join() === 'webserver', `found ${await names()} by a label of the web server`);
    await visit.page.click('.processes [data-role="labels"]');
    const steps = await visit.page.$$eval('.label-steps section', (sections) => sections.map((section) => section.textContent));
    check(steps.length === 4 && steps[0].startsWith('Received by otlp') && !steps[0].includes('team'), `the labels before are ${steps[0]}`);
    check(/^Changed by relabel.*team.*team-webserver/.test(steps[1]), `the change is ${steps[1]}`);
    check(steps.at(-1).includes('team-webserver'), `the labels after are ${steps.at(-1)}`);
    await checkStaysText(visit, '.label-steps dd');
    await visit.screenshot('processes');
    await visit.page.$eval('.view-tools .search', (box) => { box.value = ''; });
    await visit.page.type('.view-tools .search', 'nothing like that');
    check((await names()).length === 0, 'the search finds what is not there');
  },

  async 'a look shows what passes a component, and can be paused'(visit) {
    await visit.open('view=pipelines');
    await visit.waitFor('the components', () => document.querySelectorAll('.card').length > 1);
    const click = (kind) => visit.page.evaluate((wanted) => [...document.querySelectorAll('.card')].find((card) => card.textContent.startsWith(wanted)).click(), kind);
    await click('exporter');
    await visit.waitFor('samples that enter the exporter', () => document.querySelectorAll('.passing tbody tr').length > 1);
    if (visit.options.hostile) {
      await click('processor');
      const passing = (side, pattern) => visit.waitFor(`what is ${side} the processor`, (expected) => new RegExp(expected).test([...document.querySelectorAll('.passing .group')].map((row) => row.textContent).join()), pattern);
      await passing('after', 'webserver \\(1\\).*database \\(2\\)');
      const after = await visit.page.$eval('.passing', (table) => table.textContent);
      check(!after.includes('unwanted'), 'what the processor drops is shown behind it');
      check(after.includes('webserver::module_'), `no function in ${after}`);
      await visit.page.select('.tap select', 'input');
      await passing('before', 'unwanted \\(3\\)');
      await visit.page.$eval('.passing details', (details) => { details.open = true; });
      await checkStaysText(visit, '.passing dd');
    }
    await visit.screenshot('tap');
    await visit.page.click('.tap .live');
    const asked = [];
    visit.page.on('request', (request) => asked.push(request.url()));
    await new Promise((done) => { setTimeout(done, 4000); });
    check(!asked.some((address) => address.includes('/api/v1/tap')), 'a paused look goes on');
    await visit.page.click('.tap .live');
    await visit.page.waitForRequest((request) => request.url().includes('/api/v1/tap'), { timeout: PATIENCE_MILLISECONDS });
  },

  async 'the pipelines show what flows, the configuration and the log'(visit) {
    await visit.open('view=pipelines');
    await visit.waitFor('a rate of the receiver', () => Number([...document.querySelectorAll('.card')].find((card) => card.textContent.startsWith('receiver'))?.dataset.rate) > 0);
    const kinds = await visit.page.$$eval('.card-kind', (cells) => cells.map((cell) => cell.textContent));
    check(kinds[0] === 'receiver' && kinds.at(-1) === 'exporter', `the cards are ${kinds}`);
    if (visit.options.hostile) {
      await visit.waitFor('the error of an exporter', () => [...document.querySelectorAll('.card.is-failing')].some((card) => card.textContent.includes('otlp_grpc/away') && /127\.0\.0\.1:1.*refused/i.test(card.querySelector('.card-error').textContent)));
      await visit.page.click('.connector .quiet');
      const followed = await visit.page.evaluate(() => document.activeElement.getAttribute('aria-label'));
      check(followed === 'Pipeline profiles/copy', `the link of the connector leads to ${followed}`);
    }
    await visit.waitFor('the log', () => /Everything is ready/.test(document.querySelector('.log').textContent));
    await visit.screenshot('pipelines');
    await visit.page.click('.stage:last-child .card:last-child');
    await visit.waitFor('metrics of the exporter', () => [...document.querySelectorAll('.metrics .name')].some((cell) => cell.textContent.startsWith('otelcol_exporter_sent_profile_samples')));
    await visit.page.click('.service summary');
    await visit.waitFor('the configuration', () => /^receivers:$/m.test(document.querySelector('.service details .text-block').textContent));
    const secret = await visit.page.$eval('.service details', (box) => box.textContent.includes('planted-secret'));
    check(!secret, 'the configuration shows a secret');
    check(await visit.page.$eval('.service details', (box) => box.textContent.includes('"[REDACTED]"')), 'the configuration has no redacted secret');
  },

  async 'a label filter narrows the total'(visit) {
    const range = await visit.lastMinutes();
    const values = await visit.get('label_values', { name: 'comm', ...range });
    check(values.length > 1, 'the host has one command only: nothing to filter');
    await visit.open(`from=${range.from}&until=${range.until}`);
    const all = await visit.total();
    const [{ value }] = [...values].sort((left, right) => right.total - left.total);
    await visit.page.type('.filter input', '{comm=');
    await visit.waitFor('suggestions', () => document.querySelectorAll('.suggestions [role="option"]').length > 0);
    await visit.page.type('.filter input', `${JSON.stringify(value)}}`);
    await visit.page.keyboard.press('Enter');
    await visit.waitFor('a smaller total', (before) => {
      const total = Number(document.querySelector('.viewer').dataset.total);
      return total > 0 && total < before;
    }, all);
    check((await visit.parameter('query'))[0]?.includes('comm='), 'the filter is not in the address');
    await visit.screenshot('filter');
  },

  async 'a drag over the timeline selects a range'(visit) {
    await visit.open('');
    const box = await visit.page.$eval('.timeline canvas', (canvas) => {
      const { left, top, width, height } = canvas.getBoundingClientRect();
      return { left, top, width, height };
    });
    const y = box.top + box.height / 2;
    await visit.page.mouse.move(box.left + box.width - 60, y);
    await visit.page.mouse.down();
    await visit.page.mouse.move(box.left + box.width - 5, y, { steps: 4 });
    await visit.page.mouse.up();
    await visit.waitFor('a range in the address', () => new URLSearchParams(location.hash.slice(1)).has('until'));
    await visit.page.click('.live');
    await visit.waitFor('the live range', () => !new URLSearchParams(location.hash.slice(1)).has('until'));
  },

  async 'a comparison draws'(visit) {
    await visit.open('');
    const answered = visit.page.waitForResponse((response) => response.url().includes('base_from='), { timeout: PATIENCE_MILLISECONDS });
    await visit.page.evaluate(() => [...document.querySelectorAll('.querybar button')].find((button) => button.textContent === 'Compare').click());
    await answered;
    await visit.waitFor('the palette of a comparison', () => document.querySelector('.legend .scale') !== null && !document.querySelector('.viewer[aria-busy]'));
    await visit.waitForGraph();
    check(await visit.colors() > 3, 'the comparison has hardly any colour');
    await visit.screenshot('comparison');
    await visit.page.click('#tab-table');
    const heads = await visit.page.$$eval('thead th', (cells) => cells.map((cell) => cell.textContent));
    check(heads.includes('Change'), `the table of a comparison has no change: ${heads}`);
  },

  async 'names stay text'(visit) {
    const { hostile } = visit.options;
    await visit.open('view=table');
    if (hostile) {
      await visit.page.type('.search', hostile);
      await visit.waitFor('the hostile name as text', (name) => [...document.querySelectorAll('.functions .name')].some((cell) => cell.textContent === name), hostile);
    }
    for (const view of ['flame', 'table', 'tree', 'sandwich', 'processes', 'pipelines']) {
      await visit.page.click(`#tab-${view}`);
      await new Promise((done) => { setTimeout(done, 300); });
      const made = await visit.page.evaluate(() => ({ images: document.images.length, scripts: document.scripts.length, frames: document.querySelectorAll('iframe, object, embed, svg').length }));
      check(made.images === 0 && made.frames === 0 && made.scripts === 1, `${view}: a name became an element: ${JSON.stringify(made)}`);
    }
  },

  async 'fits into 400 pixels, light and dark'(visit) {
    for (const scheme of ['light', 'dark']) {
      await visit.page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
      await visit.page.setViewport({ width: 400, height: 800 });
      await visit.open('');
      await visit.waitForGraph();
      const width = await visit.page.evaluate(() => document.scrollingElement.scrollWidth);
      check(width <= 400, `the page is ${width} pixels wide on a screen of 400`);
      await visit.screenshot(`narrow-${scheme}`);
      for (const view of ['table', 'tree', 'processes', 'pipelines']) await checkFits(visit, view);
      await visit.page.setViewport({ width: 1280, height: 800 });
      await visit.open('');
      await visit.waitForGraph();
      await visit.screenshot(`wide-${scheme}`);
    }
  },
};

// Nothing scrolls sideways, except the tabs.
async function checkFits(visit, view) {
  await visit.open(`view=${view}`);
  if (view === 'pipelines') await visit.waitFor('the components', () => document.querySelectorAll('.card').length > 1);
  const wider = await visit.page.evaluate(() => [document.scrollingElement, ...document.querySelectorAll('.panel, .panel *')]
    .filter((place) => place.scrollWidth > place.clientWidth && /auto|scroll|visible/.test(getComputedStyle(place).overflowX) && place.clientWidth > 0)
    .map((place) => `${place.tagName}.${place.className}: ${place.scrollWidth} in ${place.clientWidth}`));
  check(wider.length === 0, `${view} is wider than the screen: ${wider.join(', ')}`);
  await visit.screenshot(`narrow-${view}`);
}

// A label value with HTML is shown as it is.
async function checkStaysText(visit, selector) {
  const shown = await visit.page.$$eval(selector, (cells) => cells.map((cell) => cell.textContent));
  check(shown.includes(visit.options.hostile), `the hostile label is shown as ${shown}`);
  check(await visit.page.evaluate(() => document.images.length) === 0, 'a label became an element');
}

async function heaviestName(visit) {
  const profile = await visit.get('profile', { type: 'cpu', ...await visit.lastMinutes(), max_nodes: 1000 });
  const names = profile.functions.frame.map((frame) => profile.strings[profile.frames.name[frame]]);
  const name = names.find((text) => /^[\w.:]{3,40}$/.test(text));
  check(name !== undefined, 'the profile has no function with a plain name to search for');
  return name;
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  mkdirSync(options.screenshots, { recursive: true });
  const browser = await launch({ ...options, viewport: { width: 1280, height: 800 } });
  let step = '';
  try {
    const page = await browser.newPage();
    const visit = new Visit(page, options);
    visit.watch();
    for (const [name, action] of Object.entries(STEPS)) {
      step = name;
      try {
        await action(visit);
        visit.checkProblems();
      } catch (error) {
        await visit.screenshot('failure').catch(() => {});
        throw error;
      }
      console.log(`ok: ${name}`);
    }
  } catch (error) {
    console.error(`FAILED: ${step}: ${error.message}`);
    process.exitCode = 1;
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(`FAILED: ${error.message}`);
  process.exitCode = 1;
});
