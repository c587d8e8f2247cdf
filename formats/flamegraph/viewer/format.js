// Numbers, times and names as text.

// The scales of a unit: size, symbol, and the count from which the scale is used.
const SCALES = {
  nanoseconds: [[1, 'ns', 0], [1e3, 'µs', 1], [1e6, 'ms', 1], [1e9, 's', 1], [60e9, 'min', 2], [3600e9, 'h', 2]],
  bytes: [[1, 'B', 0], [1024, 'KiB', 1], [1024 ** 2, 'MiB', 1], [1024 ** 3, 'GiB', 1], [1024 ** 4, 'TiB', 1]],
};

function threeDigits(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1000) return String(value);
  if (size < 10) return value.toFixed(2);
  if (size < 100) return value.toFixed(1);
  return Math.round(value).toLocaleString('en-US');
}

export function formatValue(value, unit) {
  if (value === 0) return '0';
  const scales = SCALES[unit];
  if (!scales) {
    const number = Math.round(value).toLocaleString('en-US');
    return !unit || unit === 'count' ? number : `${number} ${unit}`;
  }
  let [size, symbol] = scales[0];
  for (const [nextSize, nextSymbol, least] of scales) {
    if (Math.abs(value) >= nextSize * least) [size, symbol] = [nextSize, nextSymbol];
  }
  return `${threeDigits(value / size)} ${symbol}`;
}

// The whole of a profile: "5.19 min CPU time", "812 samples".
export function formatTotal(value, { type, unit }) {
  return `${formatValue(value, unit)} ${type === 'cpu' && unit === 'nanoseconds' ? 'CPU time' : printable(type)}`;
}

export function formatShare(part, whole) {
  if (!(whole > 0)) return '–';
  if (part === 0) return '0 %';
  const percent = (100 * part) / whole;
  if (percent > 0 && percent < 0.01) return '<0.01 %';
  return `${percent.toFixed(percent < 10 ? 2 : 1)} %`;
}

// A difference always has a sign, so that its meaning does not depend on color.
export function formatDifference(difference, format) {
  const size = format(Math.abs(difference));
  return /[1-9]/.test(size) ? (difference > 0 ? '+' : '−') + size : '0';
}

// The difference of two shares in percentage points.
export function formatPoints(share) {
  return `${(share * 100).toFixed(2)} pp`;
}

function twoDigits(number) {
  return String(number).padStart(2, '0');
}

export function formatNumber(value) {
  return Number.isInteger(value) ? value.toLocaleString('en-US') : value.toPrecision(4);
}

export function formatRate(rate) {
  return rate >= 10 || rate === 0 ? Math.round(rate).toLocaleString('en-US') : rate.toFixed(1);
}

export function formatClock(milliseconds, withSeconds = true) {
  const date = new Date(milliseconds);
  const clock = `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
  return withSeconds ? `${clock}:${twoDigits(date.getSeconds())}` : clock;
}

export function formatDate(milliseconds) {
  const date = new Date(milliseconds);
  return `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())} ${formatClock(milliseconds)}`;
}

export function formatDuration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// Control and bidirectional characters could make one name look like another.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/;
const EVERY_INVISIBLE = new RegExp(INVISIBLE, 'g');

export function printable(text) {
  if (!INVISIBLE.test(text)) return text;
  return text.replace(EVERY_INVISIBLE, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

// The start of a long name: enough to identify it, short enough for a line.
export function abbreviate(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

// Shortens in the middle, because both ends of `a::b::c` carry most information.
export function shortenMiddle(text, most) {
  if (text.length <= most) return text;
  if (most < 10) return `${text.slice(0, most - 1)}…`;
  const head = Math.ceil((most - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
}

// Shortens a function's name: leaves out namespaces first, since a reader knows them from the callers.
export function shortenName(name, most) {
  let from = 0;
  let depth = 0;
  for (let at = 0; name.length - from > most && at < name.length - 2; at++) {
    const character = name[at];
    if (character === '<' || character === '(') depth += 1;
    else if (character === '>' || character === ')') depth = Math.max(0, depth - 1);
    // A closure's number says nothing without its function.
    else if (depth === 0 && character === ':' && name[at + 1] === ':' && name[at + 2] !== '{' && name[at + 2] !== '<') from = at + 2;
  }
  return shortenMiddle(name.slice(from), most);
}
