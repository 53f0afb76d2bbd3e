// A line chart on uPlot: the lines of a node or of the job, their shade, episodes, thresholds, and the slowest steps as
// points.

const PLOT_HEIGHT = 176;
const LEAST_WIDTH = 200;
const GUTTER = 76;
const RIGHT = 26;
const POINT_RADIUS = 3.5;
const POINT_REACH = 8;
const POINT_SPACE = 14;

function drawPoints(plot, lines, theme) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  lines.forEach((line, i) => {
    if (line.hidden) return;
    for (const [at, , seconds] of line.slowest ?? []) {
      ctx.beginPath();
      const [x, y] = [plot.valToPos(at, "x", true), plot.valToPos(seconds, "y", true)];
      const radius = POINT_RADIUS * devicePixelRatio;
      if (y >= bbox.top) ctx.arc(x, y, radius, 0, 2 * Math.PI);
      else tracePointer(ctx, x, bbox.top, radius);
      ctx.fillStyle = theme.series[i % SERIES_COLOURS];
      ctx.strokeStyle = theme.surface;
      ctx.fill();
      ctx.stroke();
    }
  });
  ctx.restore();
}

// What is above the axis is a triangle at its end.
function tracePointer(ctx, x, top, radius) {
  ctx.moveTo(x, top);
  ctx.lineTo(x - 1.2 * radius, top + 2 * radius);
  ctx.lineTo(x + 1.2 * radius, top + 2 * radius);
  ctx.closePath();
}

// The slowest step next to the cursor, or null.
function stepAt(plot, lines, at) {
  let nearest = null;
  let reach = POINT_REACH;
  for (const line of lines) {
    for (const step of (line.hidden ? [] : line.slowest) ?? []) {
      const distance = Math.abs(plot.valToPos(step[0], "x") - plot.valToPos(at, "x"));
      if (distance < reach) [nearest, reach] = [step, distance];
    }
  }
  return nearest;
}

// The highest value on the y axis: of lines, shade and points, but no more than the chart's bound.
function topOf(spec, lines, world, highest) {
  const [low, high] = world.view.range();
  const shown = lines.filter((line) => !line.hidden);
  const points = shown.flatMap((line) => line.slowest ?? []).filter(([at]) => at >= low && at <= high);
  const top = points.reduce((most, [, , seconds]) => Math.max(most, seconds), highest ?? 0);
  if (!spec.most) return top;
  const mean = highestMean(shown, world);
  return mean > 0 ? Math.min(top, spec.most * mean) : top;
}

function highestMean(lines, world) {
  const [from, to] = bucketsShown(world);
  let highest = 0;
  for (const { mean } of lines) {
    for (let i = from; i < to; i += 1) if (mean[i] > highest) highest = mean[i];
  }
  return highest;
}

function axesOf(spec, theme, origin) {
  const stroke = () => theme().muted;
  const rule = { stroke: () => theme().grid, width: 1 };
  return [
    {
      stroke,
      font: FONT,
      size: 36,
      gap: 4,
      grid: rule,
      ticks: { ...rule, size: 4 },
      splits: (plot, _, low, high) => timeTicks(low, high, plot.bbox.width / devicePixelRatio, TICK_GAP),
      values: (_, splits) => tickLabels(splits, origin),
    },
    {
      stroke,
      font: FONT,
      size: GUTTER,
      gap: 6,
      grid: rule,
      ticks: { ...rule, size: 4 },
      space: 34,
      values: (_, splits) => splits.map(spec.tick),
    },
  ];
}

function seriesOf(spec, lines, theme) {
  const drawn = lines.map((line, i) => ({
    label: line.label,
    stroke: () => theme().series[i % SERIES_COLOURS],
    width: 1.5,
    spanGaps: spec.spans === true,
    dash: i < SERIES_COLOURS ? undefined : [5, 3],
    show: !line.hidden,
    points: { show: (plot) => isolated(plot, i + 1) },
  }));
  const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: spec.spans === true };
  return [{}, ...drawn, { ...edge, label: "lowest" }, { ...edge, label: "highest" }];
}

// Points are drawn only where a few buckets fill the whole width.
function isolated(plot, index) {
  const [first, last] = plot.series[0].idxs;
  return (last - first) * POINT_SPACE * devicePixelRatio < plot.bbox.width && plot.data[index].length > 0;
}

function widthOf(holder) {
  return Math.max(holder.clientWidth, LEAST_WIDTH);
}

function makePlot(holder, spec, lines, world, here, drawn) {
  const { view } = world;
  const theme = () => world.theme;
  const yRange = (_, low, high) => [0, spec.top(topOf(spec, lines, here, high))];
  const options = {
    width: widthOf(holder),
    height: PLOT_HEIGHT,
    padding: [8, RIGHT, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: { dblclick: () => null },
    },
    focus: { alpha: 0.25 },
    scales: { x: { time: false, range: () => view.range() }, y: { range: yRange } },
    axes: axesOf(spec, theme, view.origin),
    series: seriesOf(spec, lines, theme),
    bands: [{ series: [lines.length + 2, lines.length + 1], fill: () => theme().shade }],
    hooks: {
      setSelect: [(plot) => selected(plot, view)],
      drawClear: [(plot) => drawEpisodes(plot, drawn.episodes, theme())],
      draw: [
        (plot) => drawThresholds(plot, drawn.thresholds, theme()),
        (plot) => drawPoints(plot, lines, theme()),
        (plot) => drawOnsets(plot, drawn.episodes, theme()),
      ],
    },
  };
  return new uPlot(options, drawn.data, holder);
}

function selected(plot, view) {
  const { left, width } = plot.select;
  if (width < 3) return;
  const [low, high] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  view.setRange(low, high);
}

function followPointer(plot, chart, view) {
  plot.over.addEventListener("mousemove", (event) => view.setCursor(plot.posToVal(event.offsetX, "x"), chart));
  plot.over.addEventListener("mouseleave", () => view.setCursor(null, chart));
  plot.over.addEventListener("dblclick", () => view.reset());
}

// Mean of each line over the buckets that are shown.
function rangeMeans(lines, world) {
  return lines.map((line) => average(line.mean.slice(...bucketsShown(world))));
}

function makeLineChart(figure, kind, world) {
  const spec = CHARTS[kind];
  const holder = figure.querySelector(".tl-plot");
  const note = figure.querySelector(".tl-note");
  const chart = {};
  let said = "";
  let plot = null;
  let lines = [];
  let detail = null;
  let legend = null;
  let here = null;
  const hidden = new Set();

  function showValues(at) {
    const bucket = at === null ? null : bucketAt(here.axis, at);
    note.textContent = said;
    if (bucket === null) return legend.show("mean", rangeMeans(lines, here), spec.show);
    const slow = stepAt(plot, lines, at);
    note.textContent = slow ? `step ${slow[1]} took ${spec.show(slow[2])}` : said;
    return legend.show(detail.heading(), detail.valuesAt(bucket), spec.show);
  }

  function fit() {
    if (detail.adapt(plot.width - GUTTER - RIGHT)) plot.setData(detail.data(), false);
    const [min, max] = world.view.range();
    plot.setScale("x", { min, max });
  }

  function toggle(index, shown) {
    lines[index].hidden = !shown;
    if (shown) hidden.delete(lines[index].label);
    else hidden.add(lines[index].label);
    plot.setSeries(index + 1, { show: shown }, false);
    plot.setData(detail.data(), false);
    plot.redraw(true);
  }

  chart.draw = () => {
    plot?.destroy();
    here = levelOf(world, kind);
    const node = world.view.node();
    const chosen = chartLines(here.data, kind, node);
    lines = chosen.lines.map((line) => ({ ...line, hidden: hidden.has(line.label) }));
    said = lines.length ? chosen.note : "nothing was collected here";
    detail = makeDetail(here, lines, widthOf(holder) - GUTTER - RIGHT);
    plot = makePlot(holder, spec, lines, world, here, {
      data: detail.data(),
      episodes: episodesShown(here.data, node),
      thresholds: here.data.thresholds.filter((each) => each.chart === kind),
    });
    followPointer(plot, chart, world.view);
    legend = makeLegend(figure.querySelector(".tl-legend"), lines, {
      toggle,
      focus: (index, on) => plot.setSeries(on ? index + 1 : null, { focus: true }, false),
    });
    showValues(world.view.cursor());
  };
  chart.range = () => {
    fit();
    showValues(world.view.cursor());
  };
  chart.cursor = (at, source) => {
    if (source !== chart) plot.setCursor({ left: at === null ? -10 : plot.valToPos(at, "x"), top: 0 }, false);
    showValues(at);
  };
  chart.resize = (width) => {
    plot.setSize({ width: Math.max(width ?? holder.clientWidth, LEAST_WIDTH), height: PLOT_HEIGHT });
    fit();
    showValues(world.view.cursor());
  };
  chart.repaint = () => plot.redraw(false, true);
  return chart;
}
