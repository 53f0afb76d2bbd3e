"""A node's data loader processes against its cores, and how long training waited for them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from trainguard.formats.profile.events import UNKNOWN
from trainguard.render.details import Details, Durations
from trainguard.rules.dataloader.series import BLOCK_US, LoaderState, LoadingProcess
from trainguard.rules.framework_events import ProcessLoop
from trainguard.rules.rule_inputs import ALARMING_WASTE, NodeFacts
from trainguard.rules.sample_statistics import sampled
from trainguard.state.histogram import DurationHistogram


@dataclass(frozen=True, slots=True)
class Load:
    """Loader processes of one node; ``limits`` and ``percent`` are percent of its cores."""

    node: str
    cores: int
    state: LoaderState
    limits: tuple[float, float]

    @property
    def processes(self) -> list[LoadingProcess]:
        return self.state.alive

    @property
    def loaders(self) -> float:
        """Loader processes of all of them: each one's median."""
        return sum(process.median for process in self.processes)

    @property
    def percent(self) -> float:
        return 100.0 * self.loaders / self.cores

    @property
    def seconds(self) -> int:
        return max(process.seconds for process in self.processes)

    @property
    def too_few(self) -> bool:
        return self.percent < self.limits[0]

    @property
    def too_many(self) -> bool:
        return self.percent > self.limits[1]

    @property
    def badness(self) -> float:
        """How far outside of the limits the node is: above 1 when it fires."""
        below = self.limits[0] / self.percent if self.percent else math.inf
        return max(below, self.percent / self.limits[1])


class LoaderWaits(msgspec.Struct, frozen=True):
    """Durations of a loader, in seconds."""

    p25: float | None
    p50: float | None
    p95: float | None
    count: int
    histogram: Durations

    @classmethod
    def of(cls, durations: DurationHistogram) -> "LoaderWaits | None":
        """Return the quantiles of durations; None where there are none."""
        if not durations.total:
            return None
        p25, p50, p95 = durations.quantiles((0.25, 0.5, 0.95))
        return cls(p25 / 1e6, p50 / 1e6, p95 / 1e6, durations.total, Durations.of(durations))


class LoaderDetails(Details, frozen=True, kw_only=True):
    """A node; what was not seen of it is None."""

    cores: int
    dataloaders: float | None = None
    training_processes: int | None = None
    seconds: int | None = None
    training_processes_not_judged: int | None = None
    num_workers: int | None = None
    pin_memory: bool | None = None
    prefetch: bool | None = None
    dataloading_time: LoaderWaits | None = None
    worker_time: LoaderWaits | None = None
    tensorflow_time: LoaderWaits | None = None
    fetch_time: LoaderWaits | None = None


def details_of(state: LoaderState, cores: int) -> LoaderDetails:
    processes = state.alive
    declared = [process.declared for process in processes if process.declared != UNKNOWN]
    pinned = [process.pinned for process in processes if process.pinned != UNKNOWN]
    return LoaderDetails(
        cores=cores,
        dataloaders=sum(process.median for process in processes) if processes else None,
        training_processes=len(processes) or None,
        seconds=max((process.seconds for process in processes), default=None),
        training_processes_not_judged=state.refused if processes else None,
        num_workers=max(declared, default=None),
        pin_memory=all(pinned) if pinned else None,
        prefetch=state.prefetch,
        dataloading_time=LoaderWaits.of(state.iterator_us),
        worker_time=LoaderWaits.of(state.worker_us),
        tensorflow_time=LoaderWaits.of(state.tensorflow_us),
        fetch_time=LoaderWaits.of(state.fetch_us),
    )


# Processes that wait for batches in so much of their loop, while GPUs idle for as much of it, have a slow loader.
WAITING_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class LoaderWaiting:
    """The loop of a node's training processes from ``start`` to ``end``, epoch seconds, or its newest part.

    ``waited`` is the share, 0 to 1, in which they waited for batches, None where their fetches are not their own;
    ``used`` the mean utilization of used GPUs, percent, None without samples; ``part`` the loop's share of the paid
    time.
    """

    start: float
    end: float
    waited: float | None
    used: float | None = None
    sampled_from: float | None = None
    sampled_to: float | None = None
    part: float = 1.0

    @property
    def undone(self) -> float | None:
        """Share, 0 to 1, of the loop that the used GPUs left undone."""
        return None if self.used is None else 1.0 - self.used / 100.0

    @property
    def share(self) -> float | None:
        """What waiting took of the paid time at most: it is no more than what the GPUs left undone."""
        if self.waited is None:
            return self.undone
        return min(self.waited, 1.0 if self.undone is None else self.undone) * self.part

    @property
    def is_alarming(self) -> bool:
        return self.share is None or self.share >= ALARMING_WASTE

    @property
    def is_starved(self) -> bool:
        """Whether the loader is known to be slow: waits in a good part of the loop, and GPUs that idle for as much."""
        known = self.waited is not None and self.undone is not None
        return known and self.is_alarming and min(self.waited or 0.0, self.undone or 0.0) >= WAITING_SHARE


@dataclass(frozen=True, slots=True)
class LoopWaits:
    """Of a node: the whole loop, and the newest 30 to 40 minutes of it; None where less is known than 15 minutes."""

    whole: LoaderWaiting
    recent: LoaderWaiting | None

    @property
    def costliest(self) -> LoaderWaiting:
        """The one in which waiting took the larger share; the whole loop where both are alike."""
        if self.recent is None or self.recent.share is None:
            return self.whole
        return self.recent if self.recent.share > (self.whole.share or 0.0) else self.whole

    @property
    def is_alarming(self) -> bool:
        return self.whole.is_alarming or (self.recent is not None and self.recent.is_alarming)

    @property
    def starved(self) -> LoaderWaiting | None:
        """The loop in which the loader is known to be slow: the whole one first."""
        return next((each for each in (self.whole, self.recent) if each is not None and each.is_starved), None)


def waits_of(load: Load, facts: NodeFacts, elapsed_s: float) -> LoopWaits:
    """Return what is known of a node; ``elapsed_s`` seconds were paid for."""
    processes = load.processes
    waited_s = sum(process.waited_us for process in processes) / 1e6 / len(processes)
    starts = [process.first_us for process in processes if process.first_us is not None]
    start, end = min(starts, default=0) / 1e6, max(process.last_us for process in processes) / 1e6
    length_s = max(end - start, 1e-6)
    part = min(length_s / elapsed_s, 1.0) if elapsed_s else 1.0
    waited = min(waited_s / length_s, 1.0) if waited_s and elapsed_s else None
    whole = _with_use(LoaderWaiting(start, end, waited, part=part), facts)
    late = [process for process in processes if process.recent_wait is not None]
    if not late:
        return LoopWaits(whole, None)
    since = min(max(min(process.waits) * BLOCK_US, process.first_us or 0) for process in late) / 1e6
    share = sum(process.recent_wait or 0.0 for process in late) / len(late)
    return LoopWaits(whole, _with_use(LoaderWaiting(since, end, share), facts))


def between_steps(loops: Sequence[ProcessLoop], facts: NodeFacts, elapsed_s: float) -> LoaderWaiting | None:
    """Return the loop of processes that tell nothing of their loaders: no step runs in ``waited`` of it, 0 to 1."""
    known = [loop for loop in loops if loop.wall_us]
    if not known or not elapsed_s:
        return None
    start, end = min(loop.first_us or 0 for loop in known) / 1e6, max(loop.last_us for loop in known) / 1e6
    waited = sum(loop.others_us for loop in known) / sum(loop.wall_us for loop in known)
    return _with_use(LoaderWaiting(start, end, waited, part=min((end - start) / elapsed_s, 1.0)), facts)


def _with_use(waiting: LoaderWaiting, facts: NodeFacts) -> LoaderWaiting:
    use = facts.used_between(waiting.start, waiting.end)
    if use is None or facts.system is None:
        return waiting
    means = sampled(use.means[facts.system.ever_active[: use.means.size]])
    if not means.size:
        return waiting
    return replace(waiting, used=float(means.mean()), sampled_from=use.start, sampled_to=use.end)
