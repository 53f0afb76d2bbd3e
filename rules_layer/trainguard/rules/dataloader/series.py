"""State of a node's data loaders: processes second by second, and times.

Events are written in the order of their ends, so a second is complete once its process has an event in a later one.
"""

from collections import Counter
from itertools import pairwise

import msgspec
import numpy as np

from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import UNKNOWN, EventTable
from trainguard.formats.profile.snapshots import IntArray
from trainguard.rules.framework_events import ProcessLoop, admitted
from trainguard.state.histogram import DurationHistogram

ITERATOR_PHASE = "DataLoaderIter"
WORKER_PHASE = "DataLoaderWorker"
# Is in the name of an event that is a worker's loading of one batch; others of the phase are a worker's lifetime.
FETCH = "Fetch"

TENSORFLOW_PHASES = ("DataIterator", "Dataset")
MAX_LOADERS = 1_024
MAX_COUNTS = 64
MAX_BINS = 256
# A training process without a loader event for so long, while its neighbours have some, is over.
ALIVE_S = 600

BLOCK_US, BLOCKS = 600_000_000, 4
LEAST_RECENT_US = 900_000_000
SECOND_US = 1_000_000
NUMBER_BITS = 31


class LoadingProcess(msgspec.Struct, array_like=True):
    """One training process.

    ``declared`` is its newest loader's number of workers, ``pinned`` 1 or 0; both -1 where unknown. ``numbers`` counts
    closed seconds by their number of loaders; ``second`` is the open one (epoch). ``waited_us`` is the process's own
    time in fetches from ``first_us`` to ``last_us``; ``waits`` the same by blocks of ten minutes since the epoch.
    """

    process: str
    main_pid: int = UNKNOWN
    declared: int = UNKNOWN
    pinned: int = UNKNOWN
    numbers: dict[int, int] = msgspec.field(default_factory=dict)
    second: int = UNKNOWN
    loaders: int = 0
    waited_us: int = 0
    first_us: int | None = None
    last_us: int = 0
    waits: dict[int, int] = msgspec.field(default_factory=dict)

    def wait(self, ends_us: IntArray, durations_us: IntArray) -> None:
        self.waited_us += int(durations_us.sum())
        blocks = ends_us // BLOCK_US
        for block in np.unique(blocks).tolist():
            self.waits[block] = self.waits.get(block, 0) + int(durations_us[blocks == block].sum())
        newest = max(self.waits)
        self.waits = {block: waited for block, waited in sorted(self.waits.items()) if block > newest - BLOCKS}

    @property
    def recent_wait(self) -> float | None:
        """Share, 0 to 1, of the newest 30 to 40 minutes that it waited; None where less than 15 minutes are known."""
        if not self.waits or self.first_us is None:
            return None
        begin = max(min(self.waits) * BLOCK_US, self.first_us)
        span_us = self.last_us - begin
        return min(sum(self.waits.values()) / span_us, 1.0) if span_us >= LEAST_RECENT_US else None

    @property
    def counts(self) -> dict[int, int]:
        """Seconds by number of loaders, the open one included: the process must have loaded something."""
        return {**self.numbers, self.loaders: self.numbers.get(self.loaders, 0) + 1}

    @property
    def seconds(self) -> int:
        return sum(self.counts.values())

    @property
    def median(self) -> float:
        numbers = sorted(self.counts.items())
        values = np.array([number for number, _ in numbers], dtype=np.float64)
        reached = np.cumsum([seconds for _, seconds in numbers])
        middle = (int(reached[-1]) - 1) / 2.0
        ranks = [int(np.floor(middle)), int(np.ceil(middle))]
        return float(values[np.searchsorted(reached, ranks, side="right")].mean())

    def close_second(self) -> None:
        if self.second != UNKNOWN:
            self.numbers[self.loaders] = self.numbers.get(self.loaders, 0) + 1
            while len(self.numbers) > MAX_COUNTS:
                self._join_nearest()
            self.numbers = dict(sorted(self.numbers.items()))

    def _join_nearest(self) -> None:
        ordered = sorted(self.numbers)
        _, lower, upper = min((after - before, before, after) for before, after in pairwise(ordered))
        rarer, kept = (lower, upper) if self.numbers[lower] < self.numbers[upper] else (upper, lower)
        self.numbers[kept] += self.numbers.pop(rarer)


class LoaderState(msgspec.Struct, array_like=True):
    """Training processes in the order in which they appeared, and durations by kind.

    ``prefetch`` is None before a TensorFlow pipeline has an event. ``worker_us`` are lifetimes of workers, ``fetch_us``
    what their batches took to load, the newest of which ended at ``fetched_us``.
    """

    processes: list[LoadingProcess] = msgspec.field(default_factory=list)
    refused: int = 0
    iterator_us: DurationHistogram = msgspec.field(default_factory=DurationHistogram)
    worker_us: DurationHistogram = msgspec.field(default_factory=DurationHistogram)
    tensorflow_us: DurationHistogram = msgspec.field(default_factory=DurationHistogram)
    prefetch: bool | None = None
    fetch_us: DurationHistogram = msgspec.field(default_factory=DurationHistogram)
    loops: list[ProcessLoop] = msgspec.field(default_factory=list)
    fetched_us: int = 0

    @property
    def alive(self) -> list[LoadingProcess]:
        newest = max((process.second for process in self.processes), default=UNKNOWN)
        return [each for each in self.processes if each.second != UNKNOWN and each.second > newest - ALIVE_S]

    def fold(self, events: FrameworkEvents) -> None:
        table = events.table
        loop = admitted(self.loops, events.steps[0].process, ProcessLoop) if events.steps else None
        if loop is not None:
            loop.fold(events.steps)
        iterators, workers = table.rows_in([ITERATOR_PHASE]), table.rows_in([WORKER_PHASE])
        _count(self.iterator_us, table.durations_us[iterators])
        fetches = table.rows_named(workers, FETCH)
        _count(self.worker_us, table.durations_us[workers[~fetches]])
        _count(self.fetch_us, table.durations_us[workers[fetches]])
        self.fetched_us = max(self.fetched_us, int(table.ends_us[workers[fetches]].max(initial=0)))
        rows = table.rows_in(TENSORFLOW_PHASES)
        if rows.size:
            _count(self.tensorflow_us, table.durations_us[rows[table.rows_named(rows, "GetNext")]])
            self.prefetch = bool(self.prefetch) or bool(table.rows_named(rows, "Prefetch").any())
        if iterators.size or events.loaders:
            process = admitted(self.processes, table.process, LoadingProcess)
            if process is None:
                self.refused += 1
                return
            for loader in events.loaders:
                process.main_pid = loader.pid if loader.pid != UNKNOWN else process.main_pid
                process.declared = UNKNOWN if loader.num_workers is None else min(loader.num_workers, MAX_LOADERS)
                process.pinned = UNKNOWN if loader.pin_memory is None else int(loader.pin_memory)
            if iterators.size:
                _fold_seconds(process, table, iterators, workers)


def _count(durations: DurationHistogram, durations_us: IntArray) -> None:
    if durations_us.size:
        durations.add(durations_us)
        durations.limit(MAX_BINS)


def _fold_seconds(process: LoadingProcess, table: EventTable, iterators: IntArray, workers: IntArray) -> None:
    """Count the loaders of each second: processes that are not the training process, or else the workers it names.

    A loader set up with some workers has them all alive while it is read, however few of them served in a second.
    """
    steps = np.flatnonzero(np.isin(table.phase_index, [i for i, name in enumerate(table.phases) if "Step" in name]))
    pids = table.workers[steps]
    pids = pids[pids != UNKNOWN]
    if process.main_pid == UNKNOWN and pids.size:
        process.main_pid = int(pids[0])
    mains = {process.main_pid, *pids.tolist()}
    digits = table.process.rpartition("-")[2]
    if mains == {UNKNOWN} and digits.isdecimal():
        mains = {int(digits)}
    rows = np.concatenate((iterators, workers))
    ended = table.ends_us[rows] // SECOND_US
    is_loader = ~np.isin(table.workers[rows], [*mains, UNKNOWN])
    by_pid = _distinct(ended[is_loader], table.workers[rows][is_loader])
    named = ~is_loader & (table.worker_ids[rows] != UNKNOWN) & (np.arange(rows.size) < iterators.size)
    by_number = _distinct(ended[named], table.worker_ids[rows][named])
    least = max(process.declared, 0)
    for second in sorted(set(ended.tolist())):
        if second < process.second:
            continue
        loaders = min(max(by_pid.get(second, 0), by_number.get(second, 0), least), MAX_LOADERS)
        if second > process.second:
            process.close_second()
            process.second, process.loaders = second, loaders
        else:
            process.loaders = max(process.loaders, loaders)
    own = iterators[np.isin(table.workers[iterators], [*mains, UNKNOWN])]
    if own.size:
        process.wait(table.ends_us[own], table.durations_us[own])
    first = int(table.starts_us[rows].min())
    process.first_us = first if process.first_us is None else min(first, process.first_us)
    process.last_us = max(int(table.ends_us[rows].max()), process.last_us)


def _distinct(seconds: IntArray, numbers: IntArray) -> dict[int, int]:
    """Return how many distinct ``numbers`` (int64[N], 0 to 2^31 - 1) each of ``seconds`` (int64[N]) has."""
    pairs = set((seconds << NUMBER_BITS | numbers).tolist())
    return Counter(pair >> NUMBER_BITS for pair in pairs)
