// Draws the lanes: a line of pixels a track, found by binary search, so that the work depends on the pixels and not on
// the rows. Rows below a pixel are drawn together, as full as they fill it.

const AXIS = 22;
const NARROWEST_LABEL = 34;
const LABEL_FONT = '11px ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace';
const AXIS_FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

function makeDrawing(canvas, model, tree, range) {
  const ctx = canvas.getContext("2d", { alpha: false });
  let [width, height, ratio] = [0, 0, 1];
  let image = null;
  let pixels = null;
  let letter = 7;

  function resize() {
    ratio = devicePixelRatio || 1;
    width = Math.max(Math.round(canvas.clientWidth * ratio), 1);
    height = Math.max(Math.round(canvas.clientHeight * ratio), 1);
    canvas.width = width;
    canvas.height = height;
    image = ctx.createImageData(width, height);
    pixels = new Int32Array(image.data.buffer);
    ctx.font = LABEL_FONT;
    letter = ctx.measureText("m").width;
    range.setMostScroll(tree.height() - (height / ratio - AXIS) + GAP);
  }

  const ticks = () => ticksOf(range.from() - model.zero, range.to() - model.zero, (range.span() * 110 * ratio) / width);

  // The ground with a line for each tick.
  function blankLine(paint) {
    const line = new Int32Array(width).fill(paint.ground);
    for (const [at] of ticks())
      line[Math.round(((at + model.zero - range.from()) / range.span()) * width)] = paint.grid;
    return line;
  }

  // One track as a line of pixels; what is wide enough for a name goes to `labels`.
  function trackLine(line, blank, track, paint, found, y, labels) {
    const { table } = model;
    const { start, end, rows, sum } = track;
    const from = range.from();
    const scale = width / range.span();
    line.set(blank);
    let i = firstOver(end, from, 0);
    while (i < rows.length) {
      const left = (start[i] - from) * scale;
      if (left >= width) break;
      const row = rows[i];
      const right = (end[i] - from) * scale;
      const x = Math.max(Math.floor(left), 0);
      const quiet = found !== null && !found[table.name[row]];
      if (right - left >= 2) {
        const stop = Math.min(Math.max(Math.floor(right) - (right - left > 4 ? 1 : 0), x + 1), width);
        line.fill(paint.pixel(model.colour(row), table.name[row], 1, quiet), x, stop);
        if (stop - x > NARROWEST_LABEL * ratio) labels.push({ row, x, stop, y, quiet });
        i += 1;
        continue;
      }
      // All that begin in this pixel; the last of them may be longer than it.
      const edge = from + (x + 1) / scale;
      let next = firstOver(start, edge, i);
      if (next > i + 1 && (end[next - 1] - start[next - 1]) * scale >= 2) next -= 1;
      const full = (sum[next] - sum[i]) * scale;
      const shown = found === null ? row : firstFound(track, i, next, found);
      line[x] = paint.pixel(model.colour(shown), 0, full, found !== null && !found[table.name[shown]]);
      i = next;
    }
  }

  function firstFound(track, from, to, found) {
    const last = Math.min(to, from + 64);
    for (let i = from; i < last; i += 1) if (found[model.table.name[track.rows[i]]]) return track.rows[i];
    return track.rows[from];
  }

  function lanes(paint, found) {
    const labels = [];
    const blank = blankLine(paint);
    const line = new Int32Array(width);
    for (let row = 0; row < height; row += 1) pixels.set(blank, row * width);
    const top = AXIS - range.scroll();
    for (const entry of tree.entries()) {
      if (entry.kind !== "lane" || top + entry.top + entry.height < AXIS || (top + entry.top) * ratio > height)
        continue;
      entry.tracks.forEach((track, level) => {
        const y = Math.round((top + entry.top + level * LEVEL) * ratio);
        const low = Math.max(y, Math.round(AXIS * ratio));
        const high = Math.min(y + Math.round((LEVEL - 1) * ratio), height);
        if (high <= low) return;
        trackLine(line, blank, track, paint, found, y, labels);
        for (let row = low; row < high; row += 1) pixels.set(line, row * width);
      });
    }
    ctx.putImageData(image, 0, 0);
    return labels;
  }

  function names(labels, paint) {
    ctx.font = LABEL_FONT;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const { row, x, stop, y, quiet } of labels) {
      const [left, room] = [x / ratio + 4, (stop - x) / ratio - 8];
      const letters = Math.floor(room / letter);
      const text = shortNameOf(model, row);
      ctx.fillStyle = quiet ? paint.muted : paint.label;
      ctx.fillText(text.length <= letters ? text : `${text.slice(0, letters - 1)}…`, left, y / ratio + LEVEL / 2);
    }
  }

  const place = (time) => ((time - range.from()) / range.span()) * (width / ratio);

  function heads(paint) {
    const wide = width / ratio;
    for (const entry of tree.entries()) {
      const y = AXIS + entry.top - range.scroll();
      if (entry.kind === "lane" || y + entry.height < AXIS || y > height / ratio) continue;
      if (entry.kind === "steps") drawSteps(entry, y, paint);
      else {
        ctx.fillStyle = paint.raised;
        ctx.fillRect(0, y, wide, entry.height - 2);
        if (entry.busy?.length) drawBusy(entry, y, paint);
      }
    }
  }

  function drawSteps(entry, y, paint) {
    ctx.font = AXIS_FONT;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const [number, start, lasts] of entry.process.steps) {
      const left = Math.max(place(entry.process.offset + start), -2);
      const right = Math.min(place(entry.process.offset + start + lasts), width / ratio + 2);
      if (right < 0 || left > width / ratio) continue;
      ctx.fillStyle = paint.line;
      ctx.fillRect(left, y + 1, Math.max(right - left - 1, 1), entry.height - 5);
      ctx.fillStyle = paint.text;
      if (right - left > 24)
        ctx.fillText(right - left > 64 ? `step ${number}` : String(number), left + 5, y + entry.height / 2 - 1);
    }
  }

  // How busy the GPU is, over equal parts of the window.
  function drawBusy(entry, y, paint) {
    const { offset, window } = entry.process;
    const part = window / entry.busy.length;
    ctx.fillStyle = paint.busy;
    entry.busy.forEach((share, i) => {
      const left = Math.round(Math.max(place(offset + i * part), 0));
      const right = Math.round(Math.min(place(offset + (i + 1) * part), width / ratio));
      if (right > left)
        ctx.fillRect(left, y + (entry.height - 2) * (1 - share), right - left, (entry.height - 2) * share);
    });
  }

  function axis(paint) {
    const wide = width / ratio;
    ctx.fillStyle = paint.surface;
    ctx.fillRect(0, 0, wide, AXIS);
    ctx.font = AXIS_FONT;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const [at, label] of ticks()) {
      const x = Math.round(place(at + model.zero)) + 0.5;
      ctx.fillStyle = paint.line;
      ctx.fillRect(x - 0.5, AXIS - 6, 1, 6);
      ctx.fillStyle = paint.muted;
      if (x < wide - 40) ctx.fillText(label, x + 4, AXIS / 2);
    }
    ctx.fillStyle = paint.strong;
    ctx.fillRect(0, AXIS - 1, wide, 1);
  }

  // How far the lanes are scrolled, where not all of them are in sight.
  function thumb(paint) {
    const room = height / ratio - AXIS;
    if (tree.height() <= room) return;
    ctx.fillStyle = paint.strong;
    ctx.fillRect(width / ratio - 5, AXIS + (range.scroll() / tree.height()) * room, 4, (room / tree.height()) * room);
  }

  return {
    resize,
    room: () => height / ratio - AXIS,
    width: () => width / ratio,
    place,
    timeAt: (x) => range.from() + (x / (width / ratio)) * range.span(),
    // Where a row is drawn: its track's top; null where its lane is folded away.
    topOf: (row) => {
      const entry = tree.entries().find((each) => each.lane === model.lanes[model.table.lane[row]]);
      if (!entry || model.table.level[row] >= entry.tracks.length) return null;
      return AXIS + entry.top + model.table.level[row] * LEVEL - range.scroll();
    },
    draw: (paint, found) => {
      ctx.setTransform(1, 0, 0, 1, 0, 0);
      const labels = lanes(paint, found);
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      names(labels, paint);
      heads(paint);
      axis(paint);
      thumb(paint);
    },
    context: () => ctx,
  };
}
