// Numbers and times as people read them; all times are UTC.

const RATE_UNITS = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
const NOTHING = "–";
const TICK_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600,
];

function decimals(value, count) {
  return value.toLocaleString("en-US", { minimumFractionDigits: count, maximumFractionDigits: count });
}

function showPercent(value) {
  return `${decimals(value, 1)} %`;
}

function showRate(value) {
  const power = value < 999.5 ? 0 : Math.min(RATE_UNITS.length - 1, Math.floor(Math.log10(value * 1.0005) / 3));
  const scaled = value / 1000 ** power;
  return `${decimals(scaled, scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0)} ${RATE_UNITS[power]}`;
}

function showSeconds(value) {
  if (value < 1) return `${decimals(value * 1000, value < 0.01 ? 2 : value < 0.1 ? 1 : 0)} ms`;
  return `${decimals(value, value < 10 ? 2 : value < 100 ? 1 : 0)} s`;
}

function tickPercent(value) {
  return `${value} %`;
}

// A tick is a round number: no more digits than it has.
function tickRate(value) {
  return showRate(value).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}

function tickSeconds(value) {
  if (value === 0) return "0 s";
  return value < 1 ? `${Number((value * 1000).toPrecision(4))} ms` : `${Number(value.toPrecision(4))} s`;
}

function isoTime(at) {
  return new Date(at * 1000).toISOString();
}

function showDate(at) {
  return isoTime(at).slice(0, 10);
}

function showClock(at) {
  return isoTime(at).slice(11, 19);
}

function showSpan(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${decimals(seconds / 60, seconds < 600 ? 1 : 0)} min`;
  if (seconds < 172800) return `${decimals(seconds / 3600, 1)} h`;
  return `${decimals(seconds / 86400, 1)} days`;
}

function showRange(low, high) {
  const end = showDate(low) === showDate(high) ? showClock(high) : `${showDate(high)} ${showClock(high)}`;
  return `${showDate(low)} ${showClock(low)} – ${end} UTC (${showSpan(high - low)})`;
}

// Round times between `low` and `high`, at least `gap` pixels apart on `width` pixels.
function timeTicks(low, high, width, gap) {
  const wanted = ((high - low) * gap) / Math.max(width, 1);
  const step = TICK_STEPS.find((each) => each >= wanted) ?? Math.ceil(wanted / 604800) * 604800;
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
  return ticks;
}

// The first tick and the first of a day carry the date, on a line of its own; at the right end there is no room.
function tickLabels(ticks) {
  const short = ticks.every((at) => at % 60 === 0);
  return ticks.map((at, i) => {
    const clock = isoTime(at).slice(11, short ? 16 : 19);
    const dated = i === 0 || (i < ticks.length - 1 && showDate(at) !== showDate(ticks[i - 1]));
    return dated ? `${clock}\n${showDate(at)}` : clock;
  });
}
