// Opens the page of a running profcol in Chromium and uses it.
//
//   node browser.mjs URL SCREENSHOT_FOLDER [--puppeteer FOLDER] [--chromium PROGRAM] [--hostile NAME] [--history START]
//     [--password URL] [--token URL]
//
// puppeteer-core comes from NODE_PATH or from --puppeteer (the directory of the package). With --hostile, a function of that name
// and a label of that value must be in the profile and must stay text. With --history, there are the profiles of main.rs for an hour from
// that time, in milliseconds. The pages of --password and --token require the user and password, and the token, of main.rs. Exits with 1 and a reason at the first failed check.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { launch } from './puppeteer.mjs';

const TIMEOUT_MS = 120_000;
const VIEWPORT = { width: 1280, height: 800 };
// At the same time: most steps wait for new data now and then.
const BROWSERS = 2;

function parseArguments(given) {
  const options = { chromium: '/usr/bin/chromium' };
  const places = [];
  for (let index = 0; index < given.length; index++) {
    if (given[index].startsWith('--')) options[given[index].slice(2)] = given[++index];
    else places.push(given[index]);
  }
  if (places.length !== 2) throw new Error('usage: browser.mjs URL SCREENSHOT_FOLDER [--puppeteer FOLDER] [--chromium PROGRAM] [--hostile NAME] [--history START] [--password URL] [--token URL]');
  return { ...options, url: new URL(places[0]).href, screenshots: places[1] };
}

function check(holds, reason) {
  if (!holds) throw new Error(reason);
}

class Visit {
  constructor(page, options) {
    this.page = page;
    page.setDefaultTimeout(TIMEOUT_MS);
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
      await this.page.waitForFunction(condition, { timeout: TIMEOUT_MS, polling: 50 }, ...given);
    } catch (error) {
      const shown = await this.page.evaluate(() => document.querySelector('.error:not([hidden])')?.textContent ?? '');
      throw new Error(`waited in vain for ${what}${shown ? `; the page says: ${shown}` : ''}`, { cause: error });
    }
  }

  // Opens a page of another server with nothing kept from other pages. It may refuse requests.
  async onServer(url, action) {
    const context = await this.page.browser().createBrowserContext();
    const visit = new Visit(await context.newPage(), { ...this.options, url: new URL(url).href });
    visit.page.on('pageerror', (error) => visit.problems.push(`exception: ${error}`));
    try {
      await action(visit);
      visit.checkProblems();
    } catch (error) {
      await visit.screenshot('failure-of-login').catch(() => {});
      throw error;
    } finally {
      await context.close();
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

  // For the test itself: the page writes to it without asking.
  async allowClipboard() {
    await this.page.browserContext().overridePermissions(this.origin, ['clipboard-read', 'clipboard-write']);
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
    if (visit.options.hostile) {
      const swatches = await visit.page.$$eval('.legend .swatch', (found) => found.map(({ style }) => style.background.match(/\d+/g).map(Number)));
      const difference = Math.max(...swatches[0].map((channel, index) => Math.abs(channel - swatches[1][index])));
      check(swatches.length === 2 && difference > 25, `the binaries have almost equal colours: ${swatches.join(' and ')}`);
    }
    const policy = await visit.page.evaluate(async () => (await fetch('/')).headers.get('content-security-policy'));
    check(policy?.includes("default-src 'none'"), `the page has no strict Content-Security-Policy, but: ${policy}`);
    for (const path of ['', 'page.js', 'api/v1/status', 'api/v1/nothing']) {
      const { headers } = await fetch(`${visit.options.url}${path}`, { headers: { origin: 'https://other.example' } });
      const allowed = [...headers.keys()].filter((name) => name.startsWith('access-control-'));
      check(allowed.length === 0, `/${path} lets pages of other hosts read it: ${allowed}`);
    }
    await visit.screenshot('flame-graph');
  },

  async 'search finds functions and says their share'(visit) {
    await visit.open('');
    const name = await heaviestName(visit);
    await visit.page.type('.search', name);
    await visit.waitFor('the share of what was found', () => /^(at least )?[\d.]+ % in \d+ functions?$/.test(document.querySelector('.search-result').textContent));
    await visit.waitFor('the search in the address', (wanted) => new URLSearchParams(location.hash.slice(1)).get('search') === wanted, name);
    await visit.screenshot('search');
    await visit.page.click('#tab-table');
    const names = await namesOf(visit);
    check(names.length > 0, 'the table is empty under a search that found something');
    check(names.every((shown) => shown.toLowerCase().includes(name.toLowerCase())), 'the table has functions that do not match the search');
    await visit.page.$eval('.search', (box) => { box.value = ''; });
    await visit.page.type('.search', '/(/');
    await visit.waitFor('a word on the wrong expression', () => document.querySelector('.search').getAttribute('aria-invalid') === 'true');
  },

  async 'Enter goes from match to match in each view'(visit) {
    // A fixed range, so that no match comes or goes.
    const { from, until } = await visit.lastMinutes();
    const place = () => visit.page.$eval('.search-result', (output) => (/; (\d+) of (\d+)$/.exec(output.textContent) ?? []).slice(1).map(Number));
    const told = () => visit.page.$eval('.viewer > [aria-live].hidden-text', (output) => output.textContent);
    for (const view of ['flame', 'table', 'tree', 'sandwich']) {
      await visit.open(`from=${from}&until=${until}&view=${view === 'sandwich' ? 'table' : view}`);
      if (view === 'sandwich') {
        await visit.page.click('.functions tbody tr:first-child button');
        await visit.page.click('#tab-sandwich');
        await visit.waitFor('the callers', () => Number(document.querySelector('.sandwich .graph-canvas')?.dataset.bars) > 0);
      }
      await visit.page.type('.search', '/[a-z]/');
      await visit.page.keyboard.press('Enter');
      const [first, count] = await place();
      check(first >= 1 && count > 1, `${view}: Enter finds ${first} of ${count}`);
      if (view === 'flame') check((await told()).includes(' %'), `Enter says only ${await told()}`);
      await visit.page.keyboard.press('Enter');
      const [second] = await place();
      check(second === (first % count) + 1, `${view}: the second Enter goes from ${first} to ${second} of ${count}`);
      if (view === 'tree' || view === 'table') {
        const row = view === 'tree' ? '.tree-row[aria-selected="true"]' : '.functions tr.selected';
        check(await visit.page.$(row) !== null, `${view}: no row is selected`);
      }
      await visit.page.keyboard.down('Shift');
      await visit.page.keyboard.press('Enter');
      await visit.page.keyboard.up('Shift');
      check((await place())[0] === first, `${view}: Shift and Enter do not go back to ${first}`);
      check(await visit.page.evaluate(() => document.activeElement.classList.contains('search')), `${view}: the search loses the focus`);
    }
    // A match that is too narrow is zoomed to.
    await visit.open(`from=${from}&until=${until}`);
    await visit.page.type('.search', 'function_1');
    for (let step = 0; step < 4; step++) await visit.page.keyboard.press('Enter');
    await visit.waitFor('a zoom to the match', () => new URLSearchParams(location.hash.slice(1)).has('zoom'));
    await new Promise((done) => { setTimeout(done, 400); });
    await visit.screenshot('match');
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
      await visit.page.waitForResponse((response) => response.url().includes('/api/v1/profile'), { timeout: TIMEOUT_MS });
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
    const names = (await namesOf(visit)).map((name) => name.toLowerCase());
    check(names.every((name, index) => index === 0 || names[index - 1] <= name), 'the table is not in the order of names');
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
    if (visit.options.hostile) {
      const twins = await visit.page.$$eval('.tree-row', (rows) => rows.filter((row) => row.querySelector('.twin').textContent !== '').map((row) => row.querySelector('.tree-name').textContent));
      check(twins.some((text) => /main.*webserver/.test(text)) && twins.some((text) => /main.*database/.test(text)), `rows of the same name are told apart by ${twins}`);
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
    const [callers, rows] = await visit.page.$eval('.sandwich .graph-scroll', (graph) => [graph.clientHeight, Number.parseFloat(graph.firstChild.style.height)]);
    check(callers <= rows + 1, `there is a gap above the callers: ${callers} pixels for ${rows}`);
    await visit.screenshot('sandwich');
  },

  async 'the processes can be found and sorted, and have their labels before and after'(visit) {
    await visit.open('view=processes');
    const names = () => visit.page.$$eval('.processes tbody tr:not(.expanded) .name', (cells) => cells.map((cell) => cell.textContent));
    await visit.waitFor('processes', () => document.querySelectorAll('.processes tbody tr').length > 1);
    const sorted = () => visit.page.$eval('.processes [aria-sort]:not([aria-sort="none"])', (head) => `${head.textContent} ${head.getAttribute('aria-sort')}`);
    check((await sorted()).endsWith('descending'), `the processes are not in the order of their totals: ${await sorted()}`);
    await visit.page.click('.processes [data-sort="name"]');
    // Another process may come with each poll.
    const inOrder = await names();
    check(inOrder.length > 1 && inOrder.every((name, index) => index === 0 || inOrder[index - 1] <= name), `the processes are not in the order of their names: ${inOrder}`);
    await visit.page.click('.processes [data-sort="name"]');
    const reversed = await names();
    check(reversed.length > 1 && reversed.every((name, index) => index === 0 || reversed[index - 1] >= name), `a second click does not reverse the order: ${reversed}`);
    // The click of a button that is replaced while it is pressed would be lost.
    const point = (type, buttons) => visit.page.evaluate((kind, pressed) => {
      window.toggle ??= document.querySelector('.processes [data-role="labels"]');
      window.toggle.dispatchEvent(new PointerEvent(kind, { bubbles: true, button: 0, buttons: pressed }));
    }, type, buttons);
    await point('pointerdown', 1);
    await visit.page.waitForResponse((response) => response.url().includes('/api/v1/status'), { timeout: TIMEOUT_MS });
    // Time to show the data of a poll.
    await new Promise((done) => { setTimeout(done, 1000); });
    check(await visit.page.evaluate(() => window.toggle.isConnected), 'new data replaces a button that is pressed');
    await point('pointerup', 0);
    await visit.waitFor('new data after the release', () => !window.toggle.isConnected);
    await visit.page.type('.view-tools .search', reversed[0]);
    await visit.page.reload({ waitUntil: 'load' });
    await visit.waitFor('the search and the order after a reload', (name) => document.querySelector('.view-tools .search').value === name
      && document.querySelector('.processes tbody .name')?.textContent === name && document.querySelector('[data-sort="name"]').textContent.includes('▼'), reversed[0]);
    await visit.open('view=processes');
    await visit.waitFor('processes', () => document.querySelectorAll('.processes tbody tr').length > 1);
    if (!visit.options.hostile) {
      await visit.screenshot('processes');
      return;
    }
    await visit.waitFor('the work of a processor', () => /changed by 1 processor/.test(document.querySelector('.processes').textContent));
    await visit.waitFor('the dropped process', () => [...document.querySelectorAll('.processes .fate')].some((cell) => /Dropped by relabel in profiles: rule 1: drop, source_labels \[comm\], regex "unwanted"/.test(cell.textContent)));
    await visit.page.type('.view-tools .search', 'team=team-web');
    check((await names()).join() === 'webserver', `found ${await names()} by a label of the web server`);
    await visit.page.$eval('.processes [data-role="labels"]', (toggle) => toggle.click());
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
      await visit.page.reload({ waitUntil: 'load' });
      await passing('before, after a reload,', 'unwanted \\(3\\)');
      check(await visit.page.$eval('.card[aria-pressed="true"]', (card) => card.textContent.startsWith('processor')), 'a reload loses the chosen component');
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
    await visit.page.waitForRequest((request) => request.url().includes('/api/v1/tap'), { timeout: TIMEOUT_MS });
  },

  async 'the pipelines show what flows, the configuration and the log'(visit) {
    await visit.open('view=pipelines');
    await visit.waitFor('a rate of the receiver', () => Number([...document.querySelectorAll('.card')].find((card) => card.textContent.startsWith('receiver'))?.dataset.rate) > 0);
    const kinds = await visit.page.$$eval('.card-kind', (cells) => cells.map((cell) => cell.textContent));
    check(kinds[0] === 'receiver' && kinds.at(-1) === 'exporter', `the cards are ${kinds}`);
    if (visit.options.hostile) {
      await visit.waitFor('the error of an exporter', () => [...document.querySelectorAll('.card.is-failing')].some((card) => card.textContent.includes('otlp_grpc/away') && /127\.0\.0\.1:1.*refused/i.test(card.querySelector('.card-error').textContent)));
      const says = (name, pattern) => visit.waitFor(`the drops of ${name}`, ([wanted, expected]) => [...document.querySelectorAll('.card')].some((card) => card.querySelector('.name').textContent === wanted && new RegExp(expected).test(card.querySelector('.card-drops').textContent)), [name, pattern]);
      for (const name of ['relabel', 'otlp_grpc/away']) await says(name, '^[1-9][\\d,.]* dropped/s, [1-9][\\d,]* in all$');
      await says('otlp', '^$');
      await visit.page.click('.connector .quiet');
      const followed = await visit.page.evaluate(() => document.activeElement.getAttribute('aria-label'));
      check(followed === 'Pipeline profiles/copy', `the link of the connector leads to ${followed}`);
      // Away from the button, for the picture in the documentation.
      await visit.page.mouse.move(1000, 300);
    }
    await visit.waitFor('the log', () => /Everything is ready/.test(document.querySelector('.log').textContent));
    await visit.screenshot('pipelines');
    await visit.page.click('.stage:last-child .card:last-child');
    if (visit.options.hostile) {
      await checkDrops(visit, 'exporter', 'otlp_grpc/away', ['queue full']);
      await visit.page.click('.stage:nth-child(2) .card');
      await checkDrops(visit, 'processor', 'relabel', ['Samples dropped by a rule']);
      await visit.page.click('.stage:first-child .card');
      check(await visit.page.$eval('.drops', (table) => table.hidden), 'a receiver that drops nothing has a table of drops');
      await visit.page.click('.stage:last-child .card:last-child');
    }
    const hasMetric = (wanted) => [...document.querySelectorAll('.metrics .name')].some((cell) => cell.textContent.startsWith(wanted));
    await visit.waitFor('metrics of the exporter', hasMetric, 'otelcol_exporter_queue_capacity');
    if (visit.options.hostile) {
      // Nothing was sent.
      check(!await visit.page.evaluate(hasMetric, 'otelcol_exporter_sent_profile_samples'), 'metrics of 0 take room');
      await visit.page.click('.service > .quiet');
      await visit.waitFor('metrics of 0', hasMetric, 'otelcol_exporter_sent_profile_samples');
    }
    await visit.page.click('.service > details summary');
    await visit.waitFor('the configuration', () => /^receivers:$/m.test(document.querySelector('.service > details .text-block').textContent));
    const secret = await visit.page.$eval('.service > details', (box) => box.textContent.includes('planted-secret'));
    check(!secret, 'the configuration shows a secret');
    check(await visit.page.$eval('.service > details', (box) => box.textContent.includes('"[REDACTED]"')), 'the configuration has no redacted secret');
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

  async 'the keyboard moves the range and chooses a baseline'(visit) {
    const { from, until } = await visit.lastMinutes();
    await visit.open(`from=${until - 20000}&until=${until}&base=previous`);
    const address = async () => Object.fromEntries(new URLSearchParams(await visit.fragment()));
    const button = (label) => visit.page.evaluate((text) => [...document.querySelectorAll('.comparison button')].find((found) => found.textContent === text).click(), label);
    await button('On the timeline');
    await visit.page.keyboard.press('ArrowLeft');
    await visit.waitFor('a baseline in the address', () => new URLSearchParams(location.hash.slice(1)).has('baseFrom'));
    const first = await address();
    check(first.base === 'range' && Number(first.until) === until, `the arrow key changed ${JSON.stringify(first)}`);
    check(Number(first.baseUntil) < until - 20000 && Number(first.baseFrom) < Number(first.baseUntil), `the baseline is ${JSON.stringify(first)}`);
    await visit.page.keyboard.down('Shift');
    await visit.page.keyboard.press('ArrowRight');
    await visit.page.keyboard.up('Shift');
    await visit.waitFor('a longer baseline', (before) => Number(new URLSearchParams(location.hash.slice(1)).get('baseUntil')) > before, Number(first.baseUntil));
    const longer = await address();
    check(longer.baseFrom === first.baseFrom && longer.from === first.from, `Shift with an arrow key moved ${JSON.stringify(longer)}`);
    await visit.page.keyboard.press('Enter');
    await visit.page.keyboard.press('ArrowLeft');
    await visit.waitFor('another range', (before) => Number(new URLSearchParams(location.hash.slice(1)).get('until')) < before, until);
    const moved = await address();
    check(moved.baseFrom === longer.baseFrom && moved.baseUntil === longer.baseUntil && Number(moved.from) > from, `after Enter an arrow key moved ${JSON.stringify(moved)}`);
  },

  async 'a question mark lists the keys'(visit) {
    await visit.open('');
    await visit.page.focus('.graph-canvas');
    await visit.page.keyboard.type('?');
    const keys = await visit.page.$eval('.keys[open]', (dialog) => dialog.textContent);
    check(keys.includes('Flame graph') && keys.includes('Timeline'), `the list of keys is ${keys}`);
    await visit.screenshot('keys');
    await visit.page.keyboard.press('Escape');
    check(await visit.page.$('.keys[open]') === null, 'Escape does not close the list of keys');
    check(await visit.page.evaluate(() => document.activeElement.className) === 'graph-canvas', 'the focus does not return to the flame graph');
    await visit.page.focus('.search');
    await visit.page.keyboard.type('?');
    check(await visit.page.$('.keys[open]') === null, 'a question mark in the search opens the list of keys');
  },

  async 'an hour has data from its first to its last minute'(visit) {
    if (!visit.options.history) return;
    const { start, end } = hourOf(visit);
    await visit.open(`from=${start}&until=${end}`);
    check(await visit.total() === 5400e9, `the hour has ${await visit.total()} nanoseconds of CPU time instead of 5,400 s`);
    await visit.open('last=3600');
    // The lowest pixels of the columns.
    const filled = await visit.page.$eval('.timeline canvas', (canvas) => {
      const ratio = devicePixelRatio;
      const { data } = canvas.getContext('2d').getImageData(60 * ratio, canvas.height - 20 * ratio, canvas.width - 60 * ratio, 1);
      let count = 0;
      for (let at = 0; at < data.length; at += 4) if (Math.max(data[at], data[at + 1], data[at + 2]) - Math.min(data[at], data[at + 1], data[at + 2]) > 60) count += 1;
      return count / (data.length / 4);
    });
    const colors = await visit.page.evaluate(() => {
      const canvas = document.querySelector('.timeline canvas');
      const { data } = canvas.getContext('2d').getImageData(canvas.width / 2, 0, 1, canvas.height - 20 * devicePixelRatio);
      const drawn = new Set();
      for (let at = 0; at < data.length; at += 4) drawn.add(`rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`);
      return [...document.querySelectorAll('.timeline-legend .swatch')].map(({ style }) => [style.background, drawn.has(style.background)]);
    });
    check(colors.length === 2 && colors.every(([, isDrawn]) => isDrawn), `the chosen range has not the colours of the legend: ${colors}`);
    check(filled > 0.97, `only ${Math.round(filled * 100)} % of the timeline's hour have data`);
    await visit.screenshot('hour');
  },

  async 'the button compares with the period before'(visit) {
    await visit.open('');
    const answered = visit.page.waitForResponse((response) => response.url().includes('base_from='), { timeout: TIMEOUT_MS });
    await visit.page.evaluate(() => [...document.querySelectorAll('.querybar button')].find((button) => button.textContent === 'Compare').click());
    await answered;
    if (!visit.options.history) return;
    await visit.waitFor('the palette of a comparison', () => document.querySelector('.legend .scale') !== null && !document.querySelector('.viewer[aria-busy]'));
    await visit.waitForGraph();
    await visit.screenshot('comparison');
    await visit.page.click('#tab-table');
    const heads = await visit.page.$$eval('thead th', (cells) => cells.map((cell) => cell.textContent));
    check(heads.includes('Change'), `the table of a comparison has no change: ${heads}`);
  },

  async 'a comparison has the numbers and colours of what changed, by share and absolute'(visit) {
    if (!visit.options.history) return;
    const { half, end } = hourOf(visit);
    await visit.open(`from=${half}&until=${end}&base=previous`);
    await visit.waitForGraph();
    await expectSame(colorsOf(visit, 2), {
      'webserver::compress': 'more', 'webserver::parse': 'less', 'database::scan': 'less', 'database::commit': 'less',
    });
    await visit.screenshot('comparison-by-share');
    await visit.page.select('[aria-label="Compare by"]', 'absolute');
    await expectSame(colorsOf(visit, 2), {
      'webserver::compress': 'more', 'webserver::parse': 'less', 'database::scan': 'more', 'database::commit': 'same',
    });
    await visit.page.click('#tab-table');
    await expectSame(changesOf(visit), {
      'webserver::compress': ['30 min', '3 min', '+27 min'], 'webserver::parse': ['6 min', '9 min', '−3 min'],
      'database::scan': ['18 min', '12 min', '+6 min'], 'database::commit': ['6 min', '6 min', '0'],
    });
    await visit.page.select('[aria-label="Compare by"]', 'share');
    await expectSame(changesOf(visit), {
      'webserver::compress': ['50.0 %', '10.0 %', '+40.00 pp'], 'webserver::parse': ['10.0 %', '30.0 %', '−20.00 pp'],
      'database::scan': ['30.0 %', '40.0 %', '−10.00 pp'], 'database::commit': ['10.0 %', '20.0 %', '−10.00 pp'],
    });
    await visit.screenshot('comparison-table');
  },

  async 'a comparison can be downloaded and copied'(visit) {
    if (!visit.options.history) return;
    const { half, end } = hourOf(visit);
    await visit.open(`from=${half}&until=${end}&base=previous&difference=absolute`);
    await visit.page.click('.menu summary');
    await visit.waitFor('the downloads', () => document.querySelector('.menu a') !== null);
    const links = Object.fromEntries(await visit.page.$$eval('.menu a', (found) => found.map((link) => [link.textContent, link.href])));
    check(['pprof', 'Folded stacks', 'speedscope', 'Firefox Profiler'].every((label) => links[`${label}, current only`]), `the downloads are ${Object.keys(links)}`);
    await visit.screenshot('downloads');
    const download = async (label) => (await fetch(links[label])).text();
    const svg = await download('SVG flame graph, difference');
    check(svg.includes('180.000 s before (10.00%), 1800.000 s after (50.00%)'), `the SVG has no difference of compress: ${svg.slice(0, 2000)}`);
    // The same values before and after have no colour, which is so in absolute terms only.
    check(/<title>database::commit [^]*?fill="hsl\(28 0% 92%\)"/.test(svg.slice(svg.indexOf('<title>database::commit'))), 'the SVG does not compare absolute values');
    const folded = await download('Folded stacks, current only');
    const total = folded.trim().split('\n').reduce((sum, line) => sum + Number(line.split(' ').pop()), 0);
    check(total === 3600e9, `the folded stacks have ${total} nanoseconds instead of the 3,600 s of the current range`);
    await visit.allowClipboard();
    const copy = (text) => visit.page.evaluate((label) => [...document.querySelectorAll('button')].find((found) => found.textContent === label).click(), text);
    await copy('Copy as folded stacks, current only');
    await visit.waitFor('the stacks in the clipboard', (wanted) => navigator.clipboard.readText().then((text) => text === wanted), folded);
    await checkFile(visit, await download('HTML, one file, difference'), folded);
  },

  async 'a baseline without samples is no comparison'(visit) {
    if (!visit.options.history) return;
    const { start, half } = hourOf(visit);
    await visit.open(`from=${start}&until=${half}&base=previous`);
    await visit.waitForGraph();
    check(await visit.page.$eval('.notice', (notice) => !notice.hidden && notice.textContent.includes('No samples in the baseline')), 'the page does not say that the baseline is empty');
    check(await visit.page.$('.legend .scale') === null, 'there are colours of a comparison without a baseline');
    await visit.screenshot('no-baseline');
    await visit.page.click('#tab-table');
    const heads = await visit.page.$$eval('thead th', (cells) => cells.map((cell) => cell.textContent));
    check(!heads.includes('Change'), `the table compares with nothing: ${heads}`);
    await visit.page.click('#tab-pipelines');
    check(await visit.page.$eval('.notice', (notice) => notice.hidden), 'the pipelines say that the baseline is empty');
  },

  async 'two sets of labels can be compared'(visit) {
    if (!visit.options.history) return;
    const { half, end } = hourOf(visit);
    const labels = new URLSearchParams({ query: '{comm="webserver"}', baseQuery: '{comm="database"}' });
    await visit.open(`from=${half}&until=${end}&base=same&${labels}`);
    await visit.waitForGraph();
    await expectSame(colorsOf(visit, 2), {
      'webserver::compress': 'more', 'webserver::parse': 'more', 'database::scan': 'less', 'database::commit': 'less',
    });
    await visit.page.click('#tab-table');
    await expectSame(changesOf(visit), {
      'webserver::compress': ['83.3 %', '0 %', '+83.33 pp'], 'webserver::parse': ['16.7 %', '0 %', '+16.67 pp'],
      'database::scan': ['0 %', '75.0 %', '−75.00 pp'], 'database::commit': ['0 %', '25.0 %', '−25.00 pp'],
    });
  },

  async 'the browser asks for user and password'(visit) {
    if (!visit.options.password) return;
    await visit.onServer(visit.options.password, async (stranger) => {
      // Without a window there is nobody to ask.
      const refused = await stranger.page.goto(stranger.options.url).then((response) => `status ${response.status()}`, (error) => error.message);
      check(refused.includes('ERR_INVALID_AUTH_CREDENTIALS'), `the browser does not ask for a password: ${refused}`);
    });
    await visit.onServer(visit.options.password, async (user) => {
      await user.page.authenticate({ username: 'ann', password: 'correct horse' });
      await user.open('');
      await user.waitForGraph();
    });
  },

  async 'the page asks for a token, keeps it for the tab, and sends it with downloads'(visit) {
    if (!visit.options.token) return;
    await visit.onServer(visit.options.token, async (user) => {
      const logIn = async (token) => {
        await user.waitFor('a question for the token', () => document.querySelector('.login[open] input') !== null);
        await user.page.type('.login input', token);
        await user.page.keyboard.press('Enter');
      };
      await user.page.goto(user.options.url);
      await user.waitFor('a question for the token', () => document.querySelector('.login[open]') !== null);
      await user.screenshot('login');
      await logIn('wrong');
      await user.waitFor('a word on the wrong token', () => document.querySelector('.login[open] .error:not([hidden])') !== null);
      await logIn('correct-token');
      await user.waitForData();
      await user.waitForGraph();
      const shown = await user.page.evaluate(() => location.href + document.cookie + document.body.textContent);
      check(!shown.includes('correct-token'), `the page or its address has the token: ${shown}`);
      await user.page.reload({ waitUntil: 'load' });
      await user.waitForData();
      check(await user.page.$('.login') === null, 'a reload asks for the token again');
      await user.page.click('#tab-pipelines');
      await user.waitFor('the components', () => document.querySelectorAll('.card').length > 1);
      const saved = await downloaded(user, /^profile-\d+\.folded$/, async () => {
        await user.page.click('.menu summary');
        await user.waitFor('the downloads', () => document.querySelector('.menu a') !== null);
        await user.page.evaluate(() => [...document.querySelectorAll('.menu a')].find((found) => found.textContent === 'Folded stacks').click());
      });
      check(/^main;/m.test(saved), `the download has no stacks: ${saved.slice(0, 500)}`);
    });
    await visit.onServer(visit.options.token, async (other) => {
      await other.page.goto(other.options.url);
      await other.waitFor('a question for the token', () => document.querySelector('.login[open]') !== null);
    });
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
      for (const place of ['.history', '.legend', '.hint']) {
        const height = await visit.page.$eval(place, (shown) => shown.getBoundingClientRect().height);
        check(height > 0, `${place} is not shown on a narrow screen`);
      }
      await visit.screenshot(`narrow-${scheme}`);
      for (const view of ['table', 'tree', 'processes', 'pipelines']) await checkFits(visit, view);
      await visit.page.setViewport(VIEWPORT);
      await visit.open('');
      await visit.waitForGraph();
      await visit.screenshot(`wide-${scheme}`);
    }
  },
};

// The whole names in the table of functions.
function namesOf(visit) {
  return visit.page.$$eval('.functions tbody tr .name', (cells) => cells.map((cell) => cell.title.split('\n')[0]));
}

// The hour of main.rs, in milliseconds.
function hourOf(visit) {
  const start = Number(visit.options.history);
  return { start, half: start + 1800e3, end: start + 3600e3 };
}

// A file with the profile opens without a server, and gives its stacks away.
async function checkFile(visit, html, folded) {
  const path = join(visit.options.screenshots, 'difference.html');
  writeFileSync(path, html);
  const file = new Visit(await visit.page.browser().newPage(), { ...visit.options, url: pathToFileURL(path).href });
  file.page.on('pageerror', (error) => file.problems.push(`exception: ${error}`));
  file.page.on('console', (message) => file.problems.push(`console: ${message.text()}`));
  await file.page.goto(file.options.url);
  await file.waitForGraph();
  check(await file.page.$('.legend .scale') !== null, 'the file does not compare');
  await file.screenshot('file');
  const lines = (text) => text.trim().split('\n').sort().join('\n');
  const saved = await downloaded(file, /^profile\.folded$/, () => file.page.evaluate(
    () => [...document.querySelectorAll('button')].find((found) => found.textContent.startsWith('Download folded')).click(),
  ));
  check(lines(saved) === lines(folded), 'the file saves other stacks than the server');
  file.checkProblems();
  await file.page.close();
}

// The text of the file that an action saves.
async function downloaded(visit, name, action) {
  const directory = join(visit.options.screenshots, 'downloads');
  mkdirSync(directory, { recursive: true });
  const saved = () => readdirSync(directory).find((file) => name.test(file));
  for (const old of readdirSync(directory).filter((file) => name.test(file))) rmSync(join(directory, old));
  const session = await visit.page.createCDPSession();
  await session.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: directory, browserContextId: visit.page.browserContext().id });
  await action();
  const deadline = Date.now() + TIMEOUT_MS;
  while (!saved() && Date.now() < deadline) await new Promise((done) => { setTimeout(done, 50); });
  check(saved() !== undefined, `no file ${name} was saved`);
  return readFileSync(join(directory, saved()), 'utf8');
}

async function expectSame(shown, expected) {
  const sorted = (object) => JSON.stringify(Object.entries(object).sort());
  const [is, wanted] = [sorted(await shown), sorted(expected)];
  check(is === wanted, `the comparison shows\n${is} instead of\n${wanted}`);
}

// Whether the bars of a row have the colour of "more", "less" or "same", by name.
async function colorsOf(visit, row) {
  const colors = {};
  const place = await visit.page.$eval('.graph-canvas', (canvas) => canvas.getBoundingClientRect().toJSON());
  const y = row * 20 + 4;
  for (let x = 8; x < place.width; x += 24) {
    await visit.page.mouse.move(place.left + x, place.top + y);
    const [name, color] = await visit.page.evaluate((left, top) => {
      const ratio = devicePixelRatio;
      const [red, , blue] = document.querySelector('.graph-canvas').getContext('2d').getImageData(left * ratio, top * ratio, 1, 1).data;
      const shown = document.querySelector('.tooltip:not([hidden]) .tooltip-name');
      return [shown?.textContent, red - blue > 15 ? 'more' : blue - red > 15 ? 'less' : 'same'];
    }, x, y);
    if (name) colors[name] = color;
  }
  return colors;
}

// Self, baseline and change of each function except main.
function changesOf(visit) {
  return visit.page.$$eval('.functions tbody tr', (rows) => Object.fromEntries(rows.map((row) => [...row.children].map((cell) => cell.textContent))
    .filter(([name]) => name !== 'main').map(([name, , ...numbers]) => [name, numbers.slice(0, 3)])));
}

// The reasons, and the number that the service has.
async function checkDrops(visit, kind, id, reasons) {
  await visit.waitFor(`the drops of the ${kind} ${id}`, (wanted) => JSON.stringify([...document.querySelectorAll('.drops:not([hidden]) tbody th')].map((cell) => cell.textContent)) === wanted, JSON.stringify(reasons));
  const counted = async () => (await visit.get('pipelines', {})).metrics
    .filter(({ name, labels, value }) => labels[kind] === id && name.endsWith('_dropped_samples') && value > 0).reduce((sum, { value }) => sum + value, 0);
  const before = await counted();
  const isCounted = (least) => [...document.querySelectorAll('.drops tbody td:nth-child(2)')].reduce((sum, cell) => sum + Number(cell.textContent.replaceAll(',', '')), 0) >= least;
  await visit.waitFor('the number of dropped samples', isCounted, before);
  check(await visit.page.evaluate((most) => [...document.querySelectorAll('.drops tbody td:nth-child(2)')].reduce((sum, cell) => sum + Number(cell.textContent.replaceAll(',', '')), 0) <= most, await counted()), 'the page shows more dropped samples than there are');
}

// Nothing scrolls sideways, except the tabs.
async function checkFits(visit, view) {
  await visit.open(`view=${view}`);
  if (view === 'pipelines') await visit.waitFor('the components', () => document.querySelectorAll('.card').length > 1);
  const wider = await visit.page.evaluate(() => [document.scrollingElement, ...document.querySelectorAll('.panel, .panel *')]
    .filter((place) => place.scrollWidth > place.clientWidth && /auto|scroll|visible/.test(getComputedStyle(place).overflowX) && place.clientWidth > 0)
    .map((place) => `${place.tagName}.${place.className}: ${place.scrollWidth} in ${place.clientWidth}`));
  if (view === 'table') {
    const cut = await visit.page.$$eval('.functions .name > button', (names) => names.filter((name) => name.scrollWidth > name.clientWidth).map((name) => name.textContent));
    check(cut.length === 0, `the ends of names are missing: ${cut}`);
  }
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

// Runs the remaining steps, one after the other, in a browser of its own.
async function work(options, remaining) {
  const browser = await launch({ ...options, viewport: VIEWPORT, timeout: TIMEOUT_MS });
  try {
    for (let next = remaining.shift(); next; next = remaining.shift()) {
      const [name, action] = next;
      const page = await browser.newPage();
      const visit = new Visit(page, options);
      visit.watch();
      const started = Date.now();
      try {
        await action(visit);
        visit.checkProblems();
      } catch (error) {
        remaining.length = 0;
        await visit.screenshot('failure').catch(() => {});
        throw new Error(`${name}: ${error.message}`, { cause: error });
      }
      await page.close();
      console.log(`ok: ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
    }
  } finally {
    await browser.close();
  }
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  mkdirSync(options.screenshots, { recursive: true });
  const remaining = Object.entries(STEPS);
  await Promise.all(Array.from({ length: BROWSERS }, () => work(options, remaining)));
}

main().catch((error) => {
  console.error(`FAILED: ${error.message}`);
  process.exitCode = 1;
});
