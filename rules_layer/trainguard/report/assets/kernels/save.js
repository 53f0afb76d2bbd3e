// Files that the page makes of its own data: a trimmed trace for Perfetto, and tables as CSV.

const SORT_CATEGORIES = [
  "kernel",
  "kernel",
  "gpu_memcpy",
  "gpu_memset",
  "cuda_sync",
  "gpu_user_annotation",
  "user_annotation",
  "cpu_op",
  "cuda_runtime",
  "overhead",
];
const GPU_PIDS = 1000;

// The events in sight of a stretch of time as a Chrome trace: threads and streams by number, an arrow for each launch.
function trimmedTrace(model, from, to) {
  const { table } = model;
  const events = [];
  const rows = [];
  model.lanes.forEach((lane, tid) => {
    const pid = pidOf(model, lane);
    const process =
      lane.side === "gpu"
        ? `${lane.process.title} GPU ${lane.device < 0 ? "" : lane.device}`.trim()
        : lane.process.title;
    events.push({ ph: "M", name: "process_name", pid, args: { name: process } });
    events.push({ ph: "M", name: "thread_name", pid, tid, args: { name: laneTitle(lane) } });
    for (let row = lane.from; row < lane.to; row += 1) {
      if (table.end[row] <= from || table.start[row] >= to) continue;
      rows.push(row);
      events.push({
        ph: "X",
        cat: SORT_CATEGORIES[table.sort[row]],
        name: nameOf(model, row),
        pid,
        tid,
        ts: table.start[row] / 1e3,
        dur: (table.end[row] - table.start[row]) / 1e3,
        args: argsOf(table, row),
      });
    }
  });
  const inSight = new Set(rows);
  for (const row of rows) {
    const launch = table.launch[row];
    if (launch < 0 || !inSight.has(launch)) continue;
    const place = (of) => ({
      pid: pidOf(model, model.lanes[table.lane[of]]),
      tid: table.lane[of],
      ts: table.start[of] / 1e3,
    });
    const flow = { cat: "ac2g", name: "ac2g", id: row };
    events.push({ ph: "s", ...flow, ...place(launch) }, { ph: "f", bp: "e", ...flow, ...place(row) });
  }
  return { displayTimeUnit: "ns", traceEvents: events };
}

function pidOf(model, lane) {
  const process = model.processes.indexOf(lane.process) + 1;
  return lane.side === "gpu" ? GPU_PIDS * process + Math.max(lane.device, 0) : process;
}

function argsOf(table, row) {
  const args = {};
  if (table.launch[row] >= 0) args.correlation = table.launch[row];
  else if (table.kernels.has(row)) args.correlation = row;
  if (table.size.get(row) >= 0) args.bytes = table.size.get(row);
  if (table.joins.has(row)) args.events = table.joins.get(row);
  return args;
}

function saveFile(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A cell that a spreadsheet would take for a formula is written as text.
function csvOf(rows) {
  const cell = (value) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
