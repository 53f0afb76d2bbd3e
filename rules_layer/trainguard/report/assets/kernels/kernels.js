// The charts and the table of kernels: k, search, sort, and the rank that they are of.

const KERNEL = {
  name: 0,
  count: 1,
  total: 2,
  least: 3,
  most: 4,
  p99: 5,
  precision: 6,
  flags: 7,
  operator: 8,
  calls: 9,
  std: 10,
  short: 11,
  occupancy: 12,
  blocks: 13,
  family: 14,
};
const TENSOR = 1;
const COMMUNICATION = 2;
const SVG = "http://www.w3.org/2000/svg";

// Title, value to sort by, text, and whether it is a number.
function kernelColumns(names, view) {
  const time = (title, value) => ({ title, value, text: (row) => showNs(value(row)), number: true });
  const known = (title, value, show) => ({
    title,
    value: (row) => value(row) ?? -1,
    text: (row) => (value(row) === null ? "–" : show(value(row))),
    number: true,
  });
  return [
    { title: "Kernel", value: (row) => names[row[KERNEL.name]].toLowerCase(), text: (row) => names[row[KERNEL.name]] },
    { title: "Family", value: (row) => row[KERNEL.family], text: (row) => row[KERNEL.family] },
    { title: "Runs", value: (row) => row[KERNEL.count], text: (row) => showCount(row[KERNEL.count]), number: true },
    time("Total", (row) => row[KERNEL.total]),
    {
      title: "of all kernels",
      number: true,
      value: (row) => row[KERNEL.total] / (view.total || 1),
      text: (row) => showShare(row[KERNEL.total] / (view.total || 1)),
    },
    {
      title: "of the window",
      number: true,
      value: (row) => row[KERNEL.total] / (view.window || 1),
      text: (row) => showShare(row[KERNEL.total] / (view.window || 1)),
    },
    time("Mean", (row) => row[KERNEL.total] / row[KERNEL.count]),
    time("p99", (row) => row[KERNEL.p99]),
    { title: "Precision", value: precisionOf, text: precisionOf },
    time("Min", (row) => row[KERNEL.least]),
    time("Max", (row) => row[KERNEL.most]),
    time("Std", (row) => row[KERNEL.std]),
    {
      title: "Launch calls",
      value: (row) => row[KERNEL.calls],
      text: (row) => showCount(row[KERNEL.calls]),
      number: true,
    },
    {
      title: "Shorter than their call",
      value: (row) => row[KERNEL.short] / row[KERNEL.count],
      text: (row) => showShare(row[KERNEL.short] / row[KERNEL.count]),
      number: true,
    },
    known("Occupancy", (row) => row[KERNEL.occupancy], showShare),
    known("Blocks per SM", (row) => row[KERNEL.blocks], showRate),
    {
      title: "Operator",
      value: (row) => (names[row[KERNEL.operator]] ?? "").toLowerCase(),
      text: (row) => names[row[KERNEL.operator]] ?? "–",
    },
  ];
}

function precisionOf(row) {
  if (row[KERNEL.flags] & COMMUNICATION) return "–";
  return row[KERNEL.flags] & TENSOR ? `${row[KERNEL.precision]}, tensor cores` : row[KERNEL.precision];
}

function showShare(share) {
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  return `${(100 * share).toLocaleString("en-US", { maximumFractionDigits: 1 })} %`;
}

function showRate(value) {
  return value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
}

// A number that was typed, kept inside the input's own limits; its default where it is none.
function numberIn(input) {
  const value = Math.round(Number(input.value));
  return Number.isFinite(value) && value > 0
    ? Math.min(Math.max(value, Number(input.min)), Number(input.max))
    : Number(input.defaultValue);
}

function barCell(share, tone) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "parts");
  svg.setAttribute("width", "100%");
  svg.setAttribute("height", "28");
  svg.setAttribute("aria-hidden", "true");
  const rect = document.createElementNS(SVG, "rect");
  rect.setAttribute("width", `${Math.max(100 * share, 0.35)}%`);
  rect.setAttribute("height", "28");
  rect.setAttribute("class", `part ${tone}`);
  svg.append(rect);
  const cell = document.createElement("td");
  cell.className = "bar-cell";
  cell.append(svg);
  return cell;
}

function tableCell(tag, text, kind) {
  const cell = textElement(tag, text);
  if (kind) cell.className = kind;
  return cell;
}

function kernelNameCell(name) {
  const cell = document.createElement("th");
  cell.scope = "row";
  cell.title = name;
  cell.append(textElement("code", middleCut(shortName(name), 60)));
  return cell;
}

function chartRows(view, names, { field, show, whole, k, tones }) {
  const sorted = [...view.rows].sort((a, b) => b[field] - a[field]);
  const rows = sorted
    .slice(0, k)
    .map((row) => [names[row[KERNEL.name]], row[field], tones[row[KERNEL.family]] ?? "s8"]);
  if (sorted.length > k)
    rows.push([`${showCount(sorted.length - k)} others`, whole - rows.reduce((sum, row) => sum + row[1], 0), "s8"]);
  const most = Math.max(...rows.map((row) => row[1]), 1);
  return rows.map(([name, value, tone]) => {
    const row = document.createElement("tr");
    row.append(
      kernelNameCell(name),
      barCell(value / most, tone),
      tableCell("td", show(value), "number"),
      tableCell("td", showShare(value / (whole || 1)), "number"),
    );
    return row;
  });
}

function startKernels(root, { kernels: views, names, tones }) {
  const [k, rows, search] = ["#kn-k", "#kn-rows", "#kn-search"].map((each) => root.querySelector(each));
  const chooser = root.querySelector("#kn-view");
  const body = root.querySelector("#kn-table tbody");
  const head = root.querySelector("#kn-table thead tr");
  const said = root.querySelector("#kn-said");
  let sort = { column: 3, down: true };
  const view = () => views[chooser ? Number(chooser.value) : 0];

  function charts() {
    const shown = { k: numberIn(k), tones };
    const time = { field: KERNEL.total, show: showNs, whole: view().total, ...shown };
    const count = { field: KERNEL.count, show: showCount, whole: view().runs, ...shown };
    root.querySelector("#kn-time tbody").replaceChildren(...chartRows(view(), names, time));
    root.querySelector("#kn-count tbody").replaceChildren(...chartRows(view(), names, count));
  }

  function found() {
    const columns = kernelColumns(names, view());
    const wanted = search.value.trim().toLowerCase();
    const value = columns[sort.column].value;
    const kept = view().rows.filter((row) => names[row[KERNEL.name]].toLowerCase().includes(wanted));
    const order = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
    return { columns, kept: kept.sort(sort.down ? (a, b) => order(b, a) : order) };
  }

  function table() {
    const { columns, kept } = found();
    const shown = kept.slice(0, numberIn(rows));
    said.textContent = `${showCount(shown.length)} of ${showCount(kept.length)} ${kept.length === 1 ? "kernel" : "kernels"}`;
    [...head.children].forEach((cell, i) => {
      if (i === sort.column) cell.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    body.replaceChildren(
      ...shown.map((row) => {
        const line = document.createElement("tr");
        line.append(
          ...columns.map((column, i) =>
            i ? tableCell("td", column.text(row), column.number ? "number" : "text") : kernelNameCell(column.text(row)),
          ),
        );
        return line;
      }),
    );
  }

  kernelColumns(names, view()).forEach(({ title, number }, column) => {
    const cell = tableCell("th", "", number ? "number" : "");
    const button = textElement("button", title);
    cell.scope = "col";
    button.type = "button";
    button.addEventListener("click", () => {
      sort = { column, down: sort.column === column ? !sort.down : Boolean(number) };
      table();
    });
    cell.append(button);
    head.append(cell);
  });
  k.addEventListener("input", charts);
  [rows, search].forEach((input) => input.addEventListener("input", table));
  chooser?.addEventListener("change", () => {
    charts();
    table();
  });
  root.querySelector("#kn-csv").addEventListener("click", () => {
    const { kept } = found();
    const titles = [
      "kernel",
      "runs",
      "total_ns",
      "min_ns",
      "max_ns",
      "p99_ns",
      "precision",
      "tensor_core",
      "operator",
      "launch_calls",
      "std_ns",
      "short_count",
      "occupancy",
      "blocks_per_sm",
      "family",
    ];
    const lines = kept.map((row) => [
      names[row[0]],
      ...row.slice(1, 7),
      row[KERNEL.flags] & TENSOR ? "yes" : "no",
      names[row[KERNEL.operator]] ?? "",
      ...row.slice(KERNEL.calls).map((value) => value ?? ""),
    ]);
    saveFile("kernels.csv", "text/csv", csvOf([titles, ...lines]));
  });
  root.querySelectorAll("[hidden]").forEach((each) => {
    each.hidden = false;
  });
  charts();
  table();
}
