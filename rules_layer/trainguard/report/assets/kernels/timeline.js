// Puts the timeline together, and draws it anew when something changes.

const AROUND = 0.35;

function startTimeline(root, island) {
  const model = makeModel(island);
  const canvas = root.querySelector("canvas");
  const tree = makeTree(model);
  const range = makeRange(model.length);
  const drawing = makeDrawing(canvas, model, tree, range);
  const said = root.querySelector("#kt-range");
  let paint = makePaint(root);
  let marked = null;
  let asked = 0;

  const redraw = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      drawing.draw(paint, finder.names());
      drawMarks(drawing, model, range, paint, marked);
      buttons.scrollTo(range.scroll());
      said.textContent = `${showMoment(range.from() - model.zero)} – ${showMoment(range.to() - model.zero)} (${showNs(range.span())})`;
      root.dataset.ktDrawn = String(Number(root.dataset.ktDrawn ?? 0) + 1);
    });
  };

  function inSight(row) {
    const entry = tree.reveal(model.lanes[model.table.lane[row]]);
    buttons.rebuild();
    const top = entry.top + model.table.level[row] * LEVEL;
    drawing.resize();
    if (top < range.scroll() || top + LEVEL > range.scroll() + drawing.room()) range.scrollTo(top - drawing.room() / 3);
    const [start, end] = [model.table.start[row], model.table.end[row]];
    if (end < range.from() || start > range.to()) {
      const span = Math.max(range.span(), end - start);
      range.show((start + end - span) / 2, (start + end + span) / 2);
    }
  }

  function select(row) {
    range.select(row);
    details.show(row);
  }

  function go(row) {
    inSight(row);
    select(row);
  }

  // The selected row, with what starts it or what it starts, and room around.
  function focus() {
    const row = range.selected();
    if (row < 0) return;
    const [start, end] = [model.table.start[row], model.table.end[row]];
    const around = Math.max((end - start) * AROUND, LEAST_SPAN);
    range.show(start - around, end + around);
  }

  function showStretch(process, from, to) {
    const { offset } = model.processes[process] ?? model.processes[0];
    marked = [offset + from, offset + to];
    const around = Math.max((to - from) * AROUND, LEAST_SPAN);
    range.show(marked[0] - around, marked[1] + around);
  }

  const details = makeDetails(root.querySelector("#kt-details"), model, go);
  const finder = makeFinder(root, model, { onFound: redraw, go });
  const buttons = makeTreeButtons(root.querySelector(".kt-tree"), tree, {
    onFold: (key) => {
      tree.fold(key);
      drawing.resize();
      buttons.rebuild();
      redraw();
    },
    onFocus: (entry) => {
      if (entry.top < range.scroll() || entry.top + HEAD > range.scroll() + drawing.room())
        range.scrollTo(entry.top - HEAD);
      buttons.scrollTo(range.scroll());
    },
  });
  const actions = {
    focus,
    clear: () => {
      marked = null;
      select(-1);
    },
    next: finder.next,
    previous: finder.previous,
    search: () => root.querySelector("#kt-search").focus(),
    link: () => {
      const [link] = range.selected() < 0 ? [] : linksOf(model, range.selected());
      if (link) go(link.find((row) => row !== range.selected()));
    },
    beside: (by) => {
      const row = range.selected();
      const track = row < 0 ? null : model.lanes[model.table.lane[row]].tracks[model.table.level[row]];
      const next = track ? track.rows[track.rows.indexOf(row) + by] : undefined;
      if (next !== undefined) go(next);
    },
  };
  const pick = (x, y) => {
    if (y < AXIS) return -1;
    const at = y - AXIS + range.scroll();
    const entry = tree.entries().find((each) => at >= each.top && at < each.top + each.height);
    const track = entry?.tracks?.[Math.floor((at - entry.top) / LEVEL)];
    return track ? rowAt(track, drawing.timeAt(x), (3 * range.span()) / drawing.width()) : -1;
  };
  listenToMouse(canvas, range, { pick, onSelect: select, onFocus: focus });
  const keys = timelineKeys(range, actions);
  listenToTimelineKeys(canvas, keys);
  root
    .querySelectorAll("[data-kt]")
    .forEach((button) => button.addEventListener("click", () => keys[button.dataset.kt]()));
  root.querySelector(".kt-tree").addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      range.scrollTo(range.scroll() + event.deltaY);
    },
    { passive: false },
  );
  root.querySelector("#kt-save").addEventListener("click", () => {
    saveFile(
      "trimmed.pt.trace.json",
      "application/json",
      JSON.stringify(trimmedTrace(model, range.from(), range.to())),
    );
  });
  range.onChange(redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    paint = makePaint(root);
    redraw();
  });
  new ResizeObserver(() => {
    drawing.resize();
    redraw();
  }).observe(canvas);
  details.show(-1);
  return { showStretch };
}
