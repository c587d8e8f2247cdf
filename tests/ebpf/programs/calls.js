// Burns CPU in functions called in different ways, each in one known chain, and accounts for its time.
'use strict';

const fs = require('node:fs');

const SLICE_MS = 20;
// Older versions only know the time of the whole process.
const usage = process.threadCpuUsage ?? process.cpuUsage;
// In innermost functions.
let burnedNs = 0;

function cpuNs() {
  const { user, system } = usage.call(process);
  return (user + system) * 1000;
}

function unixNs() {
  return `${Math.round((performance.timeOrigin + performance.now()) * 1000)}000`;
}

function burn() { // burns
  const cpu = cpuNs(); // burns
  const end = performance.now() + SLICE_MS; // burns
  let sum = 0; // burns
  while (performance.now() < end) { // burns
    for (let number = 0; number < 2000; number++) sum = (sum * 31 + number) | 0; // burns
  } // burns
  burnedNs += cpuNs() - cpu; // burns
  return sum; // burns
} // burns

function by_call() {
  return middle(); // calls
}

function middle() {
  return inner() + 1; // calls
}

function inner() {
  return burn() + 1; // calls
}

function recurse(depth) {
  if (depth === 0) return burn(); // calls
  return recurse(depth - 1) + 1; // calls
}

function by_recursion() {
  return recurse(30); // calls
}

function by_map() {
  return [1].map(function mapped() { // calls
    return burn(); // calls
  });
}

function by_sort() {
  return [2, 1].sort(function compare(left, right) { // calls
    burn(); // calls
    return left - right;
  });
}

function by_replace() {
  return 'abc'.replace(/b/, function replacer() { // calls
    burn(); // calls
    return 'x';
  });
}

function by_json() {
  return JSON.parse('1', function revive(key, value) { // calls
    burn(); // calls
    return value;
  });
}

class Base {
  method() {
    return burn(); // calls
  }
}

class Derived extends Base {
  constructor() {
    super();
    this.field = this.method(); // calls
  }

  method() {
    return super.method(); // calls
  }
}

function by_class() {
  return new Derived(); // calls
}

function* delegate() {
  yield burn(); // calls
}

function* generate() {
  yield* delegate(); // calls
}

function by_generator() {
  for (const _ of generate()); // calls
}

function by_closure() {
  const one = 1;
  const closure = () => burn() + one; // calls
  return closure(); // calls
}

function by_bind() {
  return middle.bind(null)(); // calls
}

function by_apply() {
  return Reflect.apply(inner, null, []); // calls
}

function by_getter() {
  return { get property() { return burn(); } }.property; // calls
}

function by_proxy() {
  const handler = { get() { return burn(); } }; // calls
  return new Proxy({}, handler).property; // calls
}

function by_exception() {
  try {
    throw new Error('thrown');
  } catch {
    return burn(); // calls
  }
}

async function by_async() {
  await null;
  return burn(); // calls
}

function by_größe() {
  return burn(); // calls
}

async function main(seconds) {
  const ways = [by_call, by_recursion, by_map, by_sort, by_replace, by_json, by_class, by_generator, by_closure, by_bind, by_apply, by_getter,
    by_proxy, by_exception, by_async, by_größe];
  const end = performance.now() + seconds * 1000;
  const clock = process.env.PROFCOL_TEST_CLOCK ? fs.openSync(process.env.PROFCOL_TEST_CLOCK, 'w') : null;
  while (performance.now() < end) {
    for (const way of ways) {
      const [burned, start, cpu] = [burnedNs, unixNs(), cpuNs()];
      const called = way(); // calls
      await called;
      const [used, stop] = [cpuNs() - cpu, unixNs()];
      if (clock !== null) fs.writeSync(clock, `${way.name} ${start} ${stop} ${used} ${burnedNs - burned}\n`);
    }
  }
}

main(Number(process.argv[2]));
