// Starts the section: each chart is drawn when it comes near the window, and follows the range, the cursor, the node,
// the theme and the width from then on.

const NEAR = "300px";

function makeCharts(root, world) {
  const charts = new Map();
  for (const figure of root.querySelectorAll("[data-tl-chart]")) {
    const kind = figure.dataset.tlChart;
    const special = { strip: makeStrip, heat: makeHeatmap }[kind];
    charts.set(figure, special ? special(figure, world) : makeLineChart(figure, kind, world));
  }
  return charts;
}

function start(root) {
  const data = readIsland("timelines-data");
  const levels = makeLevels(data);
  const view = makeView(levels);
  const world = { levels, level: levels.whole, view, theme: readTheme(root) };
  const charts = makeCharts(root, world);
  const drawn = new Set();

  function draw(figure) {
    if (drawn.has(figure)) return;
    charts.get(figure).draw();
    drawn.add(figure);
    figure.dataset.tlDrawn = "";
    if (drawn.size === 1) performance.mark("timelines-drawn");
  }
  const each = (act) => drawn.forEach((figure) => act(charts.get(figure)));
  const resizeAll = (width) => each((chart) => chart.resize(width));
  const repaintAll = () => {
    world.theme = readTheme(root);
    each((chart) => chart.repaint());
  };

  view.on("range", (range) => {
    const before = world.level;
    world.level = levels.of(range);
    each((chart) => (world.level === before ? chart.range(range) : chart.draw()));
  });
  view.on("cursor", (at, source) => {
    each((chart) => chart.cursor(at, source));
    if (source !== moment) moment.show("time lines", at);
  });
  moment.on("time lines", (at) => view.setCursor(at, moment));
  view.on("node", () => each((chart) => chart.draw()));
  zone.onChange(() => each((chart) => chart.draw()));
  listenToLinks(data, view);
  watchNearness(charts, draw);
  watchWidth(root, resizeAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaintAll);
  listenToPrint(root, world, () => [...charts.keys()].forEach(draw), resizeAll);
  const heat = [...charts].find(([figure]) => figure.dataset.tlChart === "heat")?.[1];
  makeToolbar(root, world, heat);
  const actions = keyActions(view);
  root.querySelectorAll(".tl-plot").forEach((element) => listenToKeys(element, actions));
  if (heat) listenToRows(root.querySelector(".tl-heat"), heat, actions);
  drawRamps(root);
}

function drawRamps(root) {
  root.querySelectorAll(".tl-ramp").forEach(drawRamp);
}

function watchNearness(charts, draw) {
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        observer.unobserve(entry.target);
        draw(entry.target);
      }
    },
    { rootMargin: NEAR },
  );
  for (const figure of charts.keys()) observer.observe(figure);
}

function watchWidth(root, resizeAll) {
  let width = root.clientWidth;
  let ratio = devicePixelRatio;
  let asked = 0;
  const check = () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(() => {
      if (root.classList.contains("tl-printing") || (root.clientWidth === width && devicePixelRatio === ratio)) return;
      [width, ratio] = [root.clientWidth, devicePixelRatio];
      resizeAll();
    });
  };
  new ResizeObserver(check).observe(root);
  addEventListener("resize", check);
}

const section = document.getElementById("tl");
if (section) start(section);
