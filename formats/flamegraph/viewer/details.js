// A node or function described in words: for the tooltip, the selection bar and screen readers.
import { abbreviate, formatDifference, formatPoints, formatShare, formatValue } from './format.js';
import { notShown, notShownInBase } from './profile.js';
import { element } from './dom.js';

const MOST_TOOLTIP_NAME = 400;
const TOOLTIP_DISTANCE = 14;

// "1.2 s (12 %)"; in a comparison also the baseline and the difference by share.
export function describeValue(profile, value, baseValue) {
  const now = `${formatValue(value, profile.unit)} (${formatShare(value, profile.total)})`;
  if (!profile.comparison) return now;
  const change = formatDifference(shareDifference(profile, value, baseValue), formatPoints);
  return `${now}, was ${formatValue(baseValue, profile.unit)} (${formatShare(baseValue, profile.baseTotal)}), ${change}`;
}

export function shareDifference(profile, value, baseValue) {
  const now = profile.total > 0 ? value / profile.total : 0;
  const base = profile.baseTotal > 0 ? baseValue / profile.baseTotal : 0;
  return now - base;
}

export function changeClass(change) {
  return change > 0 ? 'increase' : change < 0 ? 'decrease' : '';
}

// Name and details of a node as pairs; the first pair is the name.
export function describeNode(profile, frames, nodes, node) {
  if (node < -1) {
    const parent = -2 - node;
    return [
      ['', 'not shown'],
      ['', `functions called by ${abbreviate(frames.nameOf(nodes.frame[parent]), 80)} that are too small for this graph`],
      ['total', describeValue(profile, notShown(nodes, parent), notShownInBase(nodes, parent))],
    ];
  }
  const frame = nodes.frame[node];
  const facts = [['', abbreviate(frames.nameOf(frame), MOST_TOOLTIP_NAME)]];
  const place = frames.placeOf(frame);
  const binary = frames.binaryOf(frame);
  if (place) facts.push(['', abbreviate(place, 200)]);
  if (frames.rawName(frame) === '') facts.push(['', 'no symbol']);
  const kind = frames.kindOf(frame);
  const language = frames.languageOf(frame);
  if (binary || kind) facts.push(['', [abbreviate(binary, 160), language === kind ? '' : language, kind].filter(Boolean).join(' · ')]);
  facts.push(['total', describeValue(profile, nodes.total[node], nodes.baseTotal[node])]);
  if (frame !== frames.count) facts.push(['self', describeValue(profile, nodes.self[node], nodes.baseSelf[node])]);
  return facts;
}

export function nodeInWords(profile, frames, nodes, node) {
  return describeNode(profile, frames, nodes, node).map(([label, text]) => (label ? `${label} ${text}` : text)).join(', ');
}

export class Tooltip {
  constructor() {
    this.element = element('div', { class: 'tooltip', hidden: true, 'aria-hidden': 'true' });
  }

  hide() {
    this.element.hidden = true;
  }

  show(facts, x, y) {
    this.element.replaceChildren(...facts.map(([label, text], index) => element(
      'div', { class: index === 0 ? 'tooltip-name' : 'tooltip-fact' }, label ? element('span', { class: 'dim' }, `${label} `) : null, text,
    )));
    this.element.hidden = false;
    const { offsetWidth, offsetHeight } = this.element;
    const right = x + TOOLTIP_DISTANCE + offsetWidth > innerWidth ? Math.max(4, x - TOOLTIP_DISTANCE - offsetWidth) : x + TOOLTIP_DISTANCE;
    const below = y + TOOLTIP_DISTANCE + offsetHeight > innerHeight ? Math.max(4, y - TOOLTIP_DISTANCE - offsetHeight) : y + TOOLTIP_DISTANCE;
    this.element.style.left = `${right}px`;
    this.element.style.top = `${below}px`;
  }
}
