// Level of detail: where more buckets are shown than pixels can tell apart, some neighbours are drawn as one point.

const PIXELS_A_BUCKET = 2;
const PIXELS_A_POINT = 4;

// The buckets that are shown, from the first to behind the last.
function bucketsShown({ axis, view }) {
  const places = view.range().map((at) => Math.round((at - axis.start) / axis.bucket_s));
  const [from, to] = places.map((place) => Math.min(Math.max(place, 0), axis.buckets));
  return [Math.min(from, axis.buckets - 1), Math.max(to, from + 1)];
}

// How many buckets are one point on so many pixels.
function bucketsAPoint(world, pixels) {
  const [from, to] = bucketsShown(world);
  const count = to - from;
  return count * PIXELS_A_BUCKET <= pixels ? 1 : Math.ceil((count * PIXELS_A_POINT) / pixels);
}

// The middle of each point; the last one may be of fewer buckets.
function pointCentres(axis, together) {
  const points = Math.ceil(axis.buckets / together);
  return Array.from({ length: points }, (_, i) => {
    const ends = Math.min((i + 1) * together, axis.buckets);
    return axis.start + ((i * together + ends) / 2) * axis.bucket_s;
  });
}

// What `join` makes of the values of each point; null where none of its buckets has one.
function joined(values, together, join) {
  const points = new Array(Math.ceil(values.length / together)).fill(null);
  for (let i = 0; i < points.length; i += 1) {
    const kept = values.slice(i * together, (i + 1) * together).filter((value) => value !== null);
    if (kept.length) points[i] = join(kept);
  }
  return points;
}

const lowestValue = (values) => Math.min(...values);
const highestValue = (values) => Math.max(...values);

// A line as it is drawn: means of its means, the lowest of its lows, the highest of its highs.
function lineDrawn(line, together) {
  if (together === 1) return line;
  return {
    ...line,
    mean: joined(line.mean, together, line.peaks ? highestValue : average),
    low: line.low && joined(line.low, together, lowestValue),
    high: line.high && joined(line.high, together, highestValue),
  };
}

// The lines of a chart as so many pixels show them.
function makeDetail(world, lines, pixels) {
  const { axis } = world;
  let together = bucketsAPoint(world, pixels);
  let drawn = [];
  return {
    // Whether another number of buckets is a point on so many pixels.
    adapt: (now) => {
      const before = together;
      together = bucketsAPoint(world, now);
      return together !== before;
    },
    data: () => {
      const centres = pointCentres(axis, together);
      drawn = lines.map((line) => lineDrawn(line, together));
      return [centres, ...drawn.map((line) => line.mean), ...envelopeOf(drawn, centres.length)];
    },
    valuesAt: (bucket) => drawn.map((line) => line.mean[Math.floor(bucket / together)]),
    heading: () => (together === 1 ? "at cursor" : `over ${showSpan(together * axis.bucket_s)}`),
  };
}
