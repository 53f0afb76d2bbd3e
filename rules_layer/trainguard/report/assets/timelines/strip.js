// The strip over the charts: phases as blocks, and fires as flags that lead to their rules.

const FLAG_ROOM = 22;

function flagTitle(marks) {
  const line = (mark) => `${showClock(mark.at)} ${mark.rule} (${mark.severity ?? "no severity"}), ${mark.where}`;
  return marks.map(line).join("\n");
}

function gravest(marks) {
  const rank = (mark) => SEVERITIES.indexOf(mark.severity);
  return marks.reduce((worst, mark) => (rank(mark) > rank(worst) ? mark : worst));
}

// Fires whose flags would lie on one another are one flag.
function clusters(marks, range, width) {
  const found = [];
  for (const mark of marks) {
    if (mark.at < range[0] || mark.at > range[1]) continue;
    const x = ((mark.at - range[0]) / (range[1] - range[0])) * width;
    const last = found.at(-1);
    if (last && x - last.x < FLAG_ROOM) last.marks.push(mark);
    else found.push({ x, marks: [mark] });
  }
  return found;
}

// One rule's flag is a link to its section; a flag of several is a button that zooms to them.
function makeFlag({ x, marks }, width, view) {
  const worst = gravest(marks);
  const one = worst.anchor !== null && marks.every((mark) => mark.rule === worst.rule);
  const flag = makeElement(one ? "a" : "button", "tl-flag", marks.length > 1 ? String(marks.length) : "!");
  if (SEVERITIES.includes(worst.severity)) flag.classList.add(`tl-severity-${worst.severity}`);
  if (one) flag.href = `#${worst.anchor}`;
  else {
    flag.type = "button";
    const [first, last] = [marks[0].at, marks.at(-1).at];
    const room = Math.max((last - first) * 0.25, 60);
    flag.addEventListener("click", () => {
      const holder = flag.parentElement;
      view.setRange(first - room, last + room);
      holder.querySelector(".tl-flag")?.focus();
    });
  }
  flag.title = flagTitle(marks);
  const label = one ? `${worst.rule} fired` : `${marks.length} fires, zoom to them`;
  flag.setAttribute("aria-label", `${label}: ${flag.title}`);
  flag.style.left = `${(100 * x) / width}%`;
  return flag;
}

function makePhase(phase, range) {
  const low = Math.max(phase.start, range[0]);
  const high = Math.min(phase.end, range[1]);
  if (high <= low) return null;
  const block = makeElement("span", `tl-phase tl-phase-${phase.kind}`, phase.label);
  const span = range[1] - range[0];
  block.style.left = `${(100 * (low - range[0])) / span}%`;
  block.style.width = `${(100 * (high - low)) / span}%`;
  block.title = `${phase.label}: ${showRange(phase.start, phase.end)}`;
  return block;
}

function makeStrip(figure, world) {
  const { data, view } = world;
  const holder = figure.querySelector(".tl-strip");
  const flags = makeElement("div", "tl-flags");
  const phases = makeElement("div", "tl-phases");
  const cursor = makeElement("i", "tl-strip-cursor");
  const track = makeElement("div", "tl-track");
  track.append(flags, phases, cursor);
  holder.append(track);

  function paint() {
    const range = view.range();
    const width = Math.max(track.clientWidth, 1);
    const marks = marksShown(data, view.node()).sort((a, b) => a.at - b.at);
    flags.replaceChildren(...clusters(marks, range, width).map((each) => makeFlag(each, width, view)));
    phases.replaceChildren(...data.phases.map((each) => makePhase(each, range)).filter((each) => each !== null));
  }

  return {
    draw: paint,
    range: paint,
    resize: paint,
    repaint: () => {},
    cursor: (at) => {
      const [low, high] = view.range();
      cursor.classList.toggle("tl-on", at !== null && at >= low && at <= high);
      if (at !== null) cursor.style.left = `${(100 * (at - low)) / (high - low)}%`;
    },
  };
}
