// What the page weighs and how fast it draws, compared with speedscope on the same profile in the same browser.
//
//   NODE_PATH=<directory with puppeteer-core> node benches/page/main.mjs [--nodes 1000,100000,1000000] [--rounds 3]
//     [--viewers profcol,speedscope] [--speedscope FOLDER] [--chromium PROGRAM]
//
// FOLDER is the package's dist/release. There is no GPU: Chromium paints the page in software, and renders speedscope's WebGL with
// SwiftShader. Only ratios within one run are meaningful.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { launch } from '../../tests/page/puppeteer.mjs';
import { makeTree, speedscopeDocument, viewerDocument } from './profile.mjs';
import { Server } from './server.mjs';

const FROM = 1767225600000;
const RANGE = { from: FROM, until: FROM + 300000 };
const FRAMES = 120;
const TIMEOUT_MS = 300000;

function parseArguments(given) {
  const options = { nodes: '1000,100000,1000000', rounds: '3', viewers: 'profcol,speedscope', chromium: '/usr/bin/chromium' };
  for (let index = 0; index < given.length; index += 2) {
    const name = given[index].replace(/^--/, '');
    if (given[index + 1] === undefined) throw new Error(`${given[index]} needs a value`);
    options[name] = given[index + 1];
  }
  const usual = fileURLToPath(new URL('../../target/tools/speedscope-1.25.0/node_modules/speedscope/dist/release', import.meta.url));
  if (!options.speedscope && existsSync(usual)) options.speedscope = usual;
  return { ...options, nodes: options.nodes.split(',').map(Number), rounds: Number(options.rounds), viewers: options.viewers.split(',') };
}

// Runs in the page before its scripts. Both viewers write function names with fillText: the first one tells that the graph is there.
function watchDrawing(prefix) {
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    if (String(text).startsWith(prefix)) {
      CanvasRenderingContext2D.prototype.fillText = fillText;
      // After the frame that it belongs to.
      requestAnimationFrame(() => setTimeout(() => { window.drawnAt = performance.now(); }));
    }
    return fillText.call(this, text, ...rest);
  };
}

// Turns the wheel over the graph once per frame; `deltas` has the deltas of each frame.
async function turnWheel(deltas, usesControl) {
  const [x, y] = [innerWidth / 2, innerHeight * 0.7];
  const target = document.elementFromPoint(x, y);
  const nextFrame = () => new Promise((done) => { requestAnimationFrame(done); });
  // Two kinds of gestures in a row may be taken for one.
  for (let frame = 0; frame < 10; frame++) await nextFrame();
  const intervals = [];
  let before = await nextFrame();
  for (const [deltaX, deltaY] of deltas) {
    target.dispatchEvent(new WheelEvent('wheel', { deltaX, deltaY, clientX: x, clientY: y, ctrlKey: usesControl, bubbles: true, cancelable: true }));
    const now = await nextFrame();
    intervals.push(now - before);
    before = now;
  }
  return intervals;
}

const VIEWERS = {
  // A wheel step of each makes the view 0.93 times as wide.
  profcol: {
    address: `/#from=${RANGE.from}&until=${RANGE.until}`, profile: '/api/v1/profile', zoomStep: Math.log(0.93) / 0.004, args: ['--disable-gpu'],
  },
  speedscope: {
    address: '/speedscope/index.html#profileURL=/speedscope.json&view=left-heavy', profile: '/speedscope.json', zoomStep: -0.07 * 40,
    args: ['--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader'],
  },
};

async function newPage(browser) {
  const page = await browser.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  page.on('pageerror', (error) => console.error(`exception: ${error.message}`));
  return page;
}

async function blankFrames(browser, origin) {
  const page = await newPage(browser);
  await page.goto(`${origin}/blank`);
  const intervals = await page.evaluate(turnWheel, new Array(FRAMES).fill([0, 0]), false);
  await page.close();
  return `${quantile(intervals, 0.5).toFixed(1)} / ${quantile(intervals, 0.95).toFixed(1)}`;
}

async function measureLoad(browser, origin, viewer) {
  const page = await newPage(browser);
  const { address, profile, zoomStep } = VIEWERS[viewer];
  await page.evaluateOnNewDocument(watchDrawing, 'service::');
  await page.goto(`${origin}${address}`);
  await page.waitForFunction(() => window.drawnAt !== undefined && performance.getEntriesByName('first-contentful-paint').length > 0);
  const load = await page.evaluate((path) => {
    const resources = performance.getEntriesByType('resource');
    const there = resources.find(({ name }) => new URL(name).pathname === path).responseEnd;
    const isData = ({ name }) => name.includes('/api/') || name.endsWith('.json');
    const [navigation] = performance.getEntriesByType('navigation');
    return {
      drawn: window.drawnAt - there,
      paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,
      weight: navigation.transferSize + resources.filter((resource) => !isData(resource)).reduce((sum, { transferSize }) => sum + transferSize, 0),
    };
  }, profile);
  const gesture = async (deltas, usesControl) => {
    const before = await page.metrics();
    const intervals = await page.evaluate(turnWheel, deltas, usesControl);
    const after = await page.metrics();
    return { intervals, busy: ((after.TaskDuration - before.TaskDuration) * 1000) / deltas.length };
  };
  const zoomIn = new Array(FRAMES / 2).fill([0, zoomStep]);
  const zoomOut = new Array(FRAMES / 2).fill([0, -zoomStep]);
  load.zoom = await gesture([...zoomIn, ...zoomOut], true);
  // To where panning has room.
  await gesture(zoomIn.slice(0, 30), true);
  load.pan = await gesture([...new Array(FRAMES / 2).fill([20, 0]), ...new Array(FRAMES / 2).fill([-20, 0])], false);
  await page.close();
  return load;
}

function quantile(values, share) {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

function median(loads, of) {
  return quantile(loads.map(of), 0.5);
}

function frames(loads, gesture) {
  const intervals = loads.flatMap((load) => load[gesture].intervals);
  const busy = median(loads, (load) => load[gesture].busy);
  return `${quantile(intervals, 0.5).toFixed(1)} / ${quantile(intervals, 0.95).toFixed(1)} (${busy.toFixed(1)})`;
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  const viewers = Object.keys(VIEWERS).filter((viewer) => options.viewers.includes(viewer) && (viewer !== 'speedscope' || options.speedscope));
  const server = new Server(options.speedscope);
  const origin = await server.listen();
  const browsers = {};
  try {
    for (const viewer of viewers) {
      const { args } = VIEWERS[viewer];
      browsers[viewer] = await launch({ ...options, viewport: { width: 1280, height: 800 }, args, timeout: TIMEOUT_MS });
      console.log(`${viewer}: frames of a blank page take ${await blankFrames(browsers[viewer], origin)} ms`);
    }
    console.log('\n| nodes | viewer | weight, KiB | first paint, ms | data to drawn, ms | zoom, ms per frame | pan, ms per frame |');
    console.log('|---|---|---|---|---|---|---|');
    for (const nodes of options.nodes) {
      const tree = makeTree(nodes);
      server.show(viewerDocument(tree, RANGE), speedscopeDocument(tree));
      const loads = Object.fromEntries(viewers.map((viewer) => [viewer, []]));
      for (let round = 0; round < options.rounds; round++) {
        for (const viewer of viewers) loads[viewer].push(await measureLoad(browsers[viewer], origin, viewer));
      }
      for (const viewer of viewers) {
        const of = (what) => median(loads[viewer], what);
        const weight = (of((load) => load.weight) / 1024).toFixed(1);
        const [paint, drawn] = [of((load) => load.paint), of((load) => load.drawn)].map((value) => value.toFixed(0));
        console.log(`| ${nodes.toLocaleString('en-US')} | ${viewer} | ${weight} | ${paint} | ${drawn} | ${frames(loads[viewer], 'zoom')} | ${frames(loads[viewer], 'pan')} |`);
      }
    }
    console.log('\nFrames: median / 95th percentile of the interval (busy time of the main thread).');
  } finally {
    for (const browser of Object.values(browsers)) await browser.close();
    server.close();
  }
}

await main();
