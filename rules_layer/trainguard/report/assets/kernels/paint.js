// Colours as the pixels of a canvas: of each sort in shades by name, towards the text so that labels keep their
// contrast, each mixed with the ground by how full a pixel is.

const SHADES = 4;
const FULLNESS = 16;
const LEAST_FULL = 0.3;
const QUIET = 0.22;
const SORT_COLOURS = ["s1", "s2", "s3", "s6", "s5", "s4", "s4", "s8", "s6", "s7"];
const TONES = ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"];
const COLOURS = [...SORT_COLOURS, ...TONES];

// The place in COLOURS of a kernel's tone.
function toneAt(tone) {
  return SORT_COLOURS.length + Math.max(TONES.indexOf(tone), 0);
}

function channelsOf(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return [r, g, b];
}

function pixelOf([r, g, b]) {
  return (255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r);
}

function mixed(one, other, share) {
  return one.map((value, i) => value * (1 - share) + other[i] * share);
}

// `pixel(colour, name, full, quiet)`: a place in COLOURS, those of sorts first; full from 0 to 1; quiet rows are those that a search does not find.
function makePaint(root) {
  const style = getComputedStyle(root);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const ground = channelsOf(colour("surface"));
  const text = channelsOf(colour("text"));
  const size = SHADES * (FULLNESS + 1);
  const pixels = new Int32Array(COLOURS.length * size * 2);
  COLOURS.forEach((name, sort) => {
    for (let shade = 0; shade < SHADES; shade += 1) {
      const own = mixed(channelsOf(colour(name)), text, shade * 0.09);
      for (let full = 0; full <= FULLNESS; full += 1) {
        const part = LEAST_FULL + ((1 - LEAST_FULL) * full) / FULLNESS;
        const at = sort * size + shade * (FULLNESS + 1) + full;
        pixels[at] = pixelOf(mixed(ground, own, part));
        pixels[at + pixels.length / 2] = pixelOf(mixed(ground, own, part * QUIET));
      }
    }
  });
  return {
    ground: pixelOf(ground),
    grid: pixelOf(channelsOf(colour("line"))),
    text: colour("text"),
    muted: colour("muted"),
    line: colour("line"),
    strong: colour("line-strong"),
    label: colour("on-series"),
    accent: colour("accent"),
    surface: colour("surface"),
    raised: colour("raised"),
    busy: colour("s1"),
    bad: colour("bad"),
    pixel: (at, name, full, quiet) =>
      pixels[
        at * size +
          (name % SHADES) * (FULLNESS + 1) +
          Math.round(Math.min(full, 1) * FULLNESS) +
          (quiet ? pixels.length / 2 : 0)
      ],
  };
}
