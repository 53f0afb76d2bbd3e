// How the heat map is drawn: cells, gaps between rows, names, times, and frames around the rows of an episode.

const HEAT_TOP = 4;
const HEAT_BOTTOM = 36;
const HATCH = 6;
const LEAST_FRAME = 3;

function hatchPattern(ctx, theme) {
  const tile = makeCanvas(HATCH, HATCH);
  const own = tile.getContext("2d");
  own.fillStyle = theme.surface;
  own.fillRect(0, 0, HATCH, HATCH);
  own.strokeStyle = theme.hatch;
  own.beginPath();
  for (const x of [-HATCH, 0, HATCH]) {
    own.moveTo(x, HATCH);
    own.lineTo(x + HATCH, 0);
  }
  own.stroke();
  return ctx.createPattern(tile, "repeat");
}

// One pixel a row and column: the mean of the buckets under it; transparent where nothing was collected.
function heatImage(rows, axis, range, columns) {
  const image = new ImageData(columns, rows.length);
  const pixels = new Uint32Array(image.data.buffer);
  const ramp = rampPixels();
  const edges = Array.from({ length: columns + 1 }, (_, i) => {
    const at = range[0] + ((range[1] - range[0]) * i) / columns;
    return Math.min(Math.max((at - axis.start) / axis.bucket_s, 0), axis.buckets);
  });
  rows.forEach(({ values }, row) => {
    for (let column = 0; column < columns; column += 1) {
      const from = Math.min(Math.floor(edges[column] + 1e-6), axis.buckets - 1);
      const to = Math.max(Math.floor(edges[column + 1] + 1e-6), from + 1);
      let sum = 0;
      let count = 0;
      for (let i = from; i < to; i += 1) {
        if (values[i] === MISSING) continue;
        sum += values[i];
        count += 1;
      }
      if (count) pixels[row * columns + column] = ramp[Math.round(sum / count)];
    }
  });
  return image;
}

function makeCanvas(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

// Rows as high as they are drawn: on paper, an image that is stretched would be smoothed.
function stretched(image, height) {
  const small = makeCanvas(image.width, image.height);
  small.getContext("2d").putImageData(image, 0, 0);
  const canvas = makeCanvas(image.width, height);
  const ctx = canvas.getContext("2d");
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(small, 0, 0, image.width, height);
  return canvas;
}

function drawGaps(ctx, rows, area, theme) {
  const height = area.height / rows.length;
  ctx.fillStyle = theme.surface;
  rows.forEach((row, i) => {
    if (i === 0) return;
    const between = row.node !== rows[i - 1].node && row.gpu !== null;
    const gap = between ? Math.min(2, height / 4) : height >= 8 ? 1 : 0;
    if (gap) ctx.fillRect(area.left, area.top + i * height - gap / 2, area.width, gap);
  });
}

// Node names at each node's first row, GPU names at every row that is high enough.
function drawLabels(ctx, rows, area, theme, data) {
  const height = area.height / rows.length;
  let free = area.top;
  ctx.textBaseline = "middle";
  ctx.font = FONT;
  rows.forEach((row, i) => {
    const y = area.top + (i + 0.5) * height;
    const first = i === 0 || rows[i - 1].node !== row.node;
    ctx.fillStyle = theme.muted;
    ctx.textAlign = "right";
    if (height >= 11 && row.label) ctx.fillText(fitted(ctx, row.label, 30), area.left - 6, y);
    if (!first || y < free) return;
    ctx.fillStyle = theme.text;
    ctx.textAlign = "left";
    const room = height >= 11 && row.label ? 36 : 66;
    ctx.fillText(fitted(ctx, data.nodes[row.node].name, room), 0, y);
    free = y + 13;
  });
}

function fitted(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return text;
  let kept = text;
  while (kept.length > 1 && ctx.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}

function drawTicks(ctx, area, range, theme, origin) {
  const ticks = timeTicks(range[0], range[1], area.width, TICK_GAP);
  ctx.fillStyle = theme.muted;
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  tickLabels(ticks, origin).forEach((label, i) => {
    const x = area.left + ((ticks[i] - range[0]) / (range[1] - range[0])) * area.width;
    label.split("\n").forEach((line, row) => ctx.fillText(line, x, area.top + area.height + 6 + 14 * row));
  });
}

// Rows that follow one another have one frame; light with a dark rim, it is seen on every colour of the ramp.
function drawFrames(ctx, rows, area, range, episodes) {
  const height = area.height / rows.length;
  const place = (at) => area.left + ((Math.min(Math.max(at, range[0]), range[1]) - range[0]) / (range[1] - range[0])) * area.width;
  for (const episode of episodes) {
    if (episode.start > range[1] || episode.end < range[0]) continue;
    const [left, right] = [place(episode.start), place(episode.end)];
    const owned = rows.map((row) => isOfEpisode(row, episode));
    for (let i = 0; i < rows.length; i += 1) {
      if (!owned[i] || owned[i - 1]) continue;
      const ends = owned.indexOf(false, i);
      const count = (ends < 0 ? rows.length : ends) - i;
      frame(ctx, [left, area.top + i * height, Math.max(right - left, LEAST_FRAME), count * height]);
    }
  }
}

function frame(ctx, [left, top, width, height]) {
  const inset = Math.min(1.5, height / 4);
  for (const [colour, line] of [["#111", 3], ["#fff", 1.25]]) {
    ctx.strokeStyle = colour;
    ctx.lineWidth = line;
    ctx.strokeRect(left, top + inset, width, Math.max(height - 2 * inset, 1));
  }
}

// The cells' place on a canvas of that size.
function heatArea(width, height) {
  return {
    left: GUTTER,
    top: HEAT_TOP,
    width: Math.max(width - GUTTER - RIGHT, 1),
    height: height - HEAT_TOP - HEAT_BOTTOM,
  };
}

function paintHeat(canvas, rows, world, [width, height], ratio) {
  const { axis, data, theme, view } = world;
  const area = heatArea(width, height);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  ctx.fillStyle = hatchPattern(ctx, theme);
  ctx.fillRect(area.left, area.top, area.width, area.height);
  const image = heatImage(rows, axis, view.range(), Math.round(area.width * ratio));
  ctx.drawImage(stretched(image, Math.round(area.height * ratio)), area.left, area.top, area.width, area.height);
  drawGaps(ctx, rows, area, theme);
  drawLabels(ctx, rows, area, theme, data);
  drawTicks(ctx, area, view.range(), theme, view.origin);
  drawFrames(ctx, rows, area, view.range(), data.episodes);
  return area;
}
