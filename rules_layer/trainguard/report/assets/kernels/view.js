// What is in sight: a stretch of time, how far the lanes are scrolled, and the row that is selected.

const LEAST_SPAN = 50;

function makeRange(length) {
  const listeners = [];
  let [from, to] = [0, length];
  let scroll = 0;
  let most = 0;
  let selected = -1;
  const changed = () => listeners.forEach((listener) => listener());

  function show(low, high) {
    const span = Math.min(Math.max(high - low, LEAST_SPAN), length);
    from = Math.min(Math.max((low + high - span) / 2, 0), length - span);
    to = from + span;
    changed();
  }

  return {
    length,
    onChange: (listener) => listeners.push(listener),
    from: () => from,
    to: () => to,
    span: () => to - from,
    scroll: () => scroll,
    selected: () => selected,
    show,
    all: () => show(0, length),
    // Times keep their places on the screen at `at`.
    zoom: (factor, at = (from + to) / 2) => {
      const span = Math.min(Math.max((to - from) * factor, LEAST_SPAN), length);
      const low = at - ((at - from) / (to - from)) * span;
      show(Math.min(Math.max(low, 0), length - span), Math.min(Math.max(low, 0), length - span) + span);
    },
    pan: (by) => {
      const kept = Math.min(Math.max(by, -from), length - to);
      show(from + kept, to + kept);
    },
    setMostScroll: (value) => {
      most = Math.max(value, 0);
      scroll = Math.min(scroll, most);
    },
    scrollTo: (value) => {
      scroll = Math.min(Math.max(value, 0), most);
      changed();
    },
    select: (row) => {
      selected = row;
      changed();
    },
  };
}
