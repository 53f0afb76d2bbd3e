// Which lines a chart shows: a node's GPUs, cores or processes, or the nodes of the job. A line has a label, its means,
// and, where they are told, its lowest and highest values.

const MOST_LINES = 8;
const WORST_LINES = 3;
const SLOW_TIMES = 1.5;

const wholePercent = () => 100;
const nearPercent = (top) => [10, 25, 50].find((each) => top <= each) ?? 100;
const aboveAll = (top) => (top > 0 ? top * 1.06 : 1);

// How each chart reads its values, writes them, ends its axis, and on which side its worst lines lie; with `most`, an
// axis ends at so many times the highest mean, so that one value does not flatten all others; with `spans`, a line goes
// on over empty buckets, as a step may be longer than one.
const CHARTS = {
  utilization: { read: percents, show: showPercent, tick: tickPercent, top: wholePercent, worst: "low" },
  memory: { read: percents, show: showPercent, tick: tickPercent, top: wholePercent, worst: "high" },
  cpu: { read: percents, show: showPercent, tick: tickPercent, top: wholePercent, worst: "high" },
  io_wait: { read: percents, show: showPercent, tick: tickPercent, top: nearPercent, worst: "high" },
  host_memory: { read: percents, show: showPercent, tick: tickPercent, top: wholePercent, worst: "high" },
  network: { read: floats, show: showRate, tick: tickRate, top: aboveAll, worst: "high" },
  steps: { read: floats, show: showSeconds, tick: tickSeconds, top: aboveAll, worst: "high", most: 5, spans: true },
  sm_activity: { read: percents, show: showPercent, tick: tickPercent, top: wholePercent, worst: "low" },
  memory_used: { read: percents, show: showPercent, tick: tickPercent, top: wholePercent, worst: "high" },
  tensor_activity: { read: percents, show: showPercent, tick: tickPercent, top: wholePercent, worst: "low" },
  dram_activity: { read: percents, show: showPercent, tick: tickPercent, top: wholePercent, worst: "high" },
  sm_occupancy: { read: percents, show: showPercent, tick: tickPercent, top: wholePercent, worst: "low" },
  power: { read: floats, show: showIn("W"), tick: tickIn("W"), top: aboveAll, worst: "low" },
  sm_clock: { read: floats, show: showIn("MHz"), tick: tickIn("MHz"), top: aboveAll, worst: "low" },
  temperature: { read: floats, show: showIn("°C"), tick: tickIn("°C"), top: aboveAll, worst: "high" },
  nvlink: { read: floats, show: showRate, tick: tickRate, top: aboveAll, worst: "low" },
  pcie: { read: floats, show: showRate, tick: tickRate, top: aboveAll, worst: "low" },
};
const DEVICE_KINDS = new Set([
  "sm_activity",
  "memory_used",
  "tensor_activity",
  "dram_activity",
  "sm_occupancy",
  "power",
  "sm_clock",
  "temperature",
  "nvlink",
  "pcie",
]);

function lineOf(label, band, read) {
  return { label, mean: read(band, "mean"), low: read(band, "low"), high: read(band, "high") };
}

// The slowest steps of a steady job are like all others; only what is much longer than the mean is shown by itself.
function standingOut(steps, mean) {
  return steps.filter(([, , seconds]) => seconds > SLOW_TIMES * mean);
}

// The lines of one node, in the chart of `kind`.
function nodeLines(data, kind, index) {
  const node = data.nodes[index];
  const { read } = CHARTS[kind];
  if (kind === "utilization" || kind === "memory") {
    return node.gpus.filter((gpu) => gpu[kind]).map((gpu) => lineOf(gpu.name, gpu[kind], read));
  }
  if (DEVICE_KINDS.has(kind)) {
    return node.devices.filter((each) => each.kind === kind).map((each) => lineOf(each.name, each.band, read));
  }
  if (kind === "steps") {
    const own = data.steps.filter((steps) => steps.node === index);
    return own.map((steps) => {
      const line = lineOf(steps.name, steps.seconds, read);
      return { ...line, slowest: standingOut(steps.slowest, average(line.mean)) };
    });
  }
  if (!node[kind]) return [];
  const line = lineOf(kind === "network" ? "all devices" : "mean", node[kind], read);
  if ((kind !== "cpu" && kind !== "io_wait") || !line.high) return [line];
  return [
    { ...line, label: "mean of the cores", low: null, high: null },
    { label: "busiest core", mean: line.high, low: null, high: null, peaks: true },
  ];
}

// Folds series of equal length bucket by bucket; null where none has a value.
function fold(series, start, step, finish) {
  const length = series.length ? series[0].length : 0;
  const folded = new Array(length).fill(null);
  for (let i = 0; i < length; i += 1) {
    let sum = start;
    let count = 0;
    for (const values of series) {
      if (values[i] === null) continue;
      sum = step(sum, values[i]);
      count += 1;
    }
    if (count) folded[i] = finish(sum, count);
  }
  return folded;
}

const meanOf = (series) => fold(series, 0, (a, b) => a + b, (sum, count) => sum / count);
const lowestOf = (series) => fold(series, Infinity, Math.min, (value) => value);
const highestOf = (series) => fold(series, -Infinity, Math.max, (value) => value);

// A node as one line of the job's chart: the mean of its lines, from the lowest to the highest of them.
function nodeLine(data, kind, index) {
  const busiest = kind === "cpu" || kind === "io_wait";
  const all = nodeLines(data, kind, index);
  if (!all.length) return null;
  const lines = busiest ? all.slice(0, 1) : all;
  const label = data.nodes[index].name;
  const slowest = lines.flatMap((line) => line.slowest ?? []);
  if (lines.length === 1) return { ...lines[0], label, slowest };
  return {
    label,
    mean: meanOf(lines.map((line) => line.mean)),
    low: lowestOf(lines.map((line) => line.low ?? line.mean)),
    high: highestOf(lines.map((line) => line.high ?? line.mean)),
    slowest,
  };
}

function average(values) {
  let sum = 0;
  let count = 0;
  for (const value of values) {
    if (value === null) continue;
    sum += value;
    count += 1;
  }
  return count ? sum / count : null;
}

// Many nodes as few lines: their mean, with the shade from the lowest to the highest node, and those that stand out.
function overviewLines(lines, worst) {
  const means = lines.map((line) => line.mean);
  const sign = worst === "low" ? 1 : -1;
  const ranked = lines
    .map((line) => [sign * (average(line.mean) ?? sign * Infinity), line])
    .sort((a, b) => a[0] - b[0]);
  const whole = {
    label: `mean of ${lines.length} nodes`,
    mean: meanOf(means),
    low: lowestOf(means),
    high: highestOf(means),
    slowest: lines.flatMap((line) => line.slowest ?? []),
  };
  const worstOnes = ranked.slice(0, WORST_LINES).map(([, line]) => line);
  return [whole, ...worstOnes.map(({ label, mean }) => ({ label, mean, low: null, high: null }))];
}

// Fits the lines of one node that has many GPUs or processes.
function fewLines(lines, noun, worst) {
  if (lines.length <= 2 * MOST_LINES) return lines;
  const [whole, ...few] = overviewLines(lines, worst);
  return [{ ...whole, label: `mean of ${lines.length} ${noun}` }, ...few];
}

function shadeNote(lines) {
  return lines.some((line) => line.low || line.high) ? "shade: lowest to highest" : "";
}

// The lines to show, and a note that says what the shade is.
function chartLines(data, kind, node) {
  const { worst } = CHARTS[kind];
  const only = data.nodes.length === 1 ? 0 : node;
  if (only !== null) {
    const lines = fewLines(nodeLines(data, kind, only), kind === "steps" ? "processes" : "GPUs", worst);
    return { lines, note: shadeNote(lines) };
  }
  const lines = data.nodes.map((_, i) => nodeLine(data, kind, i)).filter((line) => line !== null);
  if (lines.length <= MOST_LINES) {
    return { lines, note: ["a line is a node", shadeNote(lines)].filter(Boolean).join("; ") };
  }
  const rank = worst === "low" ? "lowest" : "highest";
  const note = `shade: lowest to highest node; lines: the ${WORST_LINES} ${rank} nodes`;
  return { lines: overviewLines(lines, worst), note };
}

// From the lowest to the highest value of the lines that are shown; nothing where none of them tells its extremes.
function envelopeOf(lines, points) {
  const shown = lines.filter((line) => !line.hidden);
  const none = new Array(points).fill(null);
  if (!shown.some((line) => line.low || line.high)) return [none, none];
  return [
    lowestOf(shown.map((line) => line.low ?? line.mean)),
    highestOf(shown.map((line) => line.high ?? line.mean)),
  ];
}
