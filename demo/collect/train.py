"""Trains a small network with numpy and a slow data loader: ``python train.py SECONDS DEVICE``."""

import mmap
import struct
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BATCH, FEATURES, HIDDEN = 1_024, 256, 64
BATCHES_AN_EPOCH = 50

Array = NDArray[np.float64]


class Loader:
    def __init__(self, folder: Path, random: np.random.Generator) -> None:
        self._paths = [folder / f"{number}.z" for number in range(8)]
        for path in self._paths:
            inputs = random.normal(size=(BATCH, FEATURES)).astype(np.float32)
            truth = np.sin(inputs[:, :4].sum(axis=1, keepdims=True))
            path.write_bytes(zlib.compress(np.hstack([inputs, truth]).tobytes()))

    def batch(self, number: int) -> tuple[Array, Array]:
        """Return inputs, float64[BATCH, FEATURES], and truth, float64[BATCH, 1]."""
        packed = zlib.decompress(self._paths[number % len(self._paths)].read_bytes())
        samples = np.frombuffer(packed, np.float32).reshape(BATCH, FEATURES + 1).astype(np.float64)
        inputs = samples[:, :-1]
        return (inputs - inputs.mean(axis=0)) / inputs.std(axis=0), samples[:, -1:]


class Network:
    def __init__(self, random: np.random.Generator) -> None:
        self._first = random.normal(size=(FEATURES, HIDDEN)) / FEATURES**0.5
        self._last = random.normal(size=(HIDDEN, 1)) / HIDDEN**0.5

    def step(self, inputs: Array, truth: Array, rate: float = 1e-4) -> float:
        """Return the mean squared error before the step."""
        hidden = np.maximum(inputs @ self._first, 0.0)
        error = hidden @ self._last - truth
        behind = (error @ self._last.T) * (hidden > 0.0)
        self._last -= rate * hidden.T @ error
        self._first -= rate * inputs.T @ behind
        return float(np.mean(error**2))


def main(lasts_s: float, device: Path) -> None:
    random = np.random.default_rng(7)
    network, until, computed_s, epoch = Network(random), time.monotonic() + lasts_s, 0.0, 0
    with tempfile.TemporaryDirectory() as folder, device.open("r+b") as file:
        loader, shared = Loader(Path(folder), random), mmap.mmap(file.fileno(), 16)
        while time.monotonic() < until:
            losses = []
            for number in range(BATCHES_AN_EPOCH):
                batch = loader.batch(number)
                began = time.monotonic()
                shared[:] = struct.pack("dd", computed_s, began)
                losses.append(network.step(*batch))
                computed_s += time.monotonic() - began
                shared[:] = struct.pack("dd", computed_s, 0.0)
            epoch += 1
            if epoch % 5 == 0:
                print(f"epoch {epoch}: loss {np.mean(losses):.4f}", flush=True)
    print(f"{epoch} epochs; the network computed {100.0 * computed_s / lasts_s:.0f} % of the time", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
