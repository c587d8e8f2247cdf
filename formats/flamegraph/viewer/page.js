// The live page: range, label filter, comparison and polling around the viewer.
import { addressOf, holdDataWhilePressed, request, saveResponse } from './api.js';
import { button, copyText, element, flashLabel, select, setPressed } from './dom.js';
import { formatClock, formatDate, formatDuration, formatValue } from './format.js';
import { addMatcher } from './selector.js';
import { currentTheme } from './colors.js';
import { decodeSandwich } from './sandwich.js';
import { decodeState, encodeState } from './url.js';
import { hasToken } from './login.js';
import { LabelFilter } from './labelfilter.js';
import { PipelineView } from './pipelines.js';
import { ProcessList } from './processes.js';
import { Timeline, visibleWindow } from './timeline.js';
import { Viewer } from './viewer.js';

const POLL_MILLISECONDS = 5000;
const SLOWEST_POLL_MILLISECONDS = 30000;
const MOST_NODES = 100000;
const SERIES = 8;
const LAST_CHOICES = [[300, '5 min'], [900, '15 min'], [3600, '1 h'], [6 * 3600, '6 h'], [24 * 3600, '1 d'], [7 * 24 * 3600, '7 d']];
// Longer ranges are offered once the history reaches beyond the next shorter one.
const USUAL_CHOICES = 3;
// A long range changes little from poll to poll, and is read from disk.
const POLLS_PER_RANGE = 300;
const BASE_CHOICES = [['previous', 'Period before'], ['same', 'Same range'], ['range', 'On the timeline']];
const USUAL_LABELS = ['comm'];
// The first two can hold a comparison.
const DIFFERENCES = ['html', 'svg'];
const FORMATS = [
  ['html', 'HTML, one file'], ['svg', 'SVG flame graph'], ['pprof', 'pprof'], ['folded', 'Folded stacks'], ['speedscope', 'speedscope'], ['firefox', 'Firefox Profiler'],
];

class Page {
  constructor(main) {
    this.state = decodeState(location.hash);
    this.isPaused = false;
    this.failures = 0;
    this.status = null;
    this.build(main);
    this.applyState();
    addEventListener('popstate', () => this.takeAddress());
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden && this.isLive) this.refresh();
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.timeline.setTheme(currentTheme()));
    this.refresh();
  }

  // --- building

  build(main) {
    this.host = element('span', { class: 'host' });
    this.history = element('span', { class: 'dim history' });
    this.error = element('div', { class: 'error', role: 'alert', hidden: true });
    this.liveButton = button('', () => this.toggleLive(), { class: 'live' });
    this.lastButtons = LAST_CHOICES.map(([seconds, label]) => button(label, () => this.setLast(seconds), { 'data-last': seconds }));
    this.fixedRange = element('span', { class: 'fixed-range' });
    this.typeBox = element('span');
    this.filter = this.labelFilter('Label filter', 'Filter by labels: {comm="nginx"}', (query) => this.changeAndLoad({ query }));
    this.compareButton = button('Compare', () => this.toggleCompare(), { 'aria-pressed': 'false' });
    this.byBox = element('span');
    this.downloads = element('details', { class: 'menu' }, element('summary', {}, 'Download'), element('div', { class: 'menu-items' }));
    this.downloads.addEventListener('toggle', () => this.renderDownloads());
    this.downloads.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') this.downloads.open = false;
    });
    document.addEventListener('pointerdown', (event) => {
      if (!this.downloads.contains(event.target)) this.downloads.open = false;
    });
    this.buildComparison();
    this.timeline = new Timeline({
      onRange: (from, until, isBase) => this.chooseRange(from, until, isBase),
      onBaseEnd: () => this.renderControls(),
      onSeries: (label, value) => this.setQuery(addMatcher(this.state.query, label, value)),
    });
    const onState = (changes, isStep) => this.viewer.change(changes, isStep);
    this.processes = new ProcessList({ onFilter: (labels) => this.showProcess(labels), onState }, () => this.isLive);
    this.pipelines = new PipelineView({ onError: (error) => this.showError(error), onState });
    this.viewer = new Viewer({
      state: this.state,
      onState: (state, isStep) => this.store(isStep),
      onError: (error) => this.showError(error),
      loadSandwich: async (name, binary) => decodeSandwich(await request('sandwich', { ...this.profileParameters(this.shownRange), name, binary }, this.abort?.signal)),
      keys: [['Timeline', [
        ['← →', 'move the range; the baseline while it is chosen'], ['shift + ← →', 'change its length'], ['drag', 'choose a range'], ['shift + drag', 'choose a baseline'],
      ]]],
      extraViews: [
        { id: 'processes', label: 'Processes', element: this.processes.element, isIndependent: true, shown: () => this.showProcesses() },
        { id: 'pipelines', label: 'Pipelines', element: this.pipelines.element, isIndependent: true, shown: () => this.pipelines.start() },
      ],
    });
    main.append(
      element('header', { class: 'topbar' },
        element('span', { class: 'place' }, element('strong', { class: 'brand' }, 'profcol'), this.host, this.history),
        element('span', { class: 'spring' }),
        this.fixedRange, element('span', { class: 'buttons', role: 'group', 'aria-label': 'Range' }, ...this.lastButtons), this.liveButton),
      element('div', { class: 'querybar' }, this.typeBox, this.filter.element, this.byBox, this.compareButton, this.downloads),
      this.comparison, this.error, this.timeline.element, this.viewer.element,
    );
  }

  labelFilter(label, placeholder, onApply) {
    return new LabelFilter(label, placeholder, {
      loadNames: () => request('labels', this.rangeParameters()),
      loadValues: async (name) => {
        const values = await request('label_values', { ...this.rangeParameters(), name, limit: 50 });
        return values.map(({ value }) => value);
      },
      onApply,
    });
  }

  buildComparison() {
    const placeholder = 'Labels of the baseline (empty: as above)';
    this.baseFilter = this.labelFilter('Label filter of the baseline', placeholder, (baseQuery) => this.changeAndLoad({ baseQuery }));
    this.baseButtons = BASE_CHOICES.map(([base, label]) => button(label, () => this.setBase(base), { 'data-base': base }));
    this.baseText = element('span', { class: 'dim' });
    this.comparison = element(
      'div', { class: 'querybar comparison', hidden: true }, element('span', { class: 'base-label' }, 'Baseline'),
      element('span', { class: 'buttons', role: 'group', 'aria-label': 'Baseline' }, ...this.baseButtons), this.baseFilter.element, this.baseText,
    );
  }

  // --- state

  store(isStep) {
    const fragment = encodeState(this.state);
    if (fragment === location.hash.slice(1)) return;
    history[isStep ? 'pushState' : 'replaceState'](null, '', fragment === '' ? location.pathname : `#${fragment}`);
  }

  takeAddress() {
    this.state = decodeState(location.hash);
    this.viewer.setState(this.state);
    this.applyState();
    this.refresh();
  }

  applyState() {
    this.filter.value = this.state.query;
    this.baseFilter.value = this.state.baseQuery;
    this.processes.setState(this.state);
    this.pipelines.setState(this.state);
    this.renderControls();
  }

  changeAndLoad(changes) {
    Object.assign(this.state, changes);
    this.store(true);
    this.applyState();
    this.refresh();
  }

  setQuery(query) {
    this.changeAndLoad({ query });
  }

  showProcess(labels) {
    this.viewer.change({ view: 'flame' });
    this.viewer.showView();
    this.setQuery(labels.reduce((query, [name, value]) => addMatcher(query, name, value), this.state.query));
  }

  setLast(last) {
    this.isPaused = false;
    this.changeAndLoad({ last, from: null, until: null });
  }

  chooseRange(from, until, isBase) {
    if (isBase) this.changeAndLoad({ base: 'range', baseFrom: from, baseUntil: until });
    else this.changeAndLoad({ from, until });
  }

  get isFixed() {
    return this.state.from !== null;
  }

  get isLive() {
    return !this.isPaused && !this.isFixed;
  }

  toggleLive() {
    if (this.isLive) {
      this.isPaused = true;
      this.renderControls();
      return;
    }
    this.isPaused = false;
    this.changeAndLoad({ from: null, until: null });
  }

  toggleCompare() {
    this.timeline.dragsBase = false;
    this.changeAndLoad({ base: this.state.base === '' ? 'previous' : '' });
  }

  setBase(base) {
    if (base === 'range') {
      // Takes effect with the drag or the first arrow key; until then the graph stays.
      this.timeline.chooseBase();
      this.renderControls();
      return;
    }
    this.timeline.dragsBase = false;
    this.changeAndLoad({ base });
  }

  // --- ranges

  // The server's clock, because profiles carry its timestamps.
  now() {
    return this.status ? this.status.now + (performance.now() - this.statusAt) : Date.now();
  }

  currentRange() {
    if (this.isFixed) return { from: this.state.from, until: this.state.until };
    if (this.isPaused && this.shownRange) return this.shownRange;
    const now = this.now();
    return { from: now - this.state.last * 1000, until: now };
  }

  baseRange({ from, until }) {
    if (this.state.base === '') return null;
    if (this.state.base === 'previous') return { from: from - (until - from), until: from };
    const { baseFrom, baseUntil } = this.state;
    if (this.state.base === 'range' && baseFrom !== null && baseUntil !== null) return { from: baseFrom, until: baseUntil };
    return { from, until };
  }

  timelineWindow(range) {
    const fixed = this.isFixed ? range : null;
    return visibleWindow({ now: this.now(), oldest: this.status?.oldest, last: this.state.last * 1000, fixed, base: this.baseRange(range) });
  }

  rangeParameters() {
    return { ...this.currentRange(), query: this.queryOrNone };
  }

  // Omits the parameter for a query without matchers.
  get queryOrNone() {
    return this.state.query || null;
  }

  get type() {
    const types = this.status?.types ?? [];
    return types.find(({ name }) => name === this.state.type) ?? types[0] ?? { name: this.state.type || 'cpu', unit: 'nanoseconds' };
  }

  profileParameters(range) {
    return { ...this.currentParameters(range), max_nodes: MOST_NODES, ...this.baseParameters(range) };
  }

  currentParameters({ from, until }) {
    return { type: this.type.name, from, until, query: this.queryOrNone };
  }

  baseParameters(range) {
    const base = this.baseRange(range);
    return base ? { base_from: base.from, base_until: base.until, base_query: this.state.baseQuery || this.queryOrNone } : {};
  }

  // --- loading

  async refresh() {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    this.viewer.element.setAttribute('aria-busy', 'true');
    try {
      this.status = await request('status', {}, signal);
      this.statusAt = performance.now();
      this.renderStatus();
      const range = this.currentRange();
      const window = this.timelineWindow(range);
      const [profile, timeline] = await Promise.all([
        request('profile', this.profileParameters(range), signal),
        request('timeline', { type: this.type.name, ...window, query: this.queryOrNone, by: this.state.by, limit: SERIES }, signal),
      ]);
      this.shownRange = range;
      this.timeline.show(timeline, this.state.by, this.type.unit, window, currentTheme());
      this.timeline.mark(range, this.baseRange(range));
      this.total = profile.total;
      this.hasBase = typeof profile.base_total === 'number' ? profile.base_total > 0 : null;
      this.viewer.options.emptyText = this.emptyText();
      this.failures = 0;
      this.error.hidden = true;
      this.renderControls();
      // Wait, so that the next poll does not abort this view's requests.
      await this.viewer.show(profile);
      if (this.state.view === 'processes') await this.loadProcesses();
    } catch (error) {
      if (error.name === 'AbortError') return;
      this.failures += 1;
      this.showError(error);
    }
    this.viewer.element.removeAttribute('aria-busy');
    this.planNext();
  }

  planNext() {
    clearTimeout(this.timer);
    const usual = Math.max(POLL_MILLISECONDS, (this.state.last * 1000) / POLLS_PER_RANGE);
    const wait = this.failures === 0 ? usual : Math.min(SLOWEST_POLL_MILLISECONDS, POLL_MILLISECONDS * 2 ** Math.min(this.failures, 4));
    this.timer = setTimeout(() => {
      if (this.isLive && !document.hidden) this.refresh();
      else this.planNext();
    }, wait);
  }

  async showProcesses() {
    await this.loadProcesses();
    this.processes.follow();
  }

  async loadProcesses() {
    if (!this.shownRange) return;
    try {
      const processes = await request('processes', { from: this.shownRange.from, until: this.shownRange.until, query: this.queryOrNone }, this.abort?.signal);
      this.processes.show(processes, this.total, this.type.unit, this.state.query !== '');
    } catch (error) {
      if (error.name !== 'AbortError') this.showError(error);
    }
  }

  emptyText() {
    if (this.state.query !== '') return 'No samples match the label filter in this range.';
    return this.status.newest === null ? 'No samples yet. The first ones arrive within seconds.' : 'No samples in this range.';
  }

  showError(error) {
    this.error.textContent = error.message;
    this.error.hidden = false;
  }

  // --- controls

  renderStatus() {
    const { status } = this;
    document.title = `${status.host} – profcol`;
    this.host.textContent = status.host;
    const reach = status.oldest === null ? 'no history yet' : `${formatDuration((this.now() - status.oldest) / 1000)} ${status.disk ? 'kept' : 'in memory'}`;
    this.history.textContent = reach;
    this.history.title = [
      `profcol ${status.version}`,
      `${formatValue(status.memory_bytes ?? 0, 'bytes')} of ${formatValue(status.max_memory_bytes ?? 0, 'bytes')} in memory`,
      ...(status.disk ? [`${formatValue(status.disk.bytes, 'bytes')} of ${formatValue(status.disk.max_bytes, 'bytes')} in ${status.disk.directory}`] : []),
      `${formatValue(status.samples ?? 0, 'count')} samples kept, ${formatValue(status.evicted_samples ?? 0, 'count')} evicted`,
      status.oldest === null ? '' : `since ${formatDate(status.oldest)}`,
    ].filter(Boolean).join('\n');
    this.renderTypes();
    this.renderLabels();
    this.renderControls();
  }

  renderTypes() {
    const names = (this.status.types ?? []).map(({ name }) => name);
    const key = names.join('\n');
    this.typeBox.hidden = names.length < 2;
    if (this.knownTypes === key) return;
    this.knownTypes = key;
    this.typeBox.replaceChildren(select('Profile type', names.map((name) => [name, name]), this.type.name, (type) => this.changeAndLoad({ type })));
  }

  async renderLabels() {
    let names;
    try {
      names = await request('labels', this.rangeParameters(), this.abort?.signal);
    } catch {
      names = USUAL_LABELS;
    }
    if (!names.includes(this.state.by)) names = [this.state.by, ...names];
    const key = `${this.state.by}\n${names.join('\n')}`;
    if (this.knownLabels === key) return;
    this.knownLabels = key;
    this.byBox.replaceChildren(select('Timeline by', names.map((name) => [name, `by ${name === 'comm' ? 'process' : name}`]), this.state.by, (by) => {
      this.timeline.forgetSeries();
      this.changeAndLoad({ by });
    }));
  }

  renderControls() {
    this.liveButton.textContent = this.isLive ? 'Pause' : 'Go live';
    this.liveButton.classList.toggle('is-live', this.isLive);
    this.liveButton.title = this.isLive ? 'New data every few seconds. Pause to keep this view.' : 'Follow new data again';
    const reach = this.status?.oldest ? (this.now() - this.status.oldest) / 1000 : 0;
    this.lastButtons.forEach((choice, row) => {
      choice.hidden = row >= USUAL_CHOICES && reach <= LAST_CHOICES[row - 1][0] && this.state.last !== LAST_CHOICES[row][0];
    });
    for (const choice of this.lastButtons) setPressed(choice, !this.isFixed && Number(choice.dataset.last) === this.state.last);
    const { from, until } = this.state;
    this.fixedRange.textContent = this.isFixed ? `${formatClock(from)} – ${formatClock(until)} (${formatDuration((until - from) / 1000)})` : '';
    const compares = this.state.base !== '';
    setPressed(this.compareButton, compares);
    this.comparison.hidden = !compares;
    const { dragsBase } = this.timeline;
    const chosen = dragsBase ? 'range' : this.state.base;
    for (const choice of this.baseButtons) setPressed(choice, choice.dataset.base === chosen);
    const base = compares ? this.baseRange(this.currentRange()) : null;
    this.baseText.className = base && !dragsBase && this.hasBase === false ? 'missing' : 'dim';
    this.baseText.textContent = [
      base && (!dragsBase || this.state.base === 'range') ? `${formatClock(base.from)} – ${formatClock(base.until)}${this.hasBase === false ? ', no samples' : ''}` : '',
      dragsBase ? 'drag over the timeline, or move it with the arrow keys' : '',
    ].filter(Boolean).join(': ');
    if (this.shownRange) this.timeline.mark(this.isFixed ? this.currentRange() : this.shownRange, base);
  }

  renderDownloads() {
    if (!this.downloads.open || !this.shownRange) return;
    const { comparison } = this.viewer.profile;
    const current = this.currentParameters(this.shownRange);
    const difference = { ...current, ...this.baseParameters(this.shownRange), difference: this.state.difference };
    const only = comparison ? ', current only' : '';
    this.downloads.lastChild.replaceChildren(...FORMATS.map(([format, label]) => {
      const isDifference = comparison && DIFFERENCES.includes(format);
      const parameters = { format, ...(isDifference ? difference : current) };
      const onclick = hasToken() ? (event) => this.save(event, parameters) : null;
      return element('a', { href: addressOf('download', parameters), download: true, onclick }, label + (isDifference ? ', difference' : only));
    }), button(`Copy as folded stacks${only}`, (event) => this.copyFolded(event.currentTarget, current), { class: 'plain' }));
  }

  async save(event, parameters) {
    event.preventDefault();
    try {
      await saveResponse('download', parameters);
    } catch (error) {
      this.showError(error);
    }
  }

  async copyFolded(clicked, current) {
    try {
      await copyText(clicked, await request('download', { format: 'folded', ...current }, null, 'text'));
    } catch (error) {
      flashLabel(clicked, 'Copy failed');
      this.showError(error);
    }
  }
}

function startPage() {
  holdDataWhilePressed();
  return new Page(document.getElementById('page'));
}

startPage();
