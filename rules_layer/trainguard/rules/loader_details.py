"""A node's data loader processes against its cores, and the report's details of them."""

import math
from dataclasses import dataclass

import msgspec

from trainguard.rules.details import Details, Durations
from trainguard.rules.loader_series import LoaderState, LoadingProcess
from trainguard.state.histogram import DurationHistogram
from trainguard.telemetry.events import UNKNOWN


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
