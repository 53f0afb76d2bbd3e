// Times and sizes as people read them; times are nanoseconds.

const TIME_UNITS = [
  [1, "ns"],
  [1e3, "µs"],
  [1e6, "ms"],
  [1e9, "s"],
];
const MOST_DIGITS = 4;
const SIZE_UNITS = ["B", "kB", "MB", "GB", "TB"];

function unitOf(ns) {
  return TIME_UNITS.findLast(([size]) => Math.abs(ns) >= size) ?? TIME_UNITS[0];
}

function showNs(ns) {
  const [size, unit] = unitOf(ns);
  const value = ns / size;
  const digits = size === 1 ? 0 : Math.max(3 - Math.floor(Math.log10(Math.max(Math.abs(value), 1))), 0);
  return `${value.toLocaleString("en-US", { maximumFractionDigits: digits })} ${unit}`;
}

// A moment: in milliseconds from the start of the window, to the microsecond or, zoomed in, to the nanosecond.
function showMoment(ns, digits = 3) {
  return `${(ns / 1e6).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ms`;
}

function showBytes(bytes) {
  const power = bytes < 1000 ? 0 : Math.min(Math.floor(Math.log10(bytes) / 3), SIZE_UNITS.length - 1);
  return `${(bytes / 1000 ** power).toLocaleString("en-US", { maximumFractionDigits: power ? 2 : 0 })} ${SIZE_UNITS[power]}`;
}

function showCount(count) {
  return count.toLocaleString("en-US");
}

// Round moments between two times, at least `gap` of the time apart, and how to write them.
function ticksOf(from, to, gap) {
  const power = 10 ** Math.floor(Math.log10(Math.max(gap, 1)));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= gap) ?? power * 10;
  const digitsOf = (size) => Math.max(0, Math.round(Math.log10(size / step) + 0.49));
  const fitting = TIME_UNITS.filter(
    ([size]) => size <= Math.max(Math.abs(from), Math.abs(to)) && digitsOf(size) <= MOST_DIGITS,
  );
  const [size, unit] = fitting.at(-1) ?? TIME_UNITS[0];
  const digits = digitsOf(size);
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return ticks.map((at) => [
    at,
    `${(at / size + 0).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`,
  ]);
}
