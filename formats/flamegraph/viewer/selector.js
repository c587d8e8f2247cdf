// Label selectors as in PromQL: parsing, formatting, and completion at the caret.
import { abbreviate } from './format.js';

const LABEL_NAME = /[A-Za-z_][A-Za-z0-9_./-]*/y;
const OPERATOR = /=~|!=|!~|=/y;
const STRING = /"((?:[^"\\]|\\.)*)("?)/y;

function unescapeString(text) {
  return text.replace(/\\(.)/g, (_, character) => (character === 'n' ? '\n' : character === 't' ? '\t' : character));
}

function quote(text) {
  return `"${text.replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n').replace(/\t/g, '\\t')}"`;
}

// The tokens of a selector, and the position of the first error (-1 if none).
function tokenize(text) {
  const tokens = [];
  let expected = 'name';
  let at = 0;
  const take = (expression, type) => {
    expression.lastIndex = at;
    const match = expression.exec(text);
    if (!match) return false;
    tokens.push({ type, start: at, end: expression.lastIndex, text: match[1] ?? match[0], closed: match[2] !== '' });
    at = expression.lastIndex;
    return true;
  };
  while (at < text.length) {
    if (/[\s{}]/.test(text[at])) at += 1;
    else if (expected === 'name' && take(LABEL_NAME, 'name')) expected = 'operator';
    else if (expected === 'operator' && take(OPERATOR, 'operator')) expected = 'value';
    else if (expected === 'value' && take(STRING, 'value')) expected = 'comma';
    else if (expected === 'comma' && text[at] === ',') {
      tokens.push({ type: 'comma', start: at, end: at + 1, text: ',' });
      at += 1;
      expected = 'name';
    } else return { tokens, expected, errorAt: at };
  }
  return { tokens, expected, errorAt: -1 };
}

// The matchers of a selector, or the error.
export function parseSelector(text) {
  const { tokens, expected, errorAt } = tokenize(text);
  if (errorAt >= 0) return { matchers: [], error: `expected ${describe(expected)} at “${abbreviate(text.slice(errorAt), 20)}”` };
  const last = tokens[tokens.length - 1];
  if (last?.type === 'value' && !last.closed) return { matchers: [], error: 'missing closing "' };
  if (last && (last.type === 'name' || last.type === 'operator')) return { matchers: [], error: `expected ${describe(expected)} at the end` };
  const matchers = [];
  for (let index = 0; index + 2 < tokens.length; index += 4) {
    matchers.push({ name: tokens[index].text, operator: tokens[index + 1].text, value: unescapeString(tokens[index + 2].text) });
  }
  return { matchers, error: null };
}

function describe(expected) {
  return { name: 'a label name', operator: '= != =~ or !~', value: 'a "quoted value"', comma: 'a comma' }[expected];
}

export function formatSelector(matchers) {
  if (matchers.length === 0) return '';
  return `{${matchers.map(({ name, operator, value }) => `${name}${operator}${quote(value)}`).join(',')}}`;
}

// The selector with one more matcher, which replaces an equality matcher of the same label.
export function addMatcher(text, name, value) {
  const kept = parseSelector(text).matchers.filter((matcher) => matcher.name !== name || matcher.operator !== '=');
  return formatSelector([...kept, { name, operator: '=', value }]);
}

// The part of the selector at the caret, and the text that a suggestion replaces.
export function completionAt(text, caret) {
  const { tokens, expected, errorAt } = tokenize(text.slice(0, caret));
  if (errorAt >= 0 && expected !== 'value') return null;
  const last = tokens[tokens.length - 1];
  if (errorAt >= 0) return { part: 'value', label: labelBefore(tokens), start: errorAt, typed: text.slice(errorAt, caret) };
  if (last?.type === 'name' && last.end === caret) return { part: 'name', start: last.start, typed: last.text };
  if (last?.type === 'value' && !last.closed) return { part: 'value', label: labelBefore(tokens.slice(0, -1)), start: last.start, typed: unescapeString(last.text) };
  if (last?.type === 'value' && last.end === caret) return null;
  if (expected === 'comma') return null;
  return { part: expected, label: labelBefore(tokens), start: caret, typed: '' };
}

function labelBefore(tokens) {
  return tokens.findLast((token) => token.type === 'name')?.text ?? '';
}

// Inserts a suggestion and returns the new caret position.
export function applyCompletion(text, caret, completion, suggestion) {
  let inserted = completion.part === 'value' ? quote(suggestion) : suggestion;
  let rest = text.slice(caret);
  if (completion.part === 'name' && !/^\s*[=!]/.test(rest)) inserted += '=';
  if (completion.part === 'value' && rest.startsWith('"')) rest = rest.slice(1);
  const before = text.slice(0, completion.start);
  return { text: before + inserted + rest, caret: before.length + inserted.length };
}
