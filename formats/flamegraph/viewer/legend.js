// The color legend of a graph.
import { abbreviate, formatShare, shortenMiddle } from './format.js';
import { binaryColor, differenceScale, kindColor, languageColor } from './colors.js';
import { button, element, swatch } from './dom.js';

const MOST_LEGEND = 8;
const MOST_LEGEND_NAME = 22;

export function differenceLegend(palette, theme) {
  const scale = element('span', { class: 'scale', 'aria-hidden': 'true' }, ...differenceScale(palette, theme).map(swatch));
  return [element('span', {}, 'less than the baseline'), scale, element('span', {}, 'more')];
}

export function kindLegend({ frames }, theme) {
  const used = new Set();
  for (let frame = 0; frame < frames.count; frame++) used.add(frames.kindOf(frame));
  return frames.kinds.filter((kind) => used.has(kind)).map((kind) => element('span', { class: 'legend-item' }, swatch(kindColor(theme, kind)), kind));
}

export function languageLegend({ frames }, theme) {
  const used = new Set();
  for (let frame = 0; frame < frames.count; frame++) used.add(frames.languageOf(frame));
  const shown = frames.languages.filter((language) => language !== '' && used.has(language));
  return shown.map((language) => element('span', { class: 'legend-item' }, swatch(languageColor(theme, frames.languages, language)), language));
}

// The heaviest binaries by self value, each with one of its frames.
export function heaviestBinaries({ frames, functions }) {
  const weights = new Map();
  for (let row = 0; row < functions.count; row++) {
    const frame = functions.frame[row];
    const binary = frames.rawBinary(frame);
    const weight = weights.get(binary) ?? { frame, self: 0 };
    weight.self += functions.self[row];
    weights.set(binary, weight);
  }
  return [...weights.values()].sort((left, right) => right.self - left.self).slice(0, MOST_LEGEND);
}

// A click searches for a binary.
export function binaryLegend(profile, theme, tintOf, onSearch) {
  return heaviestBinaries(profile).map(({ frame, self }) => binaryButton(profile, theme, tintOf, frame, self, onSearch));
}

function binaryButton({ frames, total }, theme, tintOf, frame, self, onSearch) {
  const binary = frames.binaryOf(frame);
  const item = button('', () => onSearch(`binary:${binary}`), {
    class: 'legend-item', title: `${abbreviate(binary, 300)}, self ${formatShare(self, total)}. Click to search.`, disabled: binary === '',
  });
  const shortName = binary.slice(binary.lastIndexOf('/') + 1) || 'no binary';
  item.append(swatch(binaryColor(theme, binary, frames.kindOf(frame), tintOf)), shortenMiddle(shortName, MOST_LEGEND_NAME));
  return item;
}
