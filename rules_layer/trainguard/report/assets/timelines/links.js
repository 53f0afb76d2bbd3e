// Links of the page to an episode, or to a stretch of time: they lead to the time lines, zoomed to it.

const AROUND = 0.2;
const LEAST_AROUND_S = 30;

function zoomTo(view, { start, end }) {
  const room = Math.max(AROUND * (end - start), LEAST_AROUND_S);
  view.setRange(start - room, end + room);
}

function listenToLinks(data, view) {
  for (const link of document.querySelectorAll("[data-from]")) {
    const span = { start: Number(link.dataset.from), end: Number(link.dataset.to) };
    link.addEventListener("click", () => zoomTo(view, span));
  }
  const byAnchor = new Map(data.episodes.map((each) => [each.anchor, each]));
  for (const link of document.querySelectorAll("[data-episode]")) {
    const episode = byAnchor.get(link.dataset.episode);
    if (episode) link.addEventListener("click", () => zoomTo(view, episode));
  }
}
