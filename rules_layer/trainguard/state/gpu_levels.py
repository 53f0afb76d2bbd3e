"""How busy each GPU of a node was in the steps of a grid of time: a byte for each, but for the newest step.

A step's level is the mean over its time in whole percents, as rounded once no later sample can fall into it. The newest
step is exact, and so is the sum over all steps, which is stored beside it: rounding moves a little time from one step
to another, and adds none.
"""

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import FloatArray, IntArray

_NONE = 255
_LEGAL = bytes([*range(101), _NONE])


class GpuLevels(msgspec.Struct, array_like=True):
    """Of G GPUs ``closed`` has a byte a step, whole percents, 255 without a sample; ``open`` is of the step after them.

    ``open`` has two rows of G: milliseconds sampled, and busy. Raises ValueError when the parts do not fit.
    """

    closed: list[bytes] = msgspec.field(default_factory=list)
    open: list[list[int]] = msgspec.field(default_factory=lambda: [[], []])

    def __post_init__(self) -> None:
        """Compare the parts: what does not fit is a damaged state."""
        if len({len(row) for row in self.closed}) > 1 or {len(row) for row in self.open} != {len(self.closed)}:
            raise ValueError("levels of GPUs in rows of different lengths")
        if len(self.open) != 2 or any(row.translate(None, _LEGAL) for row in self.closed):
            raise ValueError("a level that is no percentage")

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.closed)

    @property
    def steps(self) -> int:
        """Number of closed steps."""
        return len(self.closed[0]) if self.closed else 0

    def extend(self, gpus: int) -> None:
        """Have room for so many GPUs: new ones have no sample yet."""
        more = gpus - self.gpus
        self.closed += [bytes([_NONE]) * self.steps] * more
        self.open = [[*row, *[0] * more] for row in self.open]

    def add(self, step: int, sampled: IntArray, busy: IntArray) -> None:
        """Add milliseconds of each GPU, int64[G], in a step, the newest or a later one; those before it are closed."""
        if step > self.steps:
            self._close(step - self.steps)
        self.open = [(np.array(self.open[0]) + sampled).tolist(), (np.array(self.open[1]) + busy).tolist()]

    def widen(self, weights: IntArray, *, odd: bool) -> None:
        """Make one step of each two; ``odd`` says that the first is the second of a pair.

        ``weights`` are the milliseconds sampled in each step by all GPUs together, int64[S], with the newest.
        """
        levels, held = self._levels, weights[: self.steps]
        if odd:
            levels = np.concatenate([np.full((self.gpus, 1), _NONE), levels], axis=1)
            held = np.concatenate([[0], held])
        if levels.shape[1] % 2:
            self._take_in(levels[:, -1], int(held[-1]))
            levels, held = levels[:, :-1], held[:-1]
        known = np.where(levels == _NONE, 0, held)
        total, pairs = known.reshape(self.gpus, -1, 2), (known * levels).reshape(self.gpus, -1, 2).sum(axis=2)
        weight = total.sum(axis=2)
        means = np.rint(pairs / np.maximum(weight, 1)).astype(np.uint8)
        self.closed = [row.tobytes() for row in np.where(weight > 0, means, _NONE).astype(np.uint8)]

    def means(self) -> FloatArray:
        """Return the percentage of each GPU in each step, the newest included: float64[S, G], NaN without a sample."""
        levels = self._levels.astype(np.float64)
        levels[levels == _NONE] = np.nan
        sampled, busy = np.array(self.open, dtype=np.float64)
        newest = np.divide(100.0 * busy, sampled, out=np.full(self.gpus, np.nan), where=sampled > 0.0)
        return np.vstack([levels.T, newest])

    @property
    def _levels(self) -> IntArray:
        """Of the closed steps, int64[G, S]."""
        flat = np.frombuffer(b"".join(self.closed), dtype=np.uint8)
        return flat.reshape(self.gpus, self.steps).astype(np.int64)

    def _close(self, steps: int) -> None:
        """Round the newest step, leave those after it without samples, and begin a new one after so many."""
        sampled, busy = np.array(self.open, dtype=np.int64)
        percents = np.rint(100.0 * busy / np.maximum(sampled, 1)).astype(np.uint8)
        closed = np.where(sampled > 0, percents, _NONE).astype(np.uint8)
        self.closed = [
            row + bytes([level]) + bytes([_NONE]) * (steps - 1)
            for row, level in zip(self.closed, closed.tolist(), strict=True)
        ]
        self.open = [[0] * self.gpus, [0] * self.gpus]

    def _take_in(self, levels: IntArray, weight: int) -> None:
        """Add the last closed step to the newest: both are of one pair."""
        known = levels != _NONE
        sampled = np.where(known, weight // max(int(known.sum()), 1), 0)
        self.open = [
            (np.array(self.open[0]) + sampled).tolist(),
            (np.array(self.open[1]) + (levels * sampled + 50) // 100).tolist(),
        ]
