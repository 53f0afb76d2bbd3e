// What all charts share: the range of time that is shown, the cursor, and the node that is looked at.

function makeView(levels) {
  const { axis, data } = levels.whole;
  const full = [axis.start, endOf(axis)];
  const listeners = { range: [], cursor: [], node: [] };
  let range = full;
  let cursor = null;
  let node = null;

  const tell = (what, ...values) => listeners[what].forEach((listener) => listener(...values));

  // Keeps the range inside the job's time, and no shorter than some buckets.
  function setRange(low, high) {
    const span = Math.min(Math.max(high - low, levels.least((low + high) / 2)), full[1] - full[0]);
    const start = Math.min(Math.max((low + high - span) / 2, full[0]), full[1] - span);
    if (start === range[0] && start + span === range[1]) return;
    range = [start, start + span];
    tell("range", range);
  }

  return {
    full,
    origin: data.origin,
    on: (what, listener) => listeners[what].push(listener),
    range: () => range,
    cursor: () => cursor,
    node: () => node,
    zoomed: () => range[1] - range[0] < full[1] - full[0],
    setRange,
    reset: () => setRange(...full),
    pan: (share) => {
      const by = share * (range[1] - range[0]);
      const kept = Math.min(Math.max(by, full[0] - range[0]), full[1] - range[1]);
      setRange(range[0] + kept, range[1] + kept);
    },
    zoom: (factor) => {
      const middle = cursor !== null && cursor > range[0] && cursor < range[1] ? cursor : (range[0] + range[1]) / 2;
      setRange(middle - (middle - range[0]) * factor, middle + (range[1] - middle) * factor);
    },
    setCursor: (at, source = null) => {
      cursor = at;
      tell("cursor", at, source);
    },
    moveCursor: (buckets) => {
      const { axis: shown } = levels.of(range);
      const from = cursor ?? (range[0] + range[1]) / 2;
      const index = Math.floor((from - shown.start) / shown.bucket_s) + buckets;
      const at = shown.start + (Math.min(Math.max(index, 0), shown.buckets - 1) + 0.5) * shown.bucket_s;
      if (at < range[0] || at > range[1]) setRange(at - (range[1] - range[0]) / 2, at + (range[1] - range[0]) / 2);
      cursor = at;
      tell("cursor", at, null);
    },
    setNode: (index) => {
      node = index;
      tell("node", index);
    },
  };
}
