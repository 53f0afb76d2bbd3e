// The pane beside the timeline: what is selected, and what it is connected with.

function makeDetails(element, model, go) {
  const { table } = model;

  function facts(row) {
    const lane = model.lanes[table.lane[row]];
    const { offset, steps } = lane.process;
    const start = table.start[row] - offset;
    const step = steps.find(([, from, lasts]) => start >= from && start < from + lasts);
    const found = [
      ["what", SORTS[table.sort[row]]],
      ["start", showMoment(start, 6)],
      ["duration", showNs(table.end[row] - table.start[row])],
      [
        "where",
        `${lane.process.title}, ${lane.side === "gpu" && lane.device >= 0 ? `GPU ${lane.device}, ` : ""}${laneTitle(lane)}`,
      ],
    ];
    if (step) found.push(["step", String(step[0])]);
    const parent = parentOf(row);
    if (parent >= 0) found.push(["inside", nameOf(model, parent)]);
    const size = table.size.get(row);
    if (size >= 0)
      found.push([
        "bytes",
        `${showBytes(size)}, ${showBytes((size * 1e9) / Math.max(table.end[row] - table.start[row], 1))}/s`,
      ]);
    return found;
  }

  // The row of the level above that a row lies in.
  function parentOf(row) {
    const lane = model.lanes[table.lane[row]];
    if (table.level[row] === 0 || lane.side === "gpu") return -1;
    const above = rowAt(lane.tracks[table.level[row] - 1], table.start[row], 0);
    return above >= 0 && table.end[above] >= table.end[row] ? above : -1;
  }

  function connections(row) {
    const launch = table.launch[row];
    if (launch >= 0) {
      const [begin, end] = [table.start, table.end].map((times) => table.start[row] - times[launch]);
      const text = `Launched by ${nameOf(model, launch)}: it starts ${showNs(begin)} after the call begins, ${showNs(Math.max(end, 0))} after it ends`;
      return [[text, "Go to the launch", launch]];
    }
    const started = table.kernels.get(row) ?? [];
    if (!started.length) return [];
    const [first] = started;
    const others = started.length > 1 ? ` and ${showCount(started.length - 1)} more` : "";
    return [
      [
        `Starts ${nameOf(model, first)}${others}, ${showNs(table.start[first] - table.start[row])} later`,
        "Go to what it starts",
        first,
      ],
    ];
  }

  function show(row) {
    if (row < 0) {
      element.replaceChildren(paragraph("kt-nothing", "Nothing is selected. Click an event, or search for one."));
      return;
    }
    const list = document.createElement("dl");
    for (const [name, value] of facts(row)) {
      const pair = document.createElement("div");
      pair.append(textElement("dt", name), textElement("dd", value));
      list.append(pair);
    }
    const parts = [paragraph("kt-name", nameOf(model, row)), list];
    for (const [text, label, other] of connections(row)) {
      const button = textElement("button", label);
      button.type = "button";
      button.addEventListener("click", () => go(other));
      parts.push(paragraph("kt-link", text), button);
    }
    if (table.joins.has(row))
      parts.push(paragraph("kt-nothing", "This page holds these events together; the trace has each of them."));
    element.replaceChildren(...parts);
  }

  return { show };
}

function textElement(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

function paragraph(kind, text) {
  const element = textElement("p", text);
  element.className = kind;
  return element;
}
