"""How busy each GPU of a node was in the steps of a grid of time: a byte for each, but for the newest step.

A step's level is the mean over its time in half percents, as rounded once no later sample can fall into it. What
rounding leaves out of a step, or adds to it, is carried into the next step (error diffusion): the levels of any K steps
have a mean within about 0.5 / K points of the truth, the levels up to the newest step one within 0.25 / K, and those of
all steps, with what is still carried, are exact. The newest step is exact.
"""

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import FloatArray, IntArray

FULL = 200
"""The level of a GPU that was busy all the time."""

_NONE = 255
_LEGAL = bytes([*range(FULL + 1), _NONE])


class GpuLevels(msgspec.Struct, array_like=True):
    """Of G GPUs ``closed`` has a byte a step, half percents, 255 without a sample; ``open`` is of the step after them.

    ``open`` has two rows of G: milliseconds sampled, and busy. ``carried`` is the busy time of each GPU, in
    milliseconds / 200, that the closed levels lack; it is at most half a level of the longest step, and negative where
    they say too much. Raises ValueError when the parts do not fit.
    """

    closed: list[bytes] = msgspec.field(default_factory=list)
    open: list[list[int]] = msgspec.field(default_factory=lambda: [[], []])
    carried: list[int] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        """Compare the parts: what does not fit is a damaged state."""
        if len({len(row) for row in self.closed}) > 1 or {len(row) for row in self.open} != {len(self.closed)}:
            raise ValueError("levels of GPUs in rows of different lengths")
        if len(self.open) != 2 or len(self.carried) != len(self.closed):
            raise ValueError("levels of GPUs without what was left out in rounding")
        if any(row.translate(None, _LEGAL) for row in self.closed):
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
        self.carried = [*self.carried, *[0] * more]

    def add(self, step: int, sampled: IntArray, busy: IntArray) -> None:
        """Add milliseconds of each GPU, int64[G], in a step, the newest or a later one; those before it are closed."""
        if step > self.steps:
            self._close(step - self.steps)
        self.open = [(np.array(self.open[0]) + sampled).tolist(), (np.array(self.open[1]) + busy).tolist()]

    def widen(self, weights: IntArray, *, odd: bool) -> None:
        """Make one step of each two; ``odd`` says that the first is the second of a pair.

        ``weights`` are the milliseconds sampled in each step by all GPUs together, int64[S], with the newest.
        """
        levels, sampled = self._levels, self._sampled(weights[: self.steps])
        if odd:
            levels = np.concatenate([np.full((self.gpus, 1), _NONE), levels], axis=1)
            sampled = np.concatenate([np.zeros((self.gpus, 1), dtype=np.int64), sampled], axis=1)
        if levels.shape[1] % 2:
            self._take_in(levels[:, -1], sampled[:, -1])
            levels, sampled = levels[:, :-1], sampled[:, :-1]
        pairs = (self.gpus, -1, 2)
        busy, total = (levels * sampled).reshape(pairs).sum(axis=2), sampled.reshape(pairs).sum(axis=2)
        if total.shape[1]:  # what the last steps lack is theirs, if they were neither idle nor busy all the time
            rest = np.where((busy[:, -1] <= 0) | (busy[:, -1] >= FULL * total[:, -1]), 0, self.carried)
            busy[:, -1] += rest
            self.carried = (np.array(self.carried) - rest).tolist()
        rows = [self._rounded(total[:, pair], busy[:, pair]) for pair in range(total.shape[1])]
        self.closed = [bytes(row) for row in np.array(rows, dtype=np.uint8).reshape(-1, self.gpus).T]

    def means(self) -> FloatArray:
        """Return the percentage of each GPU in each step, the newest included: float64[S, G], NaN without a sample."""
        levels = self._levels.astype(np.float64) * (100.0 / FULL)
        levels[self._levels == _NONE] = np.nan
        sampled, busy = np.array(self.open, dtype=np.float64)
        newest = np.divide(100.0 * busy, sampled, out=np.full(self.gpus, np.nan), where=sampled > 0.0)
        return np.vstack([levels.T, newest])

    def mean(self, chosen: IntArray, weights: IntArray) -> FloatArray:
        """Return the percentage of each GPU over steps, float64[G], NaN without a sample.

        It is within 0.5 / K points of the truth for K steps of one length, within 0.25 / K from the first step on or
        up to the last one, and exact for all steps and for the newest alone.

        Parameters
        ----------
        chosen : int64[K]
            The steps, in order; the newest is number ``steps``.
        weights : int64[S]
            Milliseconds sampled in each step by all GPUs together, with the newest.
        """
        sampled = np.concatenate([self._sampled(weights[: self.steps]), np.array(self.open[:1]).T], axis=1)
        busy = np.concatenate([self._levels * sampled[:, :-1], FULL * np.array(self.open[1:]).T], axis=1)
        total, weight = busy[:, chosen].sum(axis=1), sampled[:, chosen].sum(axis=1)
        if chosen.size and chosen[0] < self.steps <= chosen[-1] + 1:
            total = np.clip(total + self.carried, 0, FULL * weight)
        means: FloatArray = np.divide(100.0 / FULL * total, weight, out=np.full(self.gpus, np.nan), where=weight > 0)
        return means

    @property
    def _levels(self) -> IntArray:
        """Of the closed steps, int64[G, S]."""
        flat = np.frombuffer(b"".join(self.closed), dtype=np.uint8)
        return flat.reshape(self.gpus, self.steps).astype(np.int64)

    def _sampled(self, weights: IntArray) -> IntArray:
        """Return the milliseconds of each GPU in the closed steps, int64[G, S]: those with samples share a step's."""
        known = self._levels != _NONE
        return np.where(known, weights // np.maximum(known.sum(axis=0), 1), 0)

    def _close(self, steps: int) -> None:
        """Round the newest step, leave those after it without samples, and begin a new one after so many."""
        sampled, busy = np.array(self.open, dtype=np.int64)
        closed = self._rounded(sampled, FULL * busy)
        self.closed = [
            row + bytes([level]) + bytes([_NONE]) * (steps - 1) for row, level in zip(self.closed, closed, strict=True)
        ]
        self.open = [[0] * self.gpus, [0] * self.gpus]

    def _rounded(self, sampled: IntArray, busy: IntArray) -> list[int]:
        """Return each GPU's level of a step of ``sampled`` milliseconds, of which it was busy ``busy`` / 200.

        What is carried moves a level by half of one at most, and none of a GPU that was wholly idle or wholly busy.
        """
        carried = np.array(self.carried, dtype=np.int64)
        part = np.clip(carried, -(sampled // 2), sampled // 2)
        part[(busy <= 0) | (busy >= FULL * sampled)] = 0
        levels = np.clip((2 * (busy + part) + sampled) // np.maximum(2 * sampled, 1), 0, FULL)
        self.carried = (carried + busy - levels * sampled).tolist()
        rounded: list[int] = np.where(sampled > 0, levels, _NONE).tolist()
        return rounded

    def _take_in(self, levels: IntArray, sampled: IntArray) -> None:
        """Add the last closed step, with what is carried, to the newest: both are of one pair."""
        done = np.array(self.open[0]) + sampled
        busy = levels * sampled + np.where(sampled > 0, self.carried, 0)
        whole = np.clip(np.array(self.open[1]) + (busy + FULL // 2) // FULL, 0, done)
        self.carried = (np.array(self.carried) + levels * sampled - FULL * (whole - self.open[1])).tolist()
        self.open = [done.tolist(), whole.tolist()]
