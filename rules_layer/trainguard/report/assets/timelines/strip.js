// The lanes over the charts: each rule's episodes as bars that lead to what the page says of them, and the phases.

const EPISODE_ROOM = 24;

function barAcross(element, [from, to], range) {
  const low = Math.max(from, range[0]);
  const high = Math.min(to, range[1]);
  if (high < low) return null;
  const span = range[1] - range[0];
  element.style.left = `${(100 * (low - range[0])) / span}%`;
  element.style.width = `${(100 * (high - low)) / span}%`;
  return element;
}

function makeEpisode(episode, range) {
  const shown = `${episode.where}, ${episode.lasted}`;
  const bar = makeElement("a", "tl-episode", shown);
  if (SEVERITIES.includes(episode.severity)) bar.classList.add(`tl-severity-${episode.severity}`);
  bar.href = `#${episode.anchor}`;
  const began = `${showDate(episode.start)} ${showClock(episode.start)} ${zoneName(episode.start)}`;
  const said = `${shown}: ${episode.rule}, ${episode.severity}, from ${began}`;
  bar.title = said;
  bar.setAttribute("aria-label", said);
  return barAcross(bar, [episode.start, episode.end], range);
}

function makePhase(phase, range) {
  const block = makeElement("span", `tl-phase tl-phase-${phase.kind}`, phase.label);
  block.title = `${phase.label}: ${showRange(phase.start, phase.end)}`;
  return phase.end > range[0] && phase.start < range[1] ? barAcross(block, [phase.start, phase.end], range) : null;
}

// What is said in a bar is said where it fits; its name has it anyway.
function hideWhatDoesNotFit(bars) {
  for (const bar of bars) bar.classList.toggle("tl-narrow", bar.clientWidth < 2 * EPISODE_ROOM);
}

function makeStrip(figure, world) {
  const { data } = world.levels.whole;
  const { view } = world;
  const tracks = [...figure.querySelectorAll(".tl-track[data-rule]")];
  const phases = figure.querySelector(".tl-phases");
  const cursors = [...figure.querySelectorAll(".tl-track")].map(() => makeElement("i", "tl-strip-cursor"));

  function fill(track, bars) {
    const cursor = cursors[[...figure.querySelectorAll(".tl-track")].indexOf(track)];
    track.replaceChildren(...bars.filter((bar) => bar !== null), cursor);
  }

  function paint() {
    const range = view.range();
    const episodes = episodesShown(data, view.node());
    const focused = document.activeElement?.getAttribute("href");
    for (const track of tracks) {
      const own = episodes.filter((each) => each.rule === track.dataset.rule);
      fill(track, own.map((each) => makeEpisode(each, range)));
      hideWhatDoesNotFit(track.querySelectorAll(".tl-episode"));
    }
    if (focused) figure.querySelector(`.tl-episode[href="${focused}"]`)?.focus();
    if (phases) fill(phases, data.phases.map((each) => makePhase(each, range)));
  }

  return {
    draw: paint,
    range: paint,
    resize: paint,
    repaint: paint,
    cursor: (at) => {
      const [low, high] = view.range();
      for (const cursor of cursors) {
        cursor.classList.toggle("tl-on", at !== null && at >= low && at <= high);
        if (at !== null) cursor.style.left = `${(100 * (at - low)) / (high - low)}%`;
      }
    },
  };
}
