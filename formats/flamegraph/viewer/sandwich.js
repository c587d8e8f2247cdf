// A function with all its callers above and all its callees below.
import { abbreviate, formatShare, formatValue } from './format.js';
import { decodeNodes, Frames, ROOT } from './profile.js';
import { element, setText } from './dom.js';
import { FlameGraph, stepMatch } from './flamegraph.js';

export function decodeSandwich(document) {
  const frames = new Frames(document);
  return {
    frames,
    callers: decodeNodes(document.callers, frames, 0, 0),
    callees: decodeNodes(document.callees, frames, 0, 0),
    total: document.function_total ?? 0,
  };
}

export class Sandwich {
  // `events` as in FlameGraph, with (frames, nodes, node) instead of a node. A click selects the next function instead
  // of zooming.
  constructor(events) {
    this.heading = element('p', { class: 'sandwich-heading', 'aria-live': 'polite' });
    this.callers = this.graph('Callers', events);
    this.callers.setOrientation('flame');
    this.callees = this.graph('Callees', events);
    this.callersLabel = element('h3', {}, 'Callers');
    this.calleesLabel = element('h3', {}, 'Callees');
    this.graphs = element(
      'div', { class: 'sandwich-graphs', hidden: true },
      this.callersLabel, this.callers.element, this.calleesLabel, this.callees.element,
    );
    this.element = element('div', { class: 'sandwich' }, this.heading, this.graphs);
    this.showNothing('');
  }

  graph(label, events) {
    const graph = new FlameGraph(label, {
      onHover: (node, x, y) => events.onHover(graph.frames, graph.nodes, node, x, y),
      onSelect: (node) => {
        if (node !== ROOT) events.onSelect(graph.frames, graph.nodes, node);
      },
      onCursor: (node) => events.onCursor(graph.frames, graph.nodes, node),
    }, 1);
    graph.zoomsOnClick = false;
    return graph;
  }

  showNothing(why) {
    this.shown = '';
    this.graphs.hidden = true;
    setText(this.heading, why);
  }

  // New data of the same function replaces the old without a blank in between.
  showLoading(name, binary) {
    const key = `${name}\t${binary}`;
    if (this.shown !== key) this.showNothing('Loading…');
    this.shown = key;
  }

  show(profile, sandwich, colorsFor, theme) {
    const { frames, callers, callees } = sandwich;
    this.graphs.hidden = false;
    const directCallers = childCount(callers);
    const directCallees = childCount(callees);
    this.heading.replaceChildren(
      element('code', {}, abbreviate(frames.nameOf(callees.frame[1]), 200)),
      element('span', { class: 'fact' }, `${formatValue(sandwich.total, profile.unit)}, ${formatShare(sandwich.total, profile.total)} of all`),
    );
    this.callersLabel.textContent = `Callers (${directCallers} direct)`;
    this.calleesLabel.textContent = `Callees (${directCallees} direct)`;
    const colors = colorsFor(frames);
    for (const [graph, nodes] of [[this.callers, callers], [this.callees, callees]]) {
      graph.show(frames, nodes, true);
      graph.setColors(colors, theme);
    }
    // Callees leave the room that they do not need to deep callers.
    this.graphs.style.setProperty('--callees', `${this.callees.contentHeight}px`);
  }

  stepMatch(direction) {
    return this.graphs.hidden ? null : stepMatch([this.callers, this.callees], direction);
  }

  setMatches(matchesFor) {
    for (const graph of [this.callers, this.callees]) if (graph.frames) graph.setMatches(matchesFor(graph.frames));
  }
}

function childCount(nodes) {
  let children = 0;
  for (let child = 2; nodes.count > 1 && child < nodes.end[1]; child = nodes.end[child]) children += 1;
  return children;
}
