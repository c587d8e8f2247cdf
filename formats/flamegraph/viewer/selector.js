// Selectors of labels as in PromQL: parsing, writing, and what can stand at a caret.
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

// Tokens of a selector, and where it stops to make sense (-1 if nowhere).
function tokenize(text) {
  const tokens = [];
  let wanted = 'name';
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
    else if (wanted === 'name' && take(LABEL_NAME, 'name')) wanted = 'operator';
    else if (wanted === 'operator' && take(OPERATOR, 'operator')) wanted = 'value';
    else if (wanted === 'value' && take(STRING, 'value')) wanted = 'comma';
    else if (wanted === 'comma' && text[at] === ',') {
      tokens.push({ type: 'comma', start: at, end: at + 1, text: ',' });
      at += 1;
      wanted = 'name';
    } else return { tokens, wanted, errorAt: at };
  }
  return { tokens, wanted, errorAt: -1 };
}

// The matchers of a selector, or what is wrong with it.
export function parseSelector(text) {
  const { tokens, wanted, errorAt } = tokenize(text);
  if (errorAt >= 0) return { matchers: [], error: `expected ${describe(wanted)} at “${abbreviate(text.slice(errorAt), 20)}”` };
  const last = tokens[tokens.length - 1];
  if (last?.type === 'value' && !last.closed) return { matchers: [], error: 'a closing " is missing' };
  if (last && (last.type === 'name' || last.type === 'operator')) return { matchers: [], error: `expected ${describe(wanted)} at the end` };
  const matchers = [];
  for (let index = 0; index + 2 < tokens.length; index += 4) {
    matchers.push({ name: tokens[index].text, operator: tokens[index + 1].text, value: unescapeString(tokens[index + 2].text) });
  }
  return { matchers, error: null };
}

function describe(wanted) {
  return { name: 'a label name', operator: '= != =~ or !~', value: 'a "quoted value"', comma: 'a comma' }[wanted];
}

export function formatSelector(matchers) {
  if (matchers.length === 0) return '';
  return `{${matchers.map(({ name, operator, value }) => `${name}${operator}${quote(value)}`).join(',')}}`;
}

// The selector with one more matcher, in place of an equal one of the same label.
export function addMatcher(text, name, value) {
  const kept = parseSelector(text).matchers.filter((matcher) => matcher.name !== name || matcher.operator !== '=');
  return formatSelector([...kept, { name, operator: '=', value }]);
}

// What stands at the caret: which part it is and which text a suggestion replaces.
export function completionAt(text, caret) {
  const { tokens, wanted, errorAt } = tokenize(text.slice(0, caret));
  if (errorAt >= 0 && wanted !== 'value') return null;
  const last = tokens[tokens.length - 1];
  if (errorAt >= 0) return { part: 'value', label: labelBefore(tokens), start: errorAt, typed: text.slice(errorAt, caret) };
  if (last?.type === 'name' && last.end === caret) return { part: 'name', start: last.start, typed: last.text };
  if (last?.type === 'value' && !last.closed) return { part: 'value', label: labelBefore(tokens.slice(0, -1)), start: last.start, typed: unescapeString(last.text) };
  if (last?.type === 'value' && last.end === caret) return null;
  if (wanted === 'comma') return null;
  return { part: wanted, label: labelBefore(tokens), start: caret, typed: '' };
}

function labelBefore(tokens) {
  return tokens.findLast((token) => token.type === 'name')?.text ?? '';
}

// Puts a suggestion in and says where the caret goes.
export function applyCompletion(text, caret, completion, suggestion) {
  let inserted = completion.part === 'value' ? quote(suggestion) : suggestion;
  let rest = text.slice(caret);
  if (completion.part === 'name' && !/^\s*[=!]/.test(rest)) inserted += '=';
  if (completion.part === 'value' && rest.startsWith('"')) rest = rest.slice(1);
  const before = text.slice(0, completion.start);
  return { text: before + inserted + rest, caret: before.length + inserted.length };
}
