// Colors: themes, palettes by binary, kind and language, and comparison scales. Text on every fill has a contrast of at least
// 4.5:1.

// OKLCH keeps the perceived lightness equal across hues, so one text color suits a whole palette.
function oklch(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  const a = chroma * Math.cos(angle);
  const b = chroma * Math.sin(angle);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return `#${linear.map(hexByte).join('')}`;
}

function hexByte(linear) {
  const clamped = Math.min(1, Math.max(0, linear));
  const encoded = clamped <= 0.0031308 ? 12.92 * clamped : 1.055 * clamped ** (1 / 2.4) - 0.055;
  return Math.round(encoded * 255).toString(16).padStart(2, '0');
}

export const LIGHT = {
  dark: false, background: '#ffffff', text: '#1c2024', dim: '#5c646c', line: '#d8dce0', outline: '#1c2024', root: '#e6e9ec',
  grey: '#dfe2e5', hatch: '#b4bac0', match: oklch(0.85, 0.155, 95), selection: '#0b5cad', base: '#b45309',
};

export const DARK = {
  dark: true, background: '#14171a', text: '#eceff2', dim: '#9aa4ae', line: '#30363c', outline: '#ffffff', root: '#2c3238',
  grey: '#2a2f34', hatch: '#555d65', match: oklch(0.5, 0.105, 90), selection: '#6cb0f5', base: '#e5a15a',
};

export function currentTheme() {
  return matchMedia('(prefers-color-scheme: dark)').matches ? DARK : LIGHT;
}

export function hashText(text) {
  let hash = 0x811c9dc5 ^ text.length;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}

const KIND_HUES = { native: 250, kernel: 50, jit: 150, interpreted: 310, runtime: 345, inlined: 215, marker: 0 };
const KIND_CHROMA = { inlined: 0.03, marker: 0 };
// Distinct from the kernel's hue, which has the same color in every mode.
const BINARY_HUES = [250, 150, 310, 200, 110, 345, 275, 175, 225, 130, 290, 325];
const BINARY_CHROMAS = [0.07, 0.045];
export const TINTS = BINARY_HUES.length * BINARY_CHROMAS.length;
const SHADES = 3;

function fill(theme, hue, shade, chroma) {
  return theme.dark ? oklch(0.385 + 0.025 * shade, chroma * 0.95, hue) : oklch(0.88 - 0.028 * shade, chroma, hue);
}

function kindFill(theme, kind, shade) {
  return fill(theme, KIND_HUES[kind] ?? 0, shade, KIND_CHROMA[kind] ?? (KIND_HUES[kind] === undefined ? 0 : 0.075));
}

// The stripe at the left edge of a frame that is not plain native code.
export function kindStripe(theme, kind) {
  if (kind === 'native' || KIND_HUES[kind] === undefined) return null;
  return kind === 'marker' ? theme.dim : oklch(theme.dark ? 0.72 : 0.55, kind === 'inlined' ? 0.02 : 0.13, KIND_HUES[kind]);
}

export function kindColor(theme, kind) {
  return kindFill(theme, kind, 1);
}

// Hue and chroma of a binary, packed into one number.
export function binaryTint(binary) {
  const hash = hashText(binary);
  return (hash % BINARY_HUES.length) * BINARY_CHROMAS.length + ((hash >>> 16) % BINARY_CHROMAS.length);
}

// In degrees of hue; a difference of chroma alone is hardly visible.
export function tintDistance(one, other) {
  const [hue, otherHue] = [one, other].map((tint) => BINARY_HUES[Math.floor(tint / BINARY_CHROMAS.length)]);
  const degrees = Math.abs(hue - otherHue);
  return Math.min(degrees, 360 - degrees) + ((one - other) % BINARY_CHROMAS.length === 0 ? 0 : 10);
}

function binaryFill(theme, tint, shade) {
  return fill(theme, BINARY_HUES[Math.floor(tint / BINARY_CHROMAS.length)], shade, BINARY_CHROMAS[tint % BINARY_CHROMAS.length]);
}

export function binaryColor(theme, binary, kind, tintOf) {
  return kind === 'kernel' ? kindFill(theme, 'kernel', 1) : binaryFill(theme, tintOf(binary), 1);
}

// Each language has a hue of its own, by its place in the list of all.
function languageFill(theme, languages, language, shade) {
  if (language === 'kernel') return kindFill(theme, 'kernel', shade);
  const place = languages.indexOf(language);
  return language === '' ? fill(theme, 0, shade, 0) : fill(theme, BINARY_HUES[place % BINARY_HUES.length], shade, BINARY_CHROMAS[0]);
}

export function languageColor(theme, languages, language) {
  return languageFill(theme, languages, language, 1);
}

// The index into `styles` of each frame's fill. `tintOf(binary)` is the tint of a binary.
export function frameColors(frames, mode, theme, tintOf) {
  const styles = [theme.root];
  const indices = new Map();
  const tints = new Map();
  const ofFrame = new Uint16Array(frames.count + 1);
  for (let frame = 0; frame < frames.count; frame++) {
    const kind = frames.kindOf(frame);
    const shade = hashText(frames.nameOf(frame)) % SHADES;
    const byLanguage = mode === 'language';
    const byKind = !byLanguage && (mode === 'kind' || kind === 'kernel');
    const binary = frames.binaryOf(frame);
    const language = frames.languageOf(frame);
    const byBinary = !byLanguage && !byKind;
    if (byBinary && !tints.has(binary)) tints.set(binary, tintOf(binary));
    const key = byBinary ? tints.get(binary) * SHADES + shade : `${byKind ? kind : language} ${shade}`;
    let style = indices.get(key);
    if (style === undefined) {
      style = styles.length;
      indices.set(key, style);
      if (byLanguage) styles.push(languageFill(theme, frames.languages, language, shade));
      else styles.push(byKind ? kindFill(theme, kind, shade) : binaryFill(theme, tints.get(binary), shade));
    }
    ofFrame[frame] = style;
  }
  return { styles, ofNode: (nodes, node) => ofFrame[nodes.frame[node]] };
}

const DIFFERENCE_HUES = { 'blue-orange': [255, 55], 'green-red': [150, 25] };
const STEPS = 8;

// From "only in the baseline" via "unchanged" (the middle) to "only now".
export function differenceScale(palette, theme) {
  const [less, more] = DIFFERENCE_HUES[palette] ?? DIFFERENCE_HUES['blue-orange'];
  const styles = [];
  for (let step = -STEPS; step <= STEPS; step++) {
    const strength = Math.abs(step) / STEPS;
    const hue = step < 0 ? less : more;
    styles.push(
      theme.dark ? oklch(0.33 + 0.16 * strength, 0.115 * strength, hue) : oklch(0.93 - 0.2 * strength, 0.12 * strength, hue),
    );
  }
  return styles;
}

// The step on the scale: `now` and `base` are shares or values in the same unit.
export function differenceStep(now, base) {
  const sum = now + base;
  if (!(sum > 0)) return STEPS;
  const relative = (now - base) / sum;
  return STEPS + Math.round(Math.sign(relative) * Math.sqrt(Math.abs(relative)) * STEPS);
}

export function differenceColors(palette, theme, scale) {
  return {
    styles: differenceScale(palette, theme),
    ofNode: (nodes, node) => differenceStep(nodes.total[node] * scale.now, nodes.baseTotal[node] * scale.base),
  };
}

// Timeline colors, assigned by first appearance so that reordering keeps them.
const SERIES_HUES = [250, 150, 50, 310, 200, 95, 345, 25, 275, 175];

export function seriesColor(theme, slot) {
  return oklch(theme.dark ? 0.62 : 0.68, 0.1, SERIES_HUES[slot % SERIES_HUES.length]);
}
