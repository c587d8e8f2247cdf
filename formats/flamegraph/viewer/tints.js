// The tints of binaries: the heaviest ones are easy to tell apart, and each keeps its own.
import { binaryTint, tintDistance, TINTS } from './colors.js';

// Of tints in use at the same time; about 40 degrees of hue.
const LEAST_DISTANCE = 40;
const MOST_KEPT = 200;

export class Tints {
  constructor() {
    this.chosen = new Map();
  }

  of(binary) {
    return this.chosen.get(binary) ?? binaryTint(binary);
  }

  // `binaries` are those that must differ, heaviest first.
  choose(binaries) {
    const used = binaries.filter((binary) => this.chosen.has(binary)).map((binary) => this.chosen.get(binary));
    for (const binary of binaries.filter((known) => !this.chosen.has(known))) {
      const tint = freeTint(binaryTint(binary), used);
      this.chosen.set(binary, tint);
      used.push(tint);
    }
    for (const binary of this.chosen.keys()) if (this.chosen.size > MOST_KEPT && !binaries.includes(binary)) this.chosen.delete(binary);
  }
}

// The preferred tint if it differs enough from those in use, otherwise the one that differs most.
function freeTint(preferred, used) {
  const distance = (tint) => Math.min(...used.map((other) => tintDistance(tint, other)));
  if (distance(preferred) >= LEAST_DISTANCE) return preferred;
  let free = preferred;
  for (let tint = 0; tint < TINTS; tint++) if (distance(tint) > distance(free)) free = tint;
  return free;
}
