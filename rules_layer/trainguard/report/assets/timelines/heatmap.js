// Utilization of every GPU over time as colours, a row a GPU: what it shows, and what it says under the pointer.

function sayCell(row, bucket, { axis, data }) {
  const value = row.values[bucket];
  const at = axis.start + bucket * axis.bucket_s;
  const inside = ({ start, end }) => start < at + axis.bucket_s && end >= at;
  const episodes = data.episodes.filter((each) => inside(each) && isOfEpisode(row, each));
  const what = value === MISSING ? "no data" : showPercent(value / 2);
  const rules = episodes.length ? ` · ${[...new Set(episodes.map((each) => each.rule))].join(", ")}` : "";
  return `${row.title} · ${showClock(at)} (${showElapsed(at - data.origin, false)}) · ${what}${rules}`;
}

function placeTip(tip, holder, x, y, area) {
  tip.classList.add("tl-on");
  const left = Math.min(x + GUTTER + 14, holder.clientWidth - tip.offsetWidth - 4);
  const top = y + HEAT_TOP + (y > area.height / 2 ? -tip.offsetHeight - 10 : 16);
  tip.style.transform = `translate(${Math.max(left, 0)}px, ${top}px)`;
}

function heatParts(holder) {
  const parts = {
    canvas: makeElement("canvas", "tl-heat-canvas"),
    over: makeElement("div", "tl-heat-over"),
    cursor: makeElement("i", "tl-heat-cursor"),
    select: makeElement("i", "tl-heat-select"),
    tip: makeElement("div", "tl-tip"),
  };
  parts.over.append(parts.cursor, parts.select);
  holder.append(parts.canvas, parts.over, parts.tip);
  return parts;
}

function makeHeatmap(figure, world) {
  const { view } = world;
  const holder = figure.querySelector(".tl-heat");
  const readout = figure.querySelector(".tl-readout");
  const { canvas, over, cursor, select, tip } = heatParts(holder);
  let here = levelOf(world, "heat");
  let rows = [];
  let area = heatArea(0, 0);
  let row = null;
  let lowest = false;
  let printed = null;

  function paint() {
    const size = [printed ?? holder.clientWidth, holder.clientHeight];
    const ratio = printed === null ? devicePixelRatio : Math.max(2, devicePixelRatio);
    area = paintHeat(canvas, rows, { ...here, theme: world.theme }, size, ratio);
    over.style.width = `${area.width}px`;
  }

  const span = () => view.range()[1] - view.range()[0];
  const timeAt = (x) => view.range()[0] + (x / area.width) * span();
  const rowAt = (y) => Math.min(Math.max(Math.floor((y / area.height) * rows.length), 0), rows.length - 1);

  function say(at) {
    const bucket = at === null ? null : bucketAt(here.axis, at);
    return row === null || bucket === null ? "\u00a0" : sayCell(rows[row], bucket, here);
  }

  const chart = {
    draw: () => {
      here = levelOf(world, "heat");
      rows = heatRows(here.data, view.node(), lowest);
      row = row !== null && row < rows.length ? row : null;
      paint();
    },
    range: paint,
    repaint: paint,
    resize: (width) => {
      printed = width ?? null;
      paint();
    },
    cursor: (at) => {
      const x = at === null ? -1 : ((at - view.range()[0]) / span()) * area.width;
      cursor.classList.toggle("tl-on", x >= 0 && x <= area.width);
      cursor.style.transform = `translateX(${x}px)`;
      readout.textContent = say(at);
    },
    point: (x, y) => {
      row = rowAt(y);
      view.setCursor(timeAt(x));
      tip.textContent = say(view.cursor());
      placeTip(tip, holder, x, y, area);
    },
    leave: () => {
      row = null;
      tip.classList.remove("tl-on");
      view.setCursor(null);
    },
    moveRow: (by) => {
      row = Math.min(Math.max((row ?? -1) + by, 0), rows.length - 1);
      if (view.cursor() === null) view.moveCursor(0);
      else chart.cursor(view.cursor());
    },
    showLowest: (on) => {
      lowest = on;
      chart.draw();
    },
  };
  over.addEventListener("pointermove", (event) => chart.point(event.offsetX, event.offsetY));
  over.addEventListener("pointerleave", chart.leave);
  over.addEventListener("dblclick", view.reset);
  dragToZoom(over, select, (from, to) => view.setRange(timeAt(from), timeAt(to)));
  return chart;
}

function dragToZoom(over, select, zoom) {
  let from = null;
  over.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = event.offsetX;
    over.setPointerCapture(event.pointerId);
  });
  over.addEventListener("pointermove", (event) => {
    if (from === null) return;
    select.classList.add("tl-on");
    select.style.left = `${Math.min(from, event.offsetX)}px`;
    select.style.width = `${Math.abs(event.offsetX - from)}px`;
  });
  over.addEventListener("pointerup", (event) => {
    select.classList.remove("tl-on");
    const [low, high] = [Math.min(from, event.offsetX), Math.max(from, event.offsetX)];
    if (from !== null && high - low >= 3) zoom(low, high);
    from = null;
  });
}
