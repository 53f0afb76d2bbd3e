"""What is said of data loader processes: sentences, advice, and the report's details."""

import math
from dataclasses import dataclass

import msgspec
import numpy as np

from trainguard.records import Status
from trainguard.rules.details import Details, Durations
from trainguard.rules.loader_series import LoaderState, LoadingProcess
from trainguard.rules.paid_time import ALARMING_WASTE
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import counted, show_number, show_percent
from trainguard.state.histogram import DurationHistogram
from trainguard.telemetry.events import UNKNOWN

BUSY_PERCENT = 70.0
"""GPUs that are as busy hardly wait for data."""


@dataclass(frozen=True, slots=True)
class Load:
    """Loader processes of one node; ``limits`` and ``percent`` are percent of its cores."""

    node: str
    cores: int
    state: LoaderState
    limits: tuple[float, float]

    @property
    def processes(self) -> list[LoadingProcess]:
        """Training processes that load data as of late."""
        return self.state.alive

    @property
    def loaders(self) -> float:
        """Loader processes of all of them: each one's median."""
        return sum(process.median for process in self.processes)

    @property
    def percent(self) -> float:
        """The same in percent of the cores."""
        return 100.0 * self.loaders / self.cores

    @property
    def seconds(self) -> int:
        """Seconds with loader events."""
        return max(process.seconds for process in self.processes)

    @property
    def too_few(self) -> bool:
        """Whether they are too few."""
        return self.percent < self.limits[0]

    @property
    def too_many(self) -> bool:
        """Whether they are too many."""
        return self.percent > self.limits[1]

    @property
    def badness(self) -> float:
        """How far outside of the limits the node is: above 1 when it fires."""
        below = self.limits[0] / self.percent if self.percent else math.inf
        return max(below, self.percent / self.limits[1])


@dataclass(frozen=True, slots=True)
class Waste:
    """What loading costs a node, as shares, 0 to 1, of its time; None where it is not known.

    ``waited`` is how long its training processes waited for batches on average, ``undone`` what its used GPUs left
    undone: loading cannot have cost more than the smaller of both.
    """

    waited: float | None
    undone: float | None

    @property
    def share(self) -> float | None:
        """What loading cost at most."""
        return min((each for each in (self.waited, self.undone) if each is not None), default=None)

    @property
    def is_alarming(self) -> bool:
        """Whether it is enough to wake somebody; what nobody can say is."""
        return self.share is None or self.share >= ALARMING_WASTE


class Waits(msgspec.Struct, frozen=True):
    """Durations of a loader, in seconds."""

    p25: float | None
    p50: float | None
    p95: float | None
    count: int
    histogram: Durations

    @classmethod
    def of(cls, durations: DurationHistogram) -> "Waits | None":
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
    dataloading_time: Waits | None = None
    worker_time: Waits | None = None
    tensorflow_time: Waits | None = None
    fetch_time: Waits | None = None


def details_of(state: LoaderState, cores: int) -> LoaderDetails:
    """Return the numbers of one node."""
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
        dataloading_time=Waits.of(state.iterator_us),
        worker_time=Waits.of(state.worker_us),
        tensorflow_time=Waits.of(state.tensorflow_us),
        fetch_time=Waits.of(state.fetch_us),
    )


def sentence_of(load: Load) -> str:
    """Say how many loader processes a node has, against the limits."""
    (fewest, largest), processes = load.limits, load.processes
    least = f"min_threshold {show_percent(fewest)}"
    most = f"max_threshold {show_percent(largest)}"
    limit = least if load.too_few else most if load.too_many else f"{least}, {most}"
    of = f"of {len(processes)} training processes " if len(processes) > 1 else ""
    return (
        f"{load.node} has {show_number(load.loaders)} loader process{'' if load.loaders == 1 else 'es'} {of}for "
        f"{counted(load.cores, 'core')}: {show_percent(load.percent)} ({limit})."
    )


def too_little(waste: Waste) -> str:
    """Say what it costs that is too little to fire."""
    said = []
    if waste.waited is not None:
        said.append(f"the training processes waited {show_percent(100.0 * waste.waited)} of the time for batches")
    if waste.undone is not None:
        said.append(f"the used GPUs left {show_percent(100.0 * waste.undone)} of the time undone")
    least = show_percent(100.0 * ALARMING_WASTE)
    return f" It costs little: {' and '.join(said)}, and it fires from {least} of the time on."


def advice_on(load: Load, system: NodeView | None) -> str:
    """Say how many workers to set up; ``system`` tells whether the GPUs would gain by it."""
    processes = load.processes
    target = max(load.cores // len(processes), 1)
    declared = sorted({process.declared for process in processes} - {UNKNOWN})
    if any(number >= target if load.too_few else number <= target for number in declared):
        declared = []  # what was set up is not what was seen
    now = f" from {'/'.join(map(str, declared[:4]))}" if declared else ""
    each = f" in each of the {len(processes)} training processes" if len(processes) > 1 else ""
    verb = "Raise" if load.too_few else "Lower"
    advice = f"{verb} num_workers{now} to about {target}{each}, one loader process a core of {load.cores}"
    if any(process.pinned == 0 for process in processes):
        advice += "; set pin_memory=True, which is off"
    if load.state.prefetch is False:
        advice += "; end the tf.data pipeline with prefetch(tf.data.AUTOTUNE)"
    busy = None if system is None else gpu_use(system)
    if busy is not None and busy >= BUSY_PERCENT:
        advice += f"; the used GPUs of {load.node} are {show_percent(busy)} busy on average all the same, so expect "
        advice += "little of it"
    return f"{advice}."


def gpu_use(view: NodeView) -> float | None:
    """Return the mean utilization of a node's ever-active GPUs over the kept points, percent; None without any."""
    counts = view.gpu_histogram[view.ever_active].sum(axis=0)
    points = int(counts.sum())
    return float(counts @ np.arange(counts.size)) / points if points else None


def clause_of(result: RuleResult, _: int) -> str:
    """Say what was found on a job."""
    if result.status is not Status.FIRED or result.measured is None or result.threshold is None:
        return "the number of data loader processes did not fit the cores"
    number = "few" if result.measured < result.threshold else "many"
    return f"there were too {number} data loader processes for the cores"
