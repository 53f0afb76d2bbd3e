// The rows of all processes in one table of typed arrays, and its tracks: the rows of one level of one lane, which do
// not overlap, in order of time. Times are nanoseconds from the first event; the first window starts at `zero`.

const SORTS = [
  "computation",
  "communication",
  "copy",
  "memory set",
  "synchronization",
  "annotation on the GPU",
  "annotation",
  "operator",
  "launch",
  "profiler",
];
const SORT = { copy: 2, memset: 3, gpuAnnotation: 5, annotation: 6, launch: 8 };

// What a row of a kernel that computes is coloured by: its family's tone, of the kernels whose name is a number.
function colourOfRow(table, names, { kernels, tones }) {
  const at = new Uint8Array(names.length + 1).fill(toneAt("s1"));
  for (const view of kernels)
    for (const row of view.rows) at[row[KERNEL.name] + 1] = toneAt(tones[row[KERNEL.family]] ?? "s8");
  return (row) => (table.sort[row] === 0 ? at[table.name[row]] : table.sort[row]);
}

function makeModel(island) {
  const { timelines: document, names } = island;
  const total = document.processes.reduce(
    (sum, each) => sum + each.lanes.reduce((rows, lane) => rows + lane.rows, 0),
    0,
  );
  const table = {
    start: new Float64Array(total),
    end: new Float64Array(total),
    name: new Uint32Array(total),
    sort: new Uint8Array(total),
    lane: new Uint16Array(total),
    level: new Uint8Array(total),
    launch: new Int32Array(total).fill(-1),
    joins: new Map(),
    size: new Map(),
    kernels: new Map(),
    total,
  };
  const lanes = [];
  let first = 0;
  const processes = document.processes.map((packed) => {
    const process = {
      title: packed.title,
      node: packed.node,
      offset: packed.offset,
      window: packed.window,
      detail: packed.detail,
      busy: packed.busy,
      steps: packed.steps,
      lanes: [],
    };
    const rows = fillRows(table, packed, first);
    let from = first;
    for (const each of packed.lanes) {
      const lane = { ...each, process, from, to: from + each.rows };
      table.lane.fill(lanes.length, lane.from, lane.to);
      lane.tracks = tracksOf(table, lane);
      from = lane.to;
      lanes.push(lane);
      process.lanes.push(lane);
    }
    first += rows;
    return process;
  });
  for (let row = 0; row < total; row += 1) if (table.launch[row] >= 0) addTo(table.kernels, table.launch[row], row);
  const length = processes.reduce((most, each) => Math.max(most, each.offset + each.window), 1);
  const colour = colourOfRow(table, names, island);
  return { table, lanes, processes, length, zero: document.zero, names, colour, shortNames: [] };
}

function addTo(lists, key, value) {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

function fillRows(table, packed, first) {
  const [start, lasts, name, look] = [
    readSteps(packed.start),
    readCounts(packed.lasts),
    readCounts(packed.name),
    readCounts(packed.look),
  ];
  const [joins, launch, size] = [readCounts(packed.joins), readCounts(packed.launch), readCounts(packed.size)];
  let [joined, onGpu, copied, called] = [0, 0, 0, 0];
  for (let i = 0; i < start.length; i += 1) {
    const row = first + i;
    table.start[row] = packed.offset + start[i];
    table.end[row] = table.start[row] + lasts[i];
    table.name[row] = name[i];
    table.sort[row] = look[i] % SORTS.length;
    table.level[row] = Math.floor(look[i] / SORTS.length);
    if (name[i] === 0) table.joins.set(row, joins[joined++]);
    else if (table.sort[row] === SORT.copy || table.sort[row] === SORT.memset) table.size.set(row, size[copied++] - 1);
    if (table.sort[row] <= SORT.gpuAnnotation) {
      const step = launch[onGpu++];
      if (step) {
        called += signedOf(step - 1);
        table.launch[row] = first + called;
      }
    }
  }
  return start.length;
}

// `sum` holds how long the rows before each one are together, so that how full a pixel is takes two look-ups.
function tracksOf(table, lane) {
  const byLevel = [];
  for (let row = lane.from; row < lane.to; row += 1) (byLevel[table.level[row]] ??= []).push(row);
  return byLevel.map((rows, level) => {
    const track = {
      lane,
      level,
      rows: Int32Array.from(rows),
      start: new Float64Array(rows.length),
      end: new Float64Array(rows.length),
      sum: new Float64Array(rows.length + 1),
    };
    rows.forEach((row, i) => {
      track.start[i] = table.start[row];
      track.end[i] = table.end[row];
      track.sum[i + 1] = track.sum[i] + table.end[row] - table.start[row];
    });
    return track;
  });
}

function nameOf(model, row) {
  const count = model.table.joins.get(row);
  return count === undefined ? model.names[model.table.name[row] - 1] : `${count.toLocaleString("en-US")} events`;
}

// A kernel's name without its type, its arguments and the places that most names begin with.
function shortName(name) {
  const plain = name
    .replace(/^void /, "")
    .replaceAll("(anonymous namespace)::", "")
    .replaceAll(/\b(?:at::native|at::cuda|cudnn|std)::/g, "");
  let depth = 0;
  for (let i = 0; i < plain.length; i += 1) {
    if (plain[i] === "<") depth += 1;
    else if (plain[i] === ">") depth -= 1;
    else if (plain[i] === "(" && depth === 0 && i > 0) return plain.slice(0, i);
  }
  return plain;
}

// A long name with its start and its end: functors stand at the end.
function middleCut(name, longest) {
  const half = Math.floor(longest / 2);
  return name.length <= longest ? name : `${name.slice(0, half)}…${name.slice(1 - half)}`;
}

function shortNameOf(model, row) {
  if (model.table.joins.has(row)) return nameOf(model, row);
  const at = model.table.name[row] - 1;
  return (model.shortNames[at] ??= shortName(model.names[at]));
}

// The row that a time is in, of those of a track; within `slack` of the time where none is there; -1 for none.
function rowAt(track, time, slack) {
  const after = firstOver(track.start, time, 0);
  const near = [after - 1, after].filter((i) => i >= 0 && i < track.rows.length);
  const away = (i) => Math.max(track.start[i] - time, time - track.end[i], 0);
  near.sort((a, b) => away(a) - away(b));
  return near.length && away(near[0]) <= slack ? track.rows[near[0]] : -1;
}
