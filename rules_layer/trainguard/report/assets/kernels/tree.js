// What is drawn below what: node > process > GPU > streams, threads. Every entry has a button that folds it.

const HEAD = 20;
const LEVEL = 15;
const GAP = 5;

function makeTree(model) {
  const folded = new Set();
  const nodes = Map.groupBy(model.processes, (process) => process.node ?? "node: not named");
  let entries = [];
  let height = 0;

  function add(entry) {
    entries.push({ ...entry, top: height, open: !folded.has(entry.key) });
    height += entry.height;
    return !folded.has(entry.key);
  }

  function addLanes(key, depth, lanes) {
    lanes.forEach((lane, i) => {
      const own = `${key}/${i}`;
      const tracks = folded.has(own) ? lane.tracks.slice(0, 1) : lane.tracks;
      add({ key: own, kind: "lane", title: laneTitle(lane), depth, lane, tracks, height: tracks.length * LEVEL + GAP });
    });
  }

  function layout() {
    entries = [];
    height = 0;
    [...nodes].forEach(([node, processes], n) => {
      if (!add({ key: `n${n}`, kind: "head", title: node, depth: 0, height: HEAD })) return;
      processes.forEach((process, p) => {
        const key = `n${n}p${p}`;
        if (!add({ key, kind: "head", title: process.title, depth: 1, height: HEAD })) return;
        if (process.steps.length)
          add({ key: `${key}s`, kind: "steps", title: "steps", depth: 2, process, height: HEAD });
        const gpus = Map.groupBy(
          process.lanes.filter((lane) => lane.side === "gpu"),
          (lane) => lane.device,
        );
        [...gpus]
          .sort((a, b) => a[0] - b[0])
          .forEach(([device, lanes]) => {
            const title = device < 0 ? "GPU" : `GPU ${device}`;
            const busy = process.busy[device] ?? (gpus.size === 1 ? process.busy[-1] : undefined);
            if (add({ key: `${key}g${device}`, kind: "gpu", title, depth: 2, process, busy, height: HEAD })) {
              addLanes(`${key}g${device}`, 3, lanes);
            }
          });
        const host = process.lanes.filter((lane) => lane.side === "host");
        if (host.length && add({ key: `${key}h`, kind: "head", title: "CPU", depth: 2, height: HEAD }))
          addLanes(`${key}h`, 3, host);
      });
    });
  }

  layout();
  return {
    entries: () => entries,
    height: () => height,
    fold: (key) => {
      if (!folded.delete(key)) folded.add(key);
      layout();
    },
    // Opens what hides a lane, and returns the lane's entry.
    reveal: (lane) => {
      const own = () => entries.find((entry) => entry.lane === lane);
      if (!own()) folded.clear();
      layout();
      if (!own().open) {
        folded.delete(own().key);
        layout();
      }
      return own();
    },
  };
}

// Threads by their order, as their numbers say nothing; the pointer shows the number.
function laneTitle(lane) {
  if (lane.side === "host") {
    const threads = lane.process.lanes.filter((each) => each.side === "host");
    return `thread ${threads.indexOf(lane) + 1}`;
  }
  if (lane.holds === "waits") return "waits";
  const stream = /^\d+$/.test(lane.name) ? `stream ${lane.name}` : lane.name || "stream not named";
  return lane.holds === "work" ? stream : `${stream}: annotations`;
}

// The buttons beside the canvas, one an entry; they move with what is scrolled.
function makeTreeButtons(element, tree, { onFold, onFocus }) {
  const list = document.createElement("div");
  element.append(list);

  function rebuild() {
    const focused = document.activeElement?.dataset.key;
    list.replaceChildren(...tree.entries().map((entry) => treeButton(entry, { onFold, onFocus })));
    if (focused) [...list.children].find((each) => each.dataset.key === focused)?.focus();
  }

  rebuild();
  return {
    rebuild,
    scrollTo: (scroll) => {
      element.scrollTop = 0;
      list.style.transform = `translateY(${-scroll}px)`;
    },
  };
}

function treeButton(entry, { onFold, onFocus }) {
  const folds = entry.kind !== "steps" && (entry.kind !== "lane" || entry.lane.tracks.length > 1);
  const button = document.createElement(folds ? "button" : "span");
  button.dataset.key = entry.key;
  button.className = `kt-entry kt-depth-${entry.depth} kt-${entry.kind}`;
  button.textContent = entry.title;
  button.title = entry.lane?.side === "host" ? `thread ${entry.lane.name}` : entry.title;
  button.style.top = `${entry.top}px`;
  button.style.height = `${entry.height}px`;
  if (!folds) return button;
  button.type = "button";
  button.setAttribute("aria-expanded", String(entry.open));
  button.addEventListener("click", () => onFold(entry.key));
  button.addEventListener("focus", () => onFocus(entry));
  return button;
}
