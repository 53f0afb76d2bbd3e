// The heat map's rows: a GPU each; the nodes of a large job; several nodes of a huge one.

const MOST_ROWS = 160;

function gpuRows(data, index) {
  const node = data.nodes[index];
  return node.gpus.map((gpu, i) => ({
    node: index,
    gpu: i,
    label: gpu.name,
    title: `${node.name}/${gpu.name}`,
    values: halfPercents(gpu.utilization, "mean"),
  }));
}

// Half percents of several series as one: their mean or their lowest, MISSING where none has a value.
function merge(series, lowest) {
  const merged = new Uint8Array(series[0].length);
  for (let i = 0; i < merged.length; i += 1) {
    let sum = 0;
    let count = 0;
    let least = MISSING;
    for (const values of series) {
      const value = values[i];
      if (value === MISSING) continue;
      sum += value;
      count += 1;
      if (value < least) least = value;
    }
    merged[i] = lowest || !count ? least : Math.round(sum / count);
  }
  return merged;
}

function nodeRows(data, lowest) {
  const nodes = data.nodes.map((_, i) => i).filter((i) => data.nodes[i].gpus.length);
  const size = Math.ceil(nodes.length / MOST_ROWS);
  const rows = [];
  for (let i = 0; i < nodes.length; i += size) {
    const own = nodes.slice(i, i + size);
    const names = own.map((each) => data.nodes[each].name);
    const gpus = own.flatMap((each) => data.nodes[each].gpus.map((gpu) => halfPercents(gpu.utilization, "mean")));
    const title = names.length > 1 ? `${names[0]} to ${names.at(-1)}` : names[0];
    const kind = lowest ? "lowest" : "mean";
    const named = { label: "", title: `${title}, ${kind} of ${gpus.length} GPUs` };
    rows.push({ node: own[0], nodes: own, gpu: null, ...named, values: merge(gpus, lowest) });
  }
  return rows;
}

function manyGpus(data) {
  return data.nodes.reduce((count, node) => count + node.gpus.length, 0) > MOST_ROWS;
}

function heatRows(data, node, lowest) {
  if (node !== null) return gpuRows(data, node);
  return manyGpus(data) ? nodeRows(data, lowest) : data.nodes.flatMap((_, i) => gpuRows(data, i));
}

// Whether a row is of an episode: of its GPUs where it names some, else of its nodes.
function isOfEpisode(row, { nodes, gpus }) {
  const own = row.nodes ?? [row.node];
  if (gpus.length && row.gpu !== null) return gpus.some(([node, gpu]) => own.includes(node) && gpu === row.gpu);
  return nodes.some((node) => own.includes(node));
}
