// What is drawn over the lanes: a frame around the selected row, arrows from a launch to what it started, and the
// stretch that a finding names.

const MOST_ARROWS = 50;

function linksOf(model, row) {
  const { launch, kernels } = model.table;
  if (launch[row] >= 0) return [[launch[row], row]];
  return (kernels.get(row) ?? []).slice(0, MOST_ARROWS).map((kernel) => [row, kernel]);
}

function drawMarks(drawing, model, range, paint, marked) {
  const ctx = drawing.context();
  const [wide, high] = [drawing.width(), drawing.room() + AXIS];
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, wide, high - AXIS);
  ctx.clip();
  if (marked) {
    const [left, right] = marked.map((at) => Math.min(Math.max(drawing.place(at), -2), wide + 2));
    ctx.fillStyle = paint.bad;
    for (const x of [left, right - 1.5]) ctx.fillRect(x, AXIS, 1.5, high);
    ctx.globalAlpha = 0.07;
    ctx.fillRect(left, AXIS, right - left, high);
    ctx.globalAlpha = 1;
  }
  const row = range.selected();
  if (row >= 0) {
    drawFrame(ctx, drawing, model, row, paint);
    for (const [from, to] of linksOf(model, row)) drawArrow(ctx, drawing, model, from, to, paint);
  }
  ctx.restore();
}

function drawFrame(ctx, drawing, model, row, paint) {
  const y = drawing.topOf(row);
  if (y === null) return;
  const left = Math.max(drawing.place(model.table.start[row]), -4);
  const right = Math.min(Math.max(drawing.place(model.table.end[row]), left + 3), drawing.width() + 4);
  ctx.lineWidth = 2;
  ctx.strokeStyle = paint.text;
  ctx.strokeRect(left - 1, y - 1, right - left + 1, LEVEL);
}

// From the launch's start to the start of what it started; both may lie out of sight.
function drawArrow(ctx, drawing, model, from, to, paint) {
  const [top, bottom] = [drawing.topOf(from), drawing.topOf(to)];
  if (top === null || bottom === null) return;
  const far = 4 * drawing.width();
  const keep = (x) => Math.min(Math.max(x, -far), far);
  const [x0, x1] = [keep(drawing.place(model.table.start[from])), keep(drawing.place(model.table.start[to]))];
  const down = bottom > top;
  const [y0, y1] = [top + (down ? LEVEL - 1 : 0), bottom + (down ? 0 : LEVEL - 1)];
  const bend = Math.max(Math.abs(y1 - y0) / 2, 12) * (down ? 1 : -1);
  ctx.strokeStyle = paint.accent;
  ctx.fillStyle = paint.accent;
  ctx.lineWidth = 1.6;
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
  ctx.stroke();
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  ctx.lineTo(x1 - 4, y1 - (down ? 7 : -7));
  ctx.lineTo(x1 + 4, y1 - (down ? 7 : -7));
  ctx.fill();
}
