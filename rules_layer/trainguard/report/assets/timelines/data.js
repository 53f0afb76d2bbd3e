// The data island, and its packed series: a percentage is a byte in half percents, anything else a float32.

const MISSING = 255;

function readIsland(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

// A reader of a band's part ("mean", "low", "high") that decodes when it is asked first; null where there is no such part.
function lazily(decode) {
  const kept = new WeakMap();
  return (band, part) => {
    if (!band?.[part]) return null;
    if (!kept.has(band)) kept.set(band, {});
    const parts = kept.get(band);
    parts[part] ??= decode(band[part]);
    return parts[part];
  };
}

const halfPercents = lazily(bytesOf);
const percents = lazily((text) => Array.from(bytesOf(text), (value) => (value === MISSING ? null : value / 2)));
const floats = lazily((text) =>
  Array.from(new Float32Array(bytesOf(text).buffer), (value) => (Number.isNaN(value) ? null : value)),
);
