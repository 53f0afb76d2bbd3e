"""Events of one framework object as columns: what the process did, when, and on which thread."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from trainguard.telemetry.nesting import self_times
from trainguard.telemetry.snapshots import BoolArray, IntArray

UNKNOWN = -1


def _nothing() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class EventTable:
    """N events with a beginning and an end, in file order (by their end).

    Attributes
    ----------
    process : str
        ``<node>-<pid or rank>``, for example ``algo-1-905``.
    kind : str
        The key's file kind: ``pythontimeline``, ``model_timeline``, ``horovod_timeline``,
        ``smdataparallel_timeline`` or ``tf_trace``.
    phases, names : tuple of str
        Tables, bounded; what had no place is ``other``.
    phase_index, name_index : int64[N]
        Rows of ``phases`` and ``names``.
    starts_us, durations_us : int64[N]
        Epoch microseconds, and microseconds (>= 0).
    threads : int64[N]
        A number for each thread of a phase, meaningful within the object.
    workers, worker_ids : int64[N]
        Process id that the event names, and the data loader worker's number; -1 where it has none. Filled for steps
        and loader events alone.
    """

    process: str = ""
    kind: str = ""
    phases: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    phase_index: IntArray = field(default_factory=_nothing)
    name_index: IntArray = field(default_factory=_nothing)
    starts_us: IntArray = field(default_factory=_nothing)
    durations_us: IntArray = field(default_factory=_nothing)
    threads: IntArray = field(default_factory=_nothing)
    workers: IntArray = field(default_factory=_nothing)
    worker_ids: IntArray = field(default_factory=_nothing)

    def __len__(self) -> int:
        return int(self.starts_us.size)

    @cached_property
    def ends_us(self) -> IntArray:
        """Ends, epoch microseconds, int64[N]."""
        ends: IntArray = self.starts_us + self.durations_us
        return ends

    @cached_property
    def self_us(self) -> IntArray:
        """Time of each event that none of the events nested in it on its thread has, microseconds, int64[N]."""
        partitions = self.phase_index * (int(self.threads.max(initial=0)) + 1) + self.threads
        return self_times(partitions, self.starts_us, self.durations_us)

    def rows_in(self, phases: Iterable[str]) -> IntArray:
        """Rows whose phase is one of ``phases``, int64[M]."""
        wanted = set(phases)
        chosen = [index for index, phase in enumerate(self.phases) if phase in wanted]
        return np.flatnonzero(np.isin(self.phase_index, chosen)) if chosen else _nothing()

    def rows_named(self, rows: IntArray, word: str) -> BoolArray:
        """Whether the name of each of ``rows`` (int64[M]) has a word in it, bool[M]."""
        return np.array([word in name for name in self.names], dtype=np.bool_)[self.name_index[rows]]


@dataclass(frozen=True, slots=True)
class LoaderSetup:
    """A PyTorch data loader as its process set it up; None where the event does not say."""

    pid: int
    num_workers: int | None
    pin_memory: bool | None
