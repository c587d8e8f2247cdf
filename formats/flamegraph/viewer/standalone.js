// The viewer of a one-file page: the profile is in the file, and there is no server.
import { abbreviate, formatValue } from './format.js';
import { decodeState, defaultsOf, encodeState } from './url.js';
import { element } from './dom.js';
import { Viewer } from './viewer.js';

function storeState(state, isStep, defaults) {
  try {
    history[isStep ? 'pushState' : 'replaceState'](null, '', `#${encodeState(state, defaults)}`);
  } catch {
    // Some browsers reject URL changes for local files: the viewer works without them.
  }
}

function startStandalone() {
  const main = document.getElementById('viewer');
  const profile = JSON.parse(document.getElementById('profile').textContent);
  const defaults = defaultsOf(profile);
  const viewer = new Viewer({
    state: decodeState(location.hash, defaults), onState: (state, isStep) => storeState(state, isStep, defaults),
  });
  const facts = [abbreviate(profile.type ?? '', 60), formatValue(profile.total ?? 0, profile.unit)];
  if (profile.samples > 0) facts.push(`${formatValue(profile.samples, 'count')} samples`);
  if (profile.from > 0) facts.push(`${new Date(profile.from).toLocaleString()} – ${new Date(profile.until).toLocaleTimeString()}`);
  main.append(
    element('header', { class: 'topbar' },
      element('strong', { class: 'brand' }, document.title || 'profcol'), element('span', { class: 'dim' }, facts.filter(Boolean).join(' · '))),
    viewer.element,
  );
  viewer.show(profile);
  addEventListener('popstate', () => viewer.setState(decodeState(location.hash, defaults)));
}

if (document.getElementById('profile')) startStandalone();
