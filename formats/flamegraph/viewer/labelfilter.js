// The label selector field, with completion.
import { abbreviate, printable } from './format.js';
import { applyCompletion, completionAt, formatSelector, parseSelector } from './selector.js';
import { element } from './dom.js';

const OPERATORS = ['=', '!=', '=~', '!~'];
const MOST_SUGGESTIONS = 30;

export class LabelFilter {
  // `loadNames()` and `loadValues(name)` return promises of strings; `onApply(selector)` receives a valid selector.
  constructor(label, placeholder, { loadNames, loadValues, onApply }) {
    Object.assign(this, { loadNames, loadValues, onApply });
    this.id = `filter-${label.toLowerCase().replace(/\W+/g, '-')}`;
    this.input = element('input', {
      type: 'text', role: 'combobox', 'aria-label': label, 'aria-expanded': 'false', 'aria-autocomplete': 'list', 'aria-controls': this.id,
      placeholder, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', maxlength: '4000',
    });
    this.list = element('ul', { role: 'listbox', id: this.id, class: 'suggestions', hidden: true, 'aria-label': 'Suggestions' });
    this.problem = element('span', { class: 'problem', role: 'status' });
    this.element = element('div', { class: 'filter' }, this.input, this.list, this.problem);
    this.suggestions = [];
    this.chosen = -1;
    this.applied = '';
    this.input.addEventListener('input', () => this.suggest());
    this.input.addEventListener('focus', () => this.suggest());
    this.input.addEventListener('click', () => this.suggest());
    this.input.addEventListener('blur', () => this.leave());
    this.input.addEventListener('keydown', (event) => this.onKey(event));
    this.list.addEventListener('pointerdown', (event) => this.onPick(event));
  }

  get value() {
    return this.applied;
  }

  set value(text) {
    this.applied = text;
    if (document.activeElement !== this.input) this.input.value = text;
    this.problem.textContent = '';
  }

  async suggest() {
    const { selectionStart: caret, value: text } = this.input;
    const completion = completionAt(text, caret);
    this.problem.textContent = '';
    this.input.removeAttribute('aria-invalid');
    if (!completion) {
      this.close();
      return;
    }
    let choices;
    try {
      choices = await this.choicesFor(completion);
    } catch {
      // The field works without suggestions; the page itself reports an unreachable server.
      choices = [];
    }
    if (this.input.value !== text || this.input.selectionStart !== caret || document.activeElement !== this.input) return;
    const typed = completion.typed.toLowerCase();
    this.completion = completion;
    this.suggestions = choices.filter((choice) => choice.toLowerCase().includes(typed)).slice(0, MOST_SUGGESTIONS);
    this.chosen = -1;
    this.renderList();
  }

  async choicesFor(completion) {
    if (completion.part === 'operator') return OPERATORS;
    if (completion.part === 'value') return completion.label === '' ? [] : this.loadValues(completion.label);
    return this.loadNames();
  }

  renderList() {
    this.list.hidden = this.suggestions.length === 0;
    this.input.setAttribute('aria-expanded', String(!this.list.hidden));
    this.list.replaceChildren(...this.suggestions.map((suggestion, index) => element(
      'li', { role: 'option', id: `${this.id}-${index}`, 'data-index': index, 'aria-selected': String(index === this.chosen) },
      abbreviate(printable(suggestion), 120) || '(empty)',
    )));
    if (this.chosen < 0) this.input.removeAttribute('aria-activedescendant');
    else this.input.setAttribute('aria-activedescendant', `${this.id}-${this.chosen}`);
    this.list.children[this.chosen]?.scrollIntoView({ block: 'nearest' });
  }

  close() {
    this.suggestions = [];
    this.chosen = -1;
    this.renderList();
  }

  leave() {
    this.close();
    if (this.input.value !== this.applied) this.apply();
  }

  pick(index) {
    const { text, caret } = applyCompletion(this.input.value, this.input.selectionStart, this.completion, this.suggestions[index]);
    const finished = this.completion.part === 'value';
    this.input.value = text;
    this.input.setSelectionRange(caret, caret);
    this.close();
    if (finished) this.apply();
    else this.suggest();
  }

  onPick(event) {
    event.preventDefault();
    const item = event.target.closest('[role="option"]');
    if (item) this.pick(Number(item.dataset.index));
  }

  apply() {
    const text = this.input.value;
    const { matchers, error } = parseSelector(text);
    if (error) {
      this.problem.textContent = error;
      this.input.setAttribute('aria-invalid', 'true');
      return;
    }
    const selector = formatSelector(matchers);
    this.input.value = selector;
    if (selector === this.applied) return;
    this.applied = selector;
    this.onApply(selector);
  }

  onKey(event) {
    const { key } = event;
    if (key === 'Enter') {
      if (this.chosen >= 0) this.pick(this.chosen);
      else {
        this.close();
        this.apply();
      }
    } else if (key === 'Tab' && this.chosen >= 0) {
      this.pick(this.chosen);
    } else if (key === 'Escape' && !this.list.hidden) {
      this.close();
    } else if ((key === 'ArrowDown' || key === 'ArrowUp') && this.suggestions.length > 0) {
      const step = key === 'ArrowDown' ? 1 : -1;
      this.chosen = (this.chosen + step + this.suggestions.length + (this.chosen < 0 && step < 0 ? 1 : 0)) % this.suggestions.length;
      this.renderList();
    } else if (key === 'ArrowDown') {
      this.suggest();
    } else {
      return;
    }
    event.preventDefault();
  }
}
