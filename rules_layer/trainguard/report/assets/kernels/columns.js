// Packed columns: whole numbers as LEB128 in base64, written by report/html/timelines.py.

function readCounts(text) {
  const bytes = bytesOf(text);
  let count = 0;
  for (let i = 0; i < bytes.length; i += 1) if (bytes[i] < 128) count += 1;
  const values = new Float64Array(count);
  let value = 0;
  let weight = 1;
  let at = 0;
  for (let i = 0; i < bytes.length; i += 1) {
    const byte = bytes[i];
    value += (byte & 127) * weight;
    weight *= 128;
    if (byte < 128) {
      values[at] = value;
      at += 1;
      value = 0;
      weight = 1;
    }
  }
  return values;
}

function signedOf(value) {
  return value % 2 ? -(value + 1) / 2 : value / 2;
}

// Each value is what it is more than the one before.
function readSteps(text) {
  const values = readCounts(text);
  let sum = 0;
  for (let i = 0; i < values.length; i += 1) {
    sum += signedOf(values[i]);
    values[i] = sum;
  }
  return values;
}

// The first place from `low` on whose value is over `limit`, in ascending values; looks close by first.
function firstOver(values, limit, low) {
  let step = 1;
  let high = low;
  while (high < values.length && values[high] <= limit) {
    low = high + 1;
    high += step;
    step *= 2;
  }
  high = Math.min(high, values.length);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
