// The heat map's colours: viridis, which grows in lightness evenly and is told apart by colour-blind readers
// (Smith and van der Walt, 2015), at nine of its points.

const RAMP = [
  [68, 1, 84], [71, 45, 123], [59, 82, 139], [44, 114, 142], [33, 145, 140],
  [40, 174, 128], [94, 201, 98], [173, 220, 48], [253, 231, 37],
];
const RAMP_STEPS = 200;

// The colour of a share from 0 to 1, as red, green and blue.
function rampColour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1);
  const from = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[from].map((channel, i) => Math.round(channel + (RAMP[from + 1][i] - channel) * (at - from)));
}

// One 32-bit pixel for each half percent.
function rampPixels() {
  const bytes = new Uint8ClampedArray(4 * (RAMP_STEPS + 1));
  for (let i = 0; i <= RAMP_STEPS; i += 1) bytes.set([...rampColour(i / RAMP_STEPS), 255], 4 * i);
  return new Uint32Array(bytes.buffer);
}

function drawRamp(canvas) {
  const ctx = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x += 1) {
    ctx.fillStyle = `rgb(${rampColour(x / (canvas.width - 1)).join(" ")})`;
    ctx.fillRect(x, 0, 1, canvas.height);
  }
}
