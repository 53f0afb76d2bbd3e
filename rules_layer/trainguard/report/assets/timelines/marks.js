// Episodes and thresholds in a line chart: a band from the onset to the end with the rule's name, and dashed lines.

const BAND_OPACITY = 0.09;
const LABEL_ROOM = 13;
const LABEL_GAP = 8;

// Episodes of the whole job, and of the node that is shown.
function episodesShown(data, node) {
  return data.episodes.filter(({ nodes }) => node === null || !nodes.length || nodes.includes(node));
}

function labelOn(ctx, text, x, y, theme) {
  ctx.lineWidth = 3 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.strokeStyle = theme.surface;
  ctx.strokeText(text, x, y);
  ctx.fillText(text, x, y);
}

// Calls `act` with each episode in the range, and with where on the canvas it begins and ends.
function eachEpisode(plot, episodes, act) {
  const { min: low, max: high } = plot.scales.x;
  const at = (time) => Math.round(plot.valToPos(Math.min(Math.max(time, low), high), "x", true));
  for (const each of episodes) {
    if (each.start <= high && each.end >= low) act(each, at(each.start), at(each.end));
  }
}

// The time of each episode as a band, under all that is drawn.
function drawEpisodes(plot, episodes, theme) {
  const { ctx, bbox } = plot;
  ctx.save();
  eachEpisode(plot, episodes, (each, from, to) => {
    ctx.fillStyle = severityColour(theme, each.severity);
    ctx.globalAlpha = BAND_OPACITY;
    ctx.fillRect(from, bbox.top, Math.max(to - from, 1), bbox.height);
  });
  ctx.restore();
}

// A line at each onset, over all that is drawn, and beside it the rule's name where it lies on no other.
function drawOnsets(plot, episodes, theme) {
  const { ctx, bbox } = plot;
  const inset = 4 * devicePixelRatio;
  let free = -Infinity;
  ctx.save();
  ctx.font = scaledFont();
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  eachEpisode(plot, episodes, (each, from) => {
    ctx.fillStyle = severityColour(theme, each.severity);
    if (each.start >= plot.scales.x.min) ctx.fillRect(from, bbox.top, Math.round(1.5 * devicePixelRatio), bbox.height);
    const width = ctx.measureText(each.rule).width + inset;
    if (from < free || from + width > bbox.left + bbox.width) return;
    labelOn(ctx, each.rule, from + inset, bbox.top + bbox.height - inset / 2, theme);
    free = from + width + LABEL_GAP * devicePixelRatio;
  });
  ctx.restore();
}

function scaledFont() {
  return FONT.replace("11px", `${11 * devicePixelRatio}px`);
}

// A label where no other is so near; all of them stand above the chart.
function drawThresholds(plot, thresholds, theme) {
  const { ctx, bbox } = plot;
  const labelled = [];
  ctx.save();
  ctx.font = scaledFont();
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  for (const { value, label } of thresholds) {
    const y = Math.round(plot.valToPos(value, "y", true));
    if (y < bbox.top || y > bbox.top + bbox.height) continue;
    ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.lineWidth = Math.max(1, Math.round(devicePixelRatio));
    ctx.strokeStyle = theme.text;
    const middle = y + (ctx.lineWidth % 2) / 2;
    ctx.beginPath();
    ctx.moveTo(bbox.left, middle);
    ctx.lineTo(bbox.left + bbox.width, middle);
    ctx.stroke();
    ctx.setLineDash([]);
    if (labelled.some((other) => Math.abs(other - y) < LABEL_ROOM * devicePixelRatio)) continue;
    ctx.fillStyle = theme.text;
    labelOn(ctx, `${value} % ${label}`, bbox.left + bbox.width - 4 * devicePixelRatio, y - devicePixelRatio, theme);
    labelled.push(y);
  }
  ctx.restore();
}
