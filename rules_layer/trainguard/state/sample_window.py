"""Kept points of a node: what its rules look back on, without start-up, pauses and the idle tail.

A GPU is active at 10 % or more, a node when some GPU is. Before the node's first active snapshot is start-up. An idle
run of at most 60 s is kept once an active snapshot has ended it; a longer one is a pause (evaluation, checkpoint,
upload) and is left out; one that is unfinished at the job's end is the tail, and never kept. Time of which there are no
samples (a node that was interrupted and came back) is no idle time: an idle run does not go on across it.
"""

import msgspec
import numpy as np

from trainguard.state.codec import PackedColumn, pack_column, quantise_column, unpack_column, unpack_columns
from trainguard.telemetry.snapshots import BoolArray, FloatArray, IntArray, Snapshots

ACTIVE_PERCENT = 10.0
KEPT_IDLE_S = 60.0
HISTOGRAM_BINS = 101
SMALLEST_WINDOW = 20
REMEMBERED_GAPS = 16

INTERRUPTED_S = 120.0
"""A shorter time without samples may be a lost object, or a slow sampler."""


class IdleRun(msgspec.Struct):
    """The idle run that is open: its start, and its points while it can still be kept (G + G + 2 packed columns)."""

    since: float
    points: list[PackedColumn]


class SampleWindowState(msgspec.Struct):
    """Kept points in the form in which they are stored.

    ``window`` holds the packed columns time (ms since ``first_sample_at``), mean CPU, G utilizations, G memories of
    the newest points; ``histogram`` G rows of 101 counts, packed as little-endian uint32. ``last_seen_at`` is the last
    snapshot of GPUs, ``observed_since`` the first one since they were last missing; ``gaps`` are the newest long times
    without samples of any kind. ``quantised`` and ``limit`` say how the window was degraded to stay under the item's
    cap.
    """

    first_sample_at: float | None = None
    first_active_at: float | None = None
    observed_since: float | None = None
    last_seen_at: float | None = None
    kept_total: int = 0
    ever_active: list[bool] = msgspec.field(default_factory=list)
    window: list[PackedColumn] = msgspec.field(default_factory=list)
    histogram: bytes = b""
    idle: IdleRun | None = None
    gaps: list[tuple[float, float]] = msgspec.field(default_factory=list)
    quantised: bool = False
    limit: int | None = None


class SampleWindow:
    """Works on its state as a matrix: column 0 time (ms), column 1 mean CPU, then utilizations, then memories."""

    def __init__(self, state: SampleWindowState, gpus: int) -> None:
        self._state = state
        self._gpus = gpus
        self._matrix = _unpacked(state.window, gpus)
        self._idle = None if state.idle is None else _unpacked(state.idle.points, gpus)
        self._histogram = np.zeros((gpus, HISTOGRAM_BINS), dtype=np.int64)
        stored = np.frombuffer(state.histogram, dtype="<u4").reshape(-1, HISTOGRAM_BINS)
        self._histogram[: stored.shape[0]] = stored
        self._ever_active = np.zeros(gpus, dtype=np.bool_)
        self._ever_active[: len(state.ever_active)] = state.ever_active
        self._capacity: int | None = None
        self.fresh = 0

    def extend(
        self, snapshots: Snapshots, *, capacity: int, longest_s: float = KEPT_IDLE_S
    ) -> tuple[BoolArray, BoolArray]:
        """Sort completed snapshots into kept and left out.

        Parameters
        ----------
        snapshots : Snapshots
            With as many GPUs as this object.
        capacity : int
            How many of the newest kept points to hold.
        longest_s : float
            Longer distances of two snapshots are time that nobody observed.

        Returns
        -------
        active, started : bool[T]
            Whether some GPU was active, and whether the snapshot is at or after the first active one.
        """
        state = self._state
        if len(snapshots) and state.first_sample_at is None:
            state.first_sample_at = float(snapshots.times[0])
        busy = snapshots.gpu_utilization >= ACTIVE_PERCENT
        active: BoolArray = np.logical_or.reduce(busy, axis=1)
        seen = np.logical_or.reduce(~np.isnan(snapshots.gpu_utilization), axis=1)
        self._ever_active |= np.logical_or.reduce(busy, axis=0)
        if active.any() and state.first_active_at is None:
            state.first_active_at = float(snapshots.times[int(np.argmax(active))])
        first = state.first_active_at
        started: BoolArray = snapshots.times >= (np.inf if first is None else first)
        unobserved = self._unobserved(snapshots.times, np.flatnonzero(seen), longest_s)
        self._sort(snapshots, active, np.flatnonzero(seen & started), unobserved, capacity)
        return active, started

    def note_gaps(self, times: FloatArray, *, since: float | None, interval_s: float) -> None:
        """Remember the times in which there was no snapshot at all.

        Parameters
        ----------
        times : float64[T]
            Of the completed snapshots, epoch seconds.
        since : float or None
            The last snapshot before them; None when they are the node's first.
        interval_s : float
            Distance of snapshots when none is missing.
        """
        at = times if since is None else np.concatenate([[since], times])
        missing = np.flatnonzero(np.diff(at) >= max(INTERRUPTED_S, 3.0 * interval_s))
        gaps = [(float(at[index]), float(at[index + 1])) for index in missing]
        self._state.gaps = [*self._state.gaps, *gaps][-REMEMBERED_GAPS:]

    def _unobserved(self, times: FloatArray, seen: IntArray, longest_s: float) -> IntArray:
        """Return the snapshots before which samples of GPUs were missing, the node's first one included."""
        if seen.size == 0:
            return seen
        last = -np.inf if self._state.last_seen_at is None else self._state.last_seen_at
        at = np.concatenate([[last], times[seen]])
        missing = np.flatnonzero(np.diff(at) > longest_s)
        after_gaps: IntArray = seen[missing]
        self._state.last_seen_at = float(times[seen[-1]])
        if after_gaps.size:
            self._state.observed_since = float(times[after_gaps[-1]])
        return after_gaps

    def _sort(
        self, snapshots: Snapshots, active: BoolArray, used: IntArray, unobserved: IntArray, capacity: int
    ) -> None:
        if used.size == 0:
            return
        points = self._points(snapshots)[used]
        added: list[FloatArray] = []
        resumed = np.isin(used, unobserved)
        edges = np.flatnonzero(np.diff(active[used]) | resumed[1:]) + 1
        for run, position in zip(np.split(points, edges), [0, *edges.tolist()], strict=True):
            start, end = float(snapshots.times[used[position]]), float(snapshots.times[used[position + len(run) - 1]])
            if resumed[position]:
                self._state.idle, self._idle = None, None
            if active[used[position]]:
                added.extend(self._end_idle(start))
                added.append(run)
            else:
                self._idle_on(run, start, end)
        self._keep(added, capacity)

    def _idle_on(self, run: FloatArray, start: float, end: float) -> None:
        if self._state.idle is None:
            self._state.idle = IdleRun(start, [])
            self._idle = _empty(self._gpus)
        if end - self._state.idle.since > KEPT_IDLE_S:
            self._idle = None
        elif self._idle is not None:
            self._idle = np.concatenate([self._idle, run])

    def _end_idle(self, now: float) -> list[FloatArray]:
        idle, points = self._state.idle, self._idle
        self._state.idle, self._idle = None, None
        if idle is None or points is None or now - idle.since > KEPT_IDLE_S:
            return []
        return [points]

    def _keep(self, added: list[FloatArray], capacity: int) -> None:
        fresh = np.concatenate([_empty(self._gpus), *added])
        self._state.kept_total += len(fresh)
        for gpu in range(self._gpus):
            values = fresh[:, 2 + gpu]
            bins = values[~np.isnan(values)].astype(np.int64)
            self._histogram[gpu] += np.bincount(bins, minlength=HISTOGRAM_BINS)
        if self._state.quantised:
            fresh[:, 1:] = quantise_column(fresh[:, 1:])
        self._matrix = np.concatenate([self._matrix, fresh])
        self._capacity, self.fresh = capacity, len(fresh)

    def trim(self) -> None:
        """Drop what lies beyond the capacity, once the rules have seen the points that were added."""
        if self._capacity is not None:
            limit = self._state.limit
            held = self._capacity if limit is None else min(self._capacity, limit)
            self._matrix = self._matrix[max(len(self._matrix) - held, 0) :]
        self._capacity, self.fresh = None, 0

    def _points(self, snapshots: Snapshots) -> FloatArray:
        origin = self._state.first_sample_at or 0.0
        milliseconds = np.rint((snapshots.times - origin) * 1_000.0)
        return np.column_stack([milliseconds, snapshots.cpu_mean, snapshots.gpu_utilization, snapshots.gpu_memory])

    def degrade(self) -> str | None:
        """Make the state smaller: first hold whole percents, then half as many points.

        Returns the name under which the degradation is counted, or None when the window is at its smallest.
        """
        state = self._state
        if not state.quantised:
            state.quantised = True
            self._matrix[:, 1:] = quantise_column(self._matrix[:, 1:])
            if self._idle is not None:
                self._idle[:, 1:] = quantise_column(self._idle[:, 1:])
            return "degraded_to_whole_percents"
        if len(self._matrix) <= SMALLEST_WINDOW:
            return None
        state.limit = len(self._matrix) // 2
        self._matrix = self._matrix[-state.limit :]
        return "degraded_to_half_the_window"

    def store(self) -> None:
        """Write the matrix back into the state."""
        self.trim()
        state = self._state
        state.ever_active = self._ever_active.tolist()
        state.window = _packed(self._matrix)
        state.histogram = self._histogram.astype("<u4").tobytes()
        if state.idle is not None:
            state.idle.points = [] if self._idle is None else _packed(self._idle)

    @property
    def times(self) -> FloatArray:
        """Event times, epoch seconds, rounded to milliseconds after the first sample: float64[K]."""
        return (self._state.first_sample_at or 0.0) + self._matrix[:, 0] / 1_000.0

    @property
    def cpu_mean(self) -> FloatArray:
        """Mean CPU utilization: float64[K]."""
        return self._matrix[:, 1]

    @property
    def gpu_utilization(self) -> FloatArray:
        """GPU utilization: float64[K, G]."""
        return self._matrix[:, 2 : 2 + self._gpus]

    @property
    def gpu_memory(self) -> FloatArray:
        """GPU memory-controller activity: float64[K, G]."""
        return self._matrix[:, 2 + self._gpus :]

    @property
    def ever_active(self) -> BoolArray:
        """Whether a GPU was ever active: bool[G]."""
        return self._ever_active

    @property
    def histogram(self) -> IntArray:
        """Counts of utilization over all kept points, one bin a percent: int64[G, 101]."""
        return self._histogram


def _empty(gpus: int) -> FloatArray:
    return np.empty((0, 2 + 2 * gpus))


def _packed(matrix: FloatArray) -> list[PackedColumn]:
    if len(matrix) == 0:
        return []
    steps = np.diff(matrix[:, 0], prepend=0.0)
    return [pack_column(steps), *(pack_column(np.ascontiguousarray(column)) for column in matrix[:, 1:].T)]


def _unpacked(columns: list[PackedColumn], gpus: int) -> FloatArray:
    """Columns to matrix; GPUs that appeared since it was packed are missing in its points."""
    if not columns:
        return _empty(gpus)
    time, cpu = (unpack_column(column) for column in columns[:2])
    devices = unpack_columns(columns[2:], len(time))
    before = len(devices) // 2
    matrix = np.full((time.size, 2 + 2 * gpus), np.nan)
    matrix[:, 0] = np.cumsum(time)
    matrix[:, 1] = cpu
    matrix[:, 2 : 2 + before] = devices[:before].T
    matrix[:, 2 + gpus : 2 + gpus + before] = devices[before:].T
    return matrix
