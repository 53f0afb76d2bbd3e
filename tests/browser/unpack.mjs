// Decompresses the files named on the command line, pairs of source and target, with Node's own Brotli.

import { createReadStream, createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";

const paths = process.argv.slice(2);
const pairs = Array.from({ length: paths.length / 2 }, (_, i) => paths.slice(2 * i, 2 * i + 2));
await Promise.all(
  pairs.map(([source, target]) => pipeline(createReadStream(source), createBrotliDecompress(), createWriteStream(target))),
);
