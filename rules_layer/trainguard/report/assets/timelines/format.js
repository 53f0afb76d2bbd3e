// Numbers and times as people read them.

const RATE_UNITS = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
const TICK_GAP = 92;
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

// A number with its unit, such as watts; no more digits than people read.
function showIn(unit) {
  return (value) => `${decimals(value, value < 100 ? 1 : 0)} ${unit}`;
}

function tickIn(unit) {
  return (value) => `${Number(value.toPrecision(4))} ${unit}`;
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

function showSpan(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${decimals(seconds / 60, seconds < 600 ? 1 : 0)} min`;
  if (seconds < 172800) return `${decimals(seconds / 3600, 1)} h`;
  return `${decimals(seconds / 86400, 1)} days`;
}

function showRange(low, high) {
  const end = showDate(low) === showDate(high) ? showClock(high) : `${showDate(high)} ${showClock(high)}`;
  return `${showDate(low)} ${showClock(low)} – ${end} ${zoneName(high)} (${showSpan(high - low)})`;
}

// Time since the job's start: hours and minutes, days before them and seconds after them where they are needed.
function showElapsed(seconds, short) {
  const whole = Math.round(Math.abs(seconds) / (short ? 60 : 1)) * (short ? 60 : 1);
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  const days = Math.floor(whole / 86400);
  const clock = `${Math.floor((whole % 86400) / 3600)}:${two((whole % 3600) / 60)}${short ? "" : `:${two(whole % 60)}`}`;
  return `${seconds < 0 && whole ? "−" : "+"}${days ? `${days} d ` : ""}${clock}`;
}

// Round times of day between `low` and `high`, at least `gap` pixels apart on `width` pixels.
function timeTicks(low, high, width, gap) {
  const wanted = ((high - low) * gap) / Math.max(width, 1);
  const step = TICK_STEPS.find((each) => each >= wanted) ?? Math.ceil(wanted / 604800) * 604800;
  const ahead = zone.offset(low);
  const ticks = [];
  for (let at = Math.ceil((low + ahead) / step) * step - ahead; at <= high; at += step) ticks.push(at);
  return ticks;
}

// The time of day, and below it the time since the start; the first tick and the first of a day carry the date.
function tickLabels(ticks, origin) {
  const short = ticks.every((at) => at % 60 === 0);
  return ticks.map((at, i) => {
    const clock = showClock(at).slice(0, short ? 5 : 8);
    const dated = i === 0 || showDate(at) !== showDate(ticks[i - 1]);
    return `${dated ? `${showDay(at)} ` : ""}${clock}\n${showElapsed(at - origin, short)}`;
  });
}
