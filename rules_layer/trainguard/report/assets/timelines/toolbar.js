// The buttons over the charts, the node selector, and the words for what is shown.

const PAN = 0.25;
const ZOOM = 0.5;

function actionsOf(view) {
  return {
    left: () => view.pan(-PAN),
    right: () => view.pan(PAN),
    in: () => view.zoom(ZOOM),
    out: () => view.zoom(1 / ZOOM),
    reset: () => view.reset(),
  };
}

function makeToolbar(root, world, heatmap) {
  const { view } = world;
  const actions = actionsOf(view);
  const buttons = [...root.querySelectorAll("[data-tl]")];
  const range = root.querySelector("#tl-range");
  const cursor = root.querySelector("#tl-cursor");
  const node = root.querySelector("#tl-node");
  const lowest = root.querySelector("#tl-lowest");

  // What is under the cursor, and without one how long a bucket is.
  function showCursor(at) {
    const each = `a value each ${showSpan(world.level.axis.bucket_s)}`;
    cursor.textContent = at === null ? each : `at ${showClock(at)} (${showElapsed(at - view.origin, false)})`;
  }

  function showRangeShown([low, high]) {
    range.textContent = showRange(low, high);
    showCursor(view.cursor());
    for (const button of buttons) {
      button.setAttribute("aria-disabled", String(!view.zoomed() && button.dataset.tl !== "in"));
    }
  }

  buttons.forEach((button) => button.addEventListener("click", actions[button.dataset.tl]));
  view.on("range", showRangeShown);
  view.on("cursor", showCursor);
  node?.addEventListener("change", () => view.setNode(node.value === "" ? null : Number(node.value)));
  if (lowest && heatmap && manyGpus(world.levels.whole.data)) {
    lowest.hidden = false;
    lowest.addEventListener("click", () => {
      const on = lowest.getAttribute("aria-pressed") !== "true";
      lowest.setAttribute("aria-pressed", String(on));
      heatmap.showLowest(on);
    });
  }
  zone.onChange(() => showRangeShown(view.range()));
  showRangeShown(view.range());
}
