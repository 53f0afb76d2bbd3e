"""What the rules on bottlenecks remember: how many snapshots were judged, and how many were bottlenecks."""

from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray

RECENT_MINUTES = 30
KEPT_BOTTLENECKS = 32


class MinuteCount(msgspec.Struct, array_like=True):
    """Snapshots of one minute of event time (epoch minutes)."""

    minute: int
    judged: int
    bottlenecked: int


class Bottleneck(msgspec.Struct, array_like=True):
    """One snapshot in which the GPUs waited: epoch seconds, number of GPUs that were low, highest core in percent."""

    time: float
    gpus_low: int
    peak: float


class Tally(msgspec.Struct, array_like=True):
    """Counts over any number of snapshots; ``minutes`` holds the newest 30, ``newest`` the last 32 bottlenecks.

    ``lost`` is what the low GPUs left undone in the bottlenecks, in hundredths of a percent of the node's GPUs, summed
    over snapshots.
    """

    judged: int = 0
    bottlenecked: int = 0
    low_gpu: int = 0
    minutes: list[MinuteCount] = msgspec.field(default_factory=list)
    newest: list[Bottleneck] = msgspec.field(default_factory=list)
    lost: int = 0

    def absorb(self, later: "Tally") -> None:
        """Add the counts of snapshots that come after all of this tally's."""
        self.judged += later.judged
        self.bottlenecked += later.bottlenecked
        self.low_gpu += later.low_gpu
        self.lost += later.lost
        for count in later.minutes:
            if self.minutes and self.minutes[-1].minute == count.minute:
                self.minutes[-1].judged += count.judged
                self.minutes[-1].bottlenecked += count.bottlenecked
            else:
                self.minutes.append(count)
        self.minutes = [count for count in self.minutes if count.minute > self.minutes[-1].minute - RECENT_MINUTES]
        self.newest = (self.newest + later.newest)[-KEPT_BOTTLENECKS:]


class BottleneckState(msgspec.Struct, array_like=True):
    """What is judged for good, and the open idle run: it counts as soon as the node is active again, else never."""

    kept: Tally = msgspec.field(default_factory=Tally)
    open_idle: Tally = msgspec.field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class Share:
    """Bottlenecks among judged snapshots."""

    hits: int
    judged: int

    @property
    def percent(self) -> float:
        """In percent; 0 of none."""
        return 100.0 * self.hits / self.judged if self.judged else 0.0


@dataclass(frozen=True, slots=True)
class Counted:
    """What T snapshots count as (all arrays of length T)."""

    low: BoolArray
    hit: BoolArray
    gpus_low: IntArray
    peaks: FloatArray
    lost: IntArray

    @classmethod
    def of(
        cls,
        utilization: FloatArray,
        peaks: FloatArray,
        *,
        limit: float,
        gpu_threshold: float,
        fraction: float,
        gpus: int,
    ) -> "Counted":
        """Look at float64[T, G]; ``gpus`` is how many GPUs of the node were ever active, ``fraction`` how many wait."""
        below = utilization < gpu_threshold
        gpus_low = np.count_nonzero(below, axis=1)
        low = gpus_low >= fraction * gpus
        undone = np.where(below, 100.0 - utilization, 0.0).sum(axis=1) / gpus
        return cls(low, low & (peaks > limit), gpus_low, peaks, np.rint(100.0 * undone).astype(np.int64))

    def tally(self, times: FloatArray, chosen: BoolArray) -> Tally:
        """Count the chosen snapshots, oldest first."""
        hit = chosen & self.hit
        epoch_minutes = np.floor(times / 60.0).astype(np.int64)
        minutes, index = np.unique(epoch_minutes[chosen], return_inverse=True)
        judged = np.bincount(index, minlength=minutes.size)
        hits = np.bincount(index[hit[chosen]], minlength=minutes.size)
        newest = np.flatnonzero(hit)[-KEPT_BOTTLENECKS:]
        columns = (times[newest].tolist(), self.gpus_low[newest].tolist(), self.peaks[newest].tolist())
        return Tally(
            judged=int(np.count_nonzero(chosen)),
            bottlenecked=int(np.count_nonzero(hit)),
            low_gpu=int(np.count_nonzero(chosen & self.low)),
            minutes=[MinuteCount(*row) for row in zip(minutes.tolist(), judged.tolist(), hits.tolist(), strict=True)],
            newest=[Bottleneck(*row) for row in zip(*columns, strict=True)],
            lost=int(self.lost[hit].sum()),
        )
