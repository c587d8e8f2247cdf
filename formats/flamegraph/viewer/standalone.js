// The viewer of a one-file page: the profile is in the file, and there is no server.
import { abbreviate, formatClock, formatDate, formatValue } from './format.js';
import { decodeState, defaultsOf, encodeState } from './url.js';
import { decodeNodes } from './profile.js';
import { foldedOf } from './folded.js';
import { sandwichOf } from './callers.js';
import { button, copyText, element, saveFile } from './dom.js';
import { Viewer } from './viewer.js';

function storeState(state, isStep, defaults) {
  try {
    history[isStep ? 'pushState' : 'replaceState'](null, '', `#${encodeState(state, defaults)}`);
  } catch {
    // Some browsers reject URL changes for local files: the viewer works without them.
  }
}

function localSandwich({ profile: { frames, nodes }, selected }) {
  if (selected < 0) return null;
  const { callers, callees, total } = sandwichOf(frames, nodes, selected);
  return { frames, total, callers: decodeNodes(callers, frames, 0, 0), callees: decodeNodes(callees, frames, 0, 0) };
}

function downloadFolded(profile) {
  saveFile(new Blob([foldedOf(profile)], { type: 'text/plain' }), 'profile.folded');
}

function startStandalone() {
  const main = document.getElementById('viewer');
  const profile = JSON.parse(document.getElementById('profile').textContent);
  const defaults = defaultsOf(profile);
  const viewer = new Viewer({
    state: decodeState(location.hash, defaults), onState: (state, isStep) => storeState(state, isStep, defaults),
    loadSandwich: () => localSandwich(viewer),
  });
  const facts = [abbreviate(profile.type ?? '', 60), formatValue(profile.total ?? 0, profile.unit)];
  if (profile.samples > 0) facts.push(`${formatValue(profile.samples, 'count')} samples`);
  if (profile.from > 0) facts.push(`${formatDate(profile.from)} – ${formatClock(profile.until)}`);
  main.append(
    element('header', { class: 'topbar' },
      element('strong', { class: 'brand' }, document.title || 'profcol'), element('span', { class: 'dim' }, facts.filter(Boolean).join(' · '))),
    viewer.element,
  );
  viewer.show(profile);
  const only = viewer.profile.comparison ? ', current only' : '';
  main.firstChild.append(
    element('span', { class: 'spring' }), button(`Copy as folded stacks${only}`, (event) => copyText(event.currentTarget, foldedOf(viewer.profile))),
    button(`Download folded stacks${only}`, () => downloadFolded(viewer.profile)),
  );
  addEventListener('popstate', () => viewer.setState(decodeState(location.hash, defaults)));
}

if (document.getElementById('profile')) startStandalone();
