import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addMatcher, applyCompletion, completionAt, formatSelector, parseSelector } from '../selector.js';

test('a selector is parsed and formatted', () => {
  const text = '{comm="nginx",pid!="1",k8s.pod.name=~"a.*",path!~"C:\\\\x\\"y"}';
  const { matchers, error } = parseSelector(text);
  assert.equal(error, null);
  assert.deepEqual(matchers.map(({ name, operator }) => name + operator), ['comm=', 'pid!=', 'k8s.pod.name=~', 'path!~']);
  assert.equal(matchers[3].value, 'C:\\x"y');
  assert.equal(formatSelector(matchers), text);
  assert.deepEqual(parseSelector(' { } ').matchers, []);
  assert.equal(formatSelector([]), '');
  assert.deepEqual(parseSelector('comm = "a" , pid = "2"').matchers.length, 2);
});

test('errors are reported', () => {
  for (const text of ['{comm', '{comm=', '{comm="a', '{comm=nginx}', '{="a"}', '{comm="a" pid="b"}', '{comm=="a"}', '§']) {
    assert.notEqual(parseSelector(text).error, null, text);
  }
});

test('a matcher replaces an equality matcher of its label', () => {
  assert.equal(addMatcher('', 'comm', 'a"b'), '{comm="a\\"b"}');
  assert.equal(addMatcher('{comm="x",pid!="1"}', 'comm', 'y'), '{pid!="1",comm="y"}');
});

test('completion knows the part at the caret', () => {
  const at = (text) => completionAt(text, text.length);
  assert.equal(at('').part, 'name');
  assert.equal(at('{co').part, 'name');
  assert.equal(at('{co').typed, 'co');
  assert.equal(at('{comm ').part, 'operator');
  assert.deepEqual([at('{comm=').part, at('{comm=').label], ['value', 'comm']);
  assert.deepEqual([at('{comm="ng').part, at('{comm="ng').typed], ['value', 'ng']);
  assert.deepEqual([at('{comm=ng').part, at('{comm=ng').typed], ['value', 'ng']);
  assert.equal(at('{comm="nginx"'), null);
  assert.equal(at('{comm="nginx",').part, 'name');
});

test('a suggestion replaces what was typed', () => {
  const complete = (text, suggestion) => applyCompletion(text, text.length, completionAt(text, text.length), suggestion);
  assert.deepEqual(complete('{co', 'comm'), { text: '{comm=', caret: 6 });
  assert.deepEqual(complete('{comm=', 'nginx'), { text: '{comm="nginx"', caret: 13 });
  assert.equal(complete('{comm="n', 'nginx').text, '{comm="nginx"');
  assert.equal(complete('{a="1",co', 'comm').text, '{a="1",comm=');
});
