// Levels of detail that the page holds: the whole job, and parts of its time in shorter buckets.

const FINE_BELOW = 400;
const LEAST_BUCKETS = 5;

function endOf(axis) {
  return axis.start + axis.buckets * axis.bucket_s;
}

// The bucket of a time, null outside of the axis.
function bucketAt(axis, at) {
  const index = Math.floor((at - axis.start) / axis.bucket_s);
  return index >= 0 && index < axis.buckets ? index : null;
}

function makeLevels(data) {
  const whole = { axis: data.axis, data };
  const fine = data.detail.map(({ axis, nodes }) => ({ axis, data: { ...data, nodes } }));
  const slack = whole.axis.bucket_s;
  const around = (low, high) =>
    fine.find(({ axis }) => axis.start <= low + slack && endOf(axis) >= high - slack);
  return {
    whole,
    // What to show of a range: the finer buckets where few of the others fill it and the page holds them.
    of: ([low, high]) => ((high - low) / slack > FINE_BELOW ? whole : (around(low, high) ?? whole)),
    // The shortest range to be shown around a time.
    least: (at) => LEAST_BUCKETS * (around(at, at) ?? whole).axis.bucket_s,
  };
}

// What a chart of `kind` shows at the moment; step durations have one level.
function levelOf(world, kind) {
  const { axis, data } = kind === "steps" ? world.levels.whole : world.level;
  return { axis, data, view: world.view, theme: world.theme };
}
