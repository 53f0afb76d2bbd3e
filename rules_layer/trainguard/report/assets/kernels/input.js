// Mouse and keyboard on the canvas. The wheel zooms while the timeline has the focus, so that it does not catch a
// reader who scrolls through the page.

const WHEEL = 0.0015;
const STEP = 0.1;
const ZOOM_IN = 0.8;
const CLICK = 4;

function listenToMouse(canvas, range, { pick, onSelect, onFocus }) {
  let held = null;
  const local = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top, box.width];
  };

  canvas.addEventListener(
    "wheel",
    (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return;
      event.preventDefault();
      const [x, , width] = local(event);
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        range.pan(((event.deltaX || event.deltaY) / width) * range.span());
      } else range.zoom(Math.exp(event.deltaY * WHEEL), range.from() + (x / width) * range.span());
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [x, y] = local(event);
    held = { x, y, from: range.from(), to: range.to(), scroll: range.scroll(), moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [x, y, width] = local(event);
    if (!held.moved && Math.hypot(x - held.x, y - held.y) < CLICK) return;
    held.moved = true;
    range.pan(held.from - ((x - held.x) / width) * range.span() - range.from());
    range.scrollTo(held.scroll - (y - held.y));
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = local(event);
    if (held && !held.moved) onSelect(pick(x, y));
    held = null;
  });
  canvas.addEventListener("pointercancel", () => {
    held = null;
  });
  canvas.addEventListener("dblclick", () => onFocus());
}

function timelineKeys(range, actions) {
  const left = () => range.pan(-STEP * range.span());
  const right = () => range.pan(STEP * range.span());
  const nearer = () => range.zoom(ZOOM_IN);
  const farther = () => range.zoom(1 / ZOOM_IN);
  return {
    w: nearer,
    "+": nearer,
    "=": nearer,
    s: farther,
    "-": farther,
    a: left,
    ArrowLeft: left,
    d: right,
    ArrowRight: right,
    ArrowUp: () => range.scrollTo(range.scroll() - 3 * LEVEL),
    ArrowDown: () => range.scrollTo(range.scroll() + 3 * LEVEL),
    f: actions.focus,
    0: () => range.all(),
    Escape: actions.clear,
    ",": () => actions.beside(-1),
    ".": () => actions.beside(1),
    l: actions.link,
    n: actions.next,
    p: actions.previous,
    "/": actions.search,
  };
}

function listenToTimelineKeys(canvas, keys) {
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
