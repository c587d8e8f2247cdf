// The views of one profile with a common search and selection.
import { abbreviate, formatShare, formatTotal, printable } from './format.js';
import { binaryLegend, differenceLegend, heaviestBinaries, kindLegend, languageLegend } from './legend.js';
import { currentTheme, differenceColors, frameColors } from './colors.js';
import { button, element, select, setText } from './dom.js';
import { CallTree } from './calltree.js';
import { compileSearch, matchedTotal, matchFrames } from './search.js';
import { decodeProfile, ROOT, withoutSymbol } from './profile.js';
import { Sandwich } from './sandwich.js';
import { describeNode, nodeInWords, Tooltip } from './details.js';
import { FlameGraph, stepMatch } from './flamegraph.js';
import { FunctionTable } from './table.js';
import { KeyList } from './keys.js';
import { SelectionBar } from './selection.js';
import { Tints } from './tints.js';

const SEARCH_DELAY_MILLISECONDS = 120;
const NO_BASELINE = 'No samples in the baseline: there is nothing to compare with. Choose another time or other labels for it.';
const SELECT_HINT = 'Select a function in the flame graph, the table or the call tree to see who calls it and what it calls.';

export class Viewer {
  // `options`: state, onState(state, isStep), onError(error), loadSandwich(name, binary), extraViews,
  // keys (as in KeyList).
  constructor(options) {
    this.options = options;
    this.state = options.state;
    this.profile = null;
    this.matches = null;
    this.theme = currentTheme();
    this.tints = new Tints();
    this.tintOf = (binary) => this.tints.of(binary);
    this.keys = new KeyList(options.keys);
    this.buildViews();
    this.buildToolbar();
    this.buildFooter();
    this.tooltip = new Tooltip();
    this.announcement = element('div', { class: 'hidden-text', 'aria-live': 'polite' });
    this.panel = element('div', { class: 'panel', role: 'tabpanel', id: 'panel' });
    this.empty = element('p', { class: 'note empty', hidden: true });
    this.notice = element('p', { class: 'notice', role: 'status', hidden: true }, NO_BASELINE);
    this.element = element('div', { class: 'viewer' }, this.toolbar, this.notice, this.panel, this.footer, this.tooltip.element, this.announcement, this.keys.element);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.theme = currentTheme();
      if (this.profile) this.refresh();
    });
    document.addEventListener('keydown', (event) => this.onKey(event));
    this.applyState();
    this.showSelection();
  }

  buildViews() {
    const onHover = (frames, nodes, node, x, y) => this.hover(frames, nodes, node, x, y);
    const onCursor = (frames, nodes, node) => { this.announcement.textContent = nodeInWords(this.profile, frames, nodes, node); };
    this.graph = new FlameGraph('Flame graph. Arrow keys move, Enter zooms, Escape goes back.', {
      onHover: (node, x, y) => onHover(this.profile?.frames, this.profile?.nodes, node, x, y),
      onCursor: (node) => onCursor(this.profile.frames, this.profile.nodes, node),
      onSelect: (node) => this.selectNode(this.profile.frames, this.profile.nodes, node),
      onZoom: () => {
        this.change({ zoom: this.graph.zoomPath() }, true);
        this.updateTools();
      },
    });
    this.table = new FunctionTable({
      onSelect: (frame) => this.selectFrame(this.profile.frames, frame),
      onOpen: () => this.setView('sandwich'),
      onSort: (sort, ascending) => {
        this.change({ sort, ascending });
        this.table.setSort(sort, ascending);
      },
    });
    this.tree = new CallTree({ onSelect: (node) => this.selectNode(this.profile.frames, this.profile.nodes, node) });
    this.sandwich = new Sandwich({
      onHover, onCursor, onSelect: (frames, nodes, node) => this.selectNode(frames, nodes, node),
    });
    this.views = [
      { id: 'flame', label: 'Flame graph', element: this.graph.element, refresh: () => this.showGraph(), stepMatch: (direction) => stepMatch([this.graph], direction) },
      { id: 'table', label: 'Table', element: this.table.element, refresh: () => this.showTable(), stepMatch: (direction) => this.table.stepMatch(direction) },
      { id: 'tree', label: 'Call tree', element: this.tree.element, refresh: () => this.showTree(), stepMatch: (direction) => this.tree.stepMatch(direction) },
      { id: 'sandwich', label: 'Sandwich', element: this.sandwich.element, refresh: () => this.showSandwich(), search: () => this.markSandwich(), stepMatch: (direction) => this.sandwich.stepMatch(direction) },
      ...(this.options.extraViews ?? []),
    ];
  }

  buildToolbar() {
    this.tabs = element('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Views', onkeydown: (event) => this.onTabKey(event) });
    for (const view of this.views) {
      view.tab = button(view.label, () => this.setView(view.id), { role: 'tab', id: `tab-${view.id}`, 'aria-controls': 'panel' });
      this.tabs.append(view.tab);
    }
    this.searchBox = element('input', {
      type: 'search', class: 'search', placeholder: 'Search functions or /regex/', 'aria-label': 'Search functions',
      spellcheck: 'false', autocomplete: 'off', maxlength: '1000', oninput: () => this.searchLater(),
    });
    this.searchResult = element('output', { class: 'search-result', 'aria-live': 'polite' });
    this.searchGroup = element('div', { class: 'search-group' }, this.searchBox, this.searchResult);
    this.orientationBox = select('Orientation', [['icicle', 'Roots on top'], ['flame', 'Roots at bottom']], this.state.orientation, (orientation) => {
      this.change({ orientation });
      this.graph.setOrientation(orientation);
    });
    this.colorBox = select('Colours', [['binary', 'By binary'], ['kind', 'By kind'], ['language', 'By language']], this.state.color, (color) => this.recolor({ color }));
    this.paletteBox = select('Palette', [['blue-orange', 'Blue–orange'], ['green-red', 'Green–red']], this.state.palette, (palette) => this.recolor({ palette }));
    this.differenceBox = select('Compare by', [['share', 'By share'], ['absolute', 'Absolute']], this.state.difference, (difference) => this.recolor({ difference }));
    this.resetButton = button('Reset zoom', () => this.graph.zoomTo(ROOT), { class: 'quiet' });
    this.toolbar = element(
      'div', { class: 'toolbar' }, this.tabs,
      element('div', { class: 'tools' },
        this.searchGroup, this.resetButton, this.orientationBox, this.colorBox, this.paletteBox, this.differenceBox),
    );
  }

  buildFooter() {
    this.legend = element('div', { class: 'legend', 'aria-label': 'Colours' });
    this.selection = new SelectionBar({
      onZoom: () => this.zoomToSelected(), onSandwich: () => this.setView('sandwich'), onClear: () => this.clearSelection(),
      onKeys: () => this.keys.open(),
    });
    this.footer = element('div', { class: 'footer' }, this.legend, this.selection.element);
  }

  // --- state

  change(changes, isStep = false) {
    Object.assign(this.state, changes);
    this.options.onState?.(this.state, isStep);
  }

  // Applies a state from the URL.
  setState(state) {
    this.state = state;
    this.applyState();
    if (this.profile) this.refresh();
  }

  applyState() {
    if (!this.views.some((view) => view.id === this.state.view)) this.state.view = 'flame';
    this.searchBox.value = this.state.search;
    this.orientationBox.value = this.state.orientation;
    this.colorBox.value = this.state.color;
    this.paletteBox.value = this.state.palette;
    this.differenceBox.value = this.state.difference;
    this.graph.setOrientation(this.state.orientation);
    this.graph.setZoomPath(this.state.zoom);
    this.table.setSort(this.state.sort, this.state.ascending);
    this.showView();
    this.search();
  }

  setView(view) {
    this.change({ view }, true);
    this.showView();
    if (this.profile) this.refresh();
  }

  get view() {
    return this.views.find((view) => view.id === this.state.view);
  }

  showView() {
    for (const view of this.views) {
      const isShown = view.id === this.state.view;
      view.tab.setAttribute('aria-selected', String(isShown));
      view.tab.tabIndex = isShown ? 0 : -1;
      if (isShown) view.tab.scrollIntoView?.({ block: 'nearest', inline: 'nearest' });
    }
    const { element: shown, id } = this.view;
    if (shown.parentNode !== this.panel) this.panel.replaceChildren(shown, this.empty);
    this.panel.setAttribute('aria-labelledby', `tab-${id}`);
    this.tooltip.hide();
    this.view.shown?.();
    this.updateTools();
  }

  updateTools() {
    const isGraph = this.state.view === 'flame' || this.state.view === 'sandwich';
    const comparison = this.profile?.comparison ?? false;
    this.resetButton.hidden = this.state.view !== 'flame' || this.state.zoom.length === 0;
    this.orientationBox.hidden = this.state.view !== 'flame';
    this.colorBox.hidden = !isGraph || comparison;
    this.paletteBox.hidden = !isGraph || !comparison;
    this.differenceBox.hidden = !comparison;
    this.legend.hidden = !isGraph;
    this.searchGroup.hidden = this.view.isIndependent === true;
    // It describes the selected function.
    this.footer.hidden = this.view.isIndependent === true;
    this.notice.hidden = this.view.isIndependent === true || !this.profile?.lacksBaseline;
  }

  // --- data

  show(document) {
    this.profile = decodeProfile(document);
    this.element.dataset.total = this.profile.total;
    const { frames } = this.profile;
    const heaviest = heaviestBinaries(this.profile).filter(({ frame }) => frames.kindOf(frame) !== 'kernel');
    this.tints.choose(heaviest.map(({ frame }) => frames.binaryOf(frame)));
    this.search();
    return this.refresh();
  }

  // Resolves when the view has its data.
  refresh() {
    const { profile } = this;
    this.selected = this.findSelected();
    this.element.classList.toggle('green-red', this.state.palette === 'green-red');
    this.empty.hidden = profile.total > 0 || profile.baseTotal > 0 || this.view.isIndependent === true;
    this.empty.textContent = this.options.emptyText ?? 'No samples in this range.';
    const done = this.view.refresh?.();
    this.showSelection();
    this.showLegend();
    this.updateTools();
    return done;
  }

  recolor(changes) {
    this.change(changes);
    if (this.profile) this.refresh();
  }

  get byShare() {
    return this.state.difference === 'share';
  }

  colorsFor(frames) {
    const { profile, theme } = this;
    if (!profile.comparison) return frameColors(frames, this.state.color, theme, this.tintOf);
    const scale = this.byShare ? { now: 1 / (profile.total || 1), base: 1 / (profile.baseTotal || 1) } : { now: 1, base: 1 };
    return differenceColors(this.state.palette, theme, scale);
  }

  showGraph() {
    const { profile, graph } = this;
    if (graph.nodes !== profile.nodes || graph.byShare !== this.byShare) {
      graph.byShare = this.byShare;
      graph.rootLabel = `all, ${formatTotal(profile.total, profile)}`;
      graph.show(profile.frames, profile.nodes, this.byShare);
    }
    graph.setColors(this.colorsFor(profile.frames), this.theme);
    graph.setMatches(this.matches);
    graph.setSelected(this.selected);
  }

  showTable() {
    this.table.show(this.profile, this.byShare, this.matches, this.selected);
  }

  showTree() {
    this.tree.show(this.profile, this.matches, this.selected);
  }

  async showSandwich() {
    const { name, binary } = this.state;
    if (!this.hasSelection) {
      this.sandwich.showNothing(SELECT_HINT);
      return;
    }
    const profile = this.profile;
    this.sandwich.showLoading(name, binary);
    try {
      const loaded = await this.options.loadSandwich(name, binary);
      if (this.profile !== profile || this.state.name !== name || this.state.binary !== binary) return;
      if (!loaded || loaded.callees.count < 2) this.sandwich.showNothing(`${abbreviate(printable(name) || withoutSymbol(binary), 200)} has no samples in this range.`);
      else this.sandwich.show(profile, loaded, (frames) => this.colorsFor(frames), this.theme);
      this.markSandwich();
    } catch (error) {
      if (error.name === 'AbortError') return;
      this.sandwich.showNothing('Failed to load this function.');
      this.options.onError?.(error);
    }
  }

  markSandwich() {
    this.sandwich.setMatches((frames) => this.matchesIn(frames));
  }

  // --- search

  searchLater() {
    clearTimeout(this.searchTimer);
    this.searchTimer = setTimeout(() => this.searchNow(), SEARCH_DELAY_MILLISECONDS);
  }

  searchNow() {
    clearTimeout(this.searchTimer);
    this.change({ search: this.searchBox.value });
    this.search();
    if (!this.profile) return;
    (this.view.search ?? this.view.refresh)?.();
    if (this.state.view === 'tree' && this.matches) this.tree.openMatches();
  }

  stepMatch(direction) {
    if (this.searchBox.value !== this.state.search) this.searchNow();
    const step = this.matches ? this.view.stepMatch(direction) : null;
    if (step) setText(this.searchResult, `${this.describeMatches()}; ${step.place + 1} of ${step.count}`);
  }

  search() {
    this.matches = null;
    this.searchBox.removeAttribute('aria-invalid');
    try {
      this.compiled = compileSearch(this.state.search);
    } catch (error) {
      this.compiled = null;
      this.searchBox.setAttribute('aria-invalid', 'true');
      setText(this.searchResult, `invalid regular expression: ${abbreviate(error.message, 120)}`);
      return;
    }
    if (this.compiled && this.profile) this.matches = this.matchesIn(this.profile.frames);
    setText(this.searchResult, this.matches ? this.describeMatches() : '');
  }

  describeMatches() {
    const { total, baseTotal, cut, comparison } = this.profile;
    const match = matchedTotal(this.profile, this.matches);
    if (match.functions === 0) return 'no match';
    // Nodes that the server omitted may match, too.
    const least = cut.value > 0 ? 'at least ' : '';
    const base = comparison ? `, baseline ${formatShare(match.baseTotal, baseTotal)}` : '';
    return `${least}${formatShare(match.total, total)}${base} in ${match.functions.toLocaleString('en-US')} function${match.functions === 1 ? '' : 's'}`;
  }

  matchesIn(frames) {
    return this.compiled ? matchFrames(frames, this.compiled) : null;
  }

  setSearch(text) {
    this.searchBox.value = text;
    this.searchLater();
  }

  // --- selection

  selectNode(frames, nodes, node) {
    if (node === ROOT) this.clearSelection();
    else if (node > ROOT) this.selectFrame(frames, nodes.frame[node]);
  }

  selectFrame(frames, frame) {
    this.change({ name: frames.rawName(frame), binary: frames.rawBinary(frame) });
    this.applySelection();
  }

  clearSelection() {
    this.change({ name: '', binary: '' });
    this.applySelection();
  }

  // A function without a symbol only has a binary.
  get hasSelection() {
    return this.state.name !== '' || this.state.binary !== '';
  }

  findSelected() {
    return !this.hasSelection ? -1 : this.profile.frames.find(this.state.name, this.state.binary);
  }

  applySelection() {
    this.selected = this.findSelected();
    this.graph.setSelected(this.selected);
    if (this.state.view === 'table') this.table.setSelected(this.selected);
    if (this.state.view === 'tree') this.tree.setSelected(this.selected);
    if (this.state.view === 'sandwich') this.showSandwich();
    this.showSelection();
  }

  showSelection() {
    if (this.hasSelection && this.profile) this.selection.show(this.profile, this.selected, this.state);
    else this.selection.showHint(this.state.view);
  }

  zoomToSelected() {
    if (this.state.view !== 'flame') this.setView('flame');
    const node = this.graph.heaviestNode(this.selected);
    if (node > ROOT) this.graph.zoomTo(node);
    return node > ROOT;
  }

  hover(frames, nodes, node, x, y) {
    if (node === null || !nodes) this.tooltip.hide();
    else this.tooltip.show(describeNode(this.profile, frames, nodes, node), x, y);
  }

  showLegend() {
    const { profile, theme, state } = this;
    if (state.view !== 'flame' && state.view !== 'sandwich') return;
    if (profile.comparison) this.legend.replaceChildren(...differenceLegend(state.palette, theme));
    else if (state.color === 'kind') this.legend.replaceChildren(...kindLegend(profile, theme));
    else if (state.color === 'language') this.legend.replaceChildren(...languageLegend(profile, theme));
    else this.legend.replaceChildren(...binaryLegend(profile, theme, this.tintOf, (search) => this.setSearch(state.search === search ? '' : search)));
  }

  // --- keyboard

  onKey(event) {
    if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || this.keys.element.open) return;
    const inField = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key === '/' && !inField) {
      event.preventDefault();
      this.searchBox.focus();
      this.searchBox.select();
    } else if (event.key === '?' && !inField) {
      this.keys.open();
    } else if (event.key === 'Enter' && event.target === this.searchBox) {
      this.stepMatch(event.shiftKey ? -1 : 1);
    } else if (event.key === 'Escape' && event.target === this.searchBox && this.searchBox.value !== '') {
      this.setSearch('');
    } else if (event.key === 'Escape' && !inField && this.state.view === 'flame' && this.graph.isZoomed) {
      this.graph.zoomBack();
    }
  }

  onTabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = this.views.indexOf(this.view);
    const next = this.views[(at + step + this.views.length) % this.views.length];
    this.setView(next.id);
    next.tab.focus();
  }
}
