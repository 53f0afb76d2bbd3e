"""Samples of hardware counters, added up as they are read: there can be more of them than of kernels."""

from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import CounterTrack, Floats
from trainguard.kernels.limits import LONGEST_NAME

MOST_TRACKS = 1_000
"""Counters of all GPUs; more are not kept."""

_LARGEST = float(1 << 63)


@dataclass(slots=True)
class _Sum:
    samples: int = 0
    total: float = 0.0
    least: float = np.inf
    most: float = -np.inf


class CounterSums:
    """Adds up samples by GPU and counter."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, str], _Sum] = {}

    def add(self, gpu: int, name: str, values: Floats) -> int:
        """Add samples; return how many were not kept: what no counter reaches, and tracks over `MOST_TRACKS`."""
        kept = values[np.abs(values) < _LARGEST]
        key = (gpu, name[:LONGEST_NAME])
        if not len(kept) or (key not in self._sums and len(self._sums) >= MOST_TRACKS):
            return len(values)
        found = self._sums.setdefault(key, _Sum())
        found.samples += len(kept)
        found.total += float(kept.sum())
        found.least = min(found.least, float(kept.min()))
        found.most = max(found.most, float(kept.max()))
        return len(values) - len(kept)

    def tracks(self) -> list[CounterTrack]:
        """Return the counters, by GPU and name."""
        return [
            CounterTrack(
                gpu=gpu,
                name=name,
                samples=found.samples,
                mean=found.total / found.samples,
                least=found.least,
                most=found.most,
            )
            for (gpu, name), found in sorted(self._sums.items())
        ]
