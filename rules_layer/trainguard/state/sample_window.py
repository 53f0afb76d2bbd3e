"""Kept points of a node: what its rules look back on, without start-up, pauses and the idle tail.

An idle run of three snapshots over 60 s is a pause, unless likely by chance. Start-up lasts until the node has been
active for 60 s, and in three snapshots: the first touch of the GPUs, and the compilation after it, belong to it.
"""

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray, Snapshots
from trainguard.state.codec import PackedColumn, empty_matrix, gpus_of, packed, quantise_column, unpacked
from trainguard.state.gpu_time import (
    ACTIVE_PERCENT,
    MISSING_S,
    MOST_BY_CHANCE,
    PAUSE_SAMPLES,
    IdleRuns,
    RecentUse,
    is_chance,
)

KEPT_IDLE_S = 60.0
HISTOGRAM_BINS = 101
SMALLEST_WINDOW = 20
WORK_S = 60.0
# So long, and in so many snapshots, a node is active until its start-up has ended.
WORK_SAMPLES = 3
# Of work that goes on but is hardly active, the newest points wait.
MAX_WAITING_POINTS = 2_500

REMEMBERED_GAPS = 16
# A shorter time without samples may be a lost object, or a slow sampler.
INTERRUPTED_S = 120.0


class IdleRun(msgspec.Struct):
    """The open idle run: its start, and its points while it can still be kept (G + G + 2 packed columns)."""

    since: float
    points: list[PackedColumn]
    samples: int = PAUSE_SAMPLES


class StartUp(msgspec.Struct):
    """Work seen during start-up: ``active`` snapshots in all, and packed points of the work that goes on ``since``."""

    active: int = 0
    since: float | None = None
    points: list[PackedColumn] = msgspec.field(default_factory=list)


class SampleWindowState(msgspec.Struct, omit_defaults=True):
    """Kept points in the form in which they are stored.

    ``window`` holds the packed columns time (ms since ``first_sample_at``), mean CPU, G utilizations, G memories;
    ``histogram`` G rows of 101 counts, packed as little-endian uint32. ``last_seen_at`` is the last snapshot of GPUs,
    ``observed_since`` the first since they were last missing; ``gaps`` are the newest long times without any samples,
    ``missing_s`` the sum of those without samples of GPUs. ``quantised`` and ``limit`` say how the window was degraded
    to stay under the item's cap.
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
    missing_s: float = 0.0
    quantised: bool = False
    limit: int | None = None
    start_up: StartUp | None = None
    recent_use: RecentUse = msgspec.field(default_factory=RecentUse)
    idle_time: IdleRuns = msgspec.field(default_factory=IdleRuns)

    @property
    def gpus(self) -> int:
        """Of how many GPUs it keeps something; raises ValueError when its parts are of no window."""
        rows, rest = divmod(len(self.histogram), 4 * HISTOGRAM_BINS)
        if rest:
            raise ValueError(f"a histogram of {len(self.histogram)} bytes, expected {HISTOGRAM_BINS} counts a GPU")
        waiting = [each.points for each in (self.idle, self.start_up) if each is not None]
        return max(rows, len(self.ever_active), *(gpus_of(each) for each in (self.window, *waiting)))


class SampleWindow:
    """Works on its state as a matrix: column 0 time (ms), column 1 mean CPU, then utilizations, then memories.

    ``ever_active`` is bool[G]; ``histogram`` counts utilization over all kept points, one bin a percent: int64[G, 101].
    """

    def __init__(self, state: SampleWindowState, gpus: int) -> None:
        self._state = state
        self._gpus = gpus
        self._matrix = unpacked(state.window, gpus)
        self._idle = None if state.idle is None else unpacked(state.idle.points, gpus)
        self.histogram = np.zeros((gpus, HISTOGRAM_BINS), dtype=np.int64)
        stored = np.frombuffer(state.histogram, dtype="<u4").reshape(-1, HISTOGRAM_BINS)
        self.histogram[: stored.shape[0]] = stored
        self.ever_active = np.zeros(gpus, dtype=np.bool_)
        self.ever_active[: len(state.ever_active)] = state.ever_active
        self._capacity: int | None = None
        self._start_up: StartUp | None = None
        if state.first_active_at is None:
            self._start_up = StartUp() if state.start_up is None else state.start_up
        self._waiting = unpacked([] if self._start_up is None else self._start_up.points, gpus)
        self.fresh = 0
        self.restarted = False
        self._added = 0

    def extend(self, snapshots: Snapshots, *, capacity: int, interval_s: float) -> tuple[BoolArray, BoolArray]:
        """Sort completed snapshots into kept and left out; return ``active`` and ``started``, bool[T] each.

        ``capacity`` is how many kept points to hold. Three ``interval_s``, and 60 s, without samples are unobserved
        time.
        """
        state = self._state
        if len(snapshots) and state.first_sample_at is None:
            state.first_sample_at = float(snapshots.times[0])
        busy = snapshots.gpu_utilization >= ACTIVE_PERCENT
        active: BoolArray = np.logical_or.reduce(busy, axis=1)
        seen = np.logical_or.reduce(~np.isnan(snapshots.gpu_utilization), axis=1)
        self.ever_active |= np.logical_or.reduce(busy, axis=0)
        used = np.flatnonzero(seen)
        unobserved = self._unobserved(snapshots.times, used, interval_s)
        self._note_use(snapshots, used, unobserved)
        self.restarted = False
        self._sort(snapshots, active, used, unobserved, capacity, interval_s)
        since = state.first_active_at if self._start_up is None else self._start_up.since
        started: BoolArray = snapshots.times >= (np.inf if since is None else since)
        return active, started

    def _note_use(self, snapshots: Snapshots, used: IntArray, unobserved: IntArray) -> None:
        if unobserved.size:
            self._state.recent_use.forget()
            used = used[used >= unobserved[-1]]
        self._state.recent_use.add(snapshots.times[used], snapshots.gpu_utilization[used])

    def note_gaps(self, times: FloatArray, *, since: float | None, interval_s: float) -> None:
        """Remember the times in which there was no snapshot at all.

        ``times`` is float64[T], epoch seconds; ``since`` is the snapshot before them, None for the node's first.
        """
        at = times if since is None else np.concatenate([[since], times])
        if not self._gpus:
            self._count_missing(at, interval_s)
        missing = np.flatnonzero(np.diff(at) >= max(INTERRUPTED_S, 3.0 * interval_s))
        gaps = [(float(at[index]), float(at[index + 1])) for index in missing]
        self._state.gaps = [*self._state.gaps, *gaps][-REMEMBERED_GAPS:]

    def _count_missing(self, times: FloatArray, interval_s: float) -> None:
        distances = np.diff(times)
        lacking = distances[distances > max(MISSING_S, 3.0 * interval_s)]
        self._state.missing_s = round(self._state.missing_s + float((lacking - interval_s).sum()), 3)

    def _unobserved(self, times: FloatArray, seen: IntArray, interval_s: float) -> IntArray:
        """Return the snapshots before which samples of GPUs were missing, the node's first one included."""
        if seen.size == 0:
            return seen
        last = -np.inf if self._state.last_seen_at is None else self._state.last_seen_at
        at = np.concatenate([[last], times[seen]])
        self._count_missing(at[np.isfinite(at)], interval_s)
        missing = np.flatnonzero(np.diff(at) > max(KEPT_IDLE_S, 3.0 * interval_s))
        after_gaps: IntArray = seen[missing]
        self._state.last_seen_at = float(times[seen[-1]])
        if after_gaps.size:
            self._state.observed_since = float(times[after_gaps[-1]])
        return after_gaps

    def _sort(
        self,
        snapshots: Snapshots,
        active: BoolArray,
        used: IntArray,
        unobserved: IntArray,
        capacity: int,
        interval_s: float,
    ) -> None:
        if used.size == 0:
            return
        before = None if self._start_up is None else self._start_up.since
        points = self._points(snapshots)[used]
        added: list[FloatArray] = []
        resumed = np.isin(used, unobserved)
        edges = np.flatnonzero(np.diff(active[used]) | resumed[1:]) + 1
        for run, position in zip(np.split(points, edges), [0, *edges.tolist()], strict=True):
            start, end = float(snapshots.times[used[position]]), float(snapshots.times[used[position + len(run) - 1]])
            if resumed[position]:
                self._state.idle, self._idle = None, None
            if active[used[position]]:
                added.extend(self._work_on([*self._end_idle(start), run], start, len(run), interval_s))
                self._added = sum(len(each) for each in added)
            elif self._start_up is None or self._start_up.since is not None:
                self._idle_on(run, start, end)
        since = self._state.first_active_at if self._start_up is None else self._start_up.since
        self.restarted = before is not None and since != before
        self._keep(added, capacity)

    def _work_on(self, points: list[FloatArray], start: float, active: int, interval_s: float) -> list[FloatArray]:
        """Return the points that are kept: none during start-up, and at its end those that have waited."""
        start_up = self._start_up
        if start_up is None:
            return points
        if start_up.since is None:
            start_up.since = start
        start_up.active += active
        most = MAX_WAITING_POINTS if self._state.limit is None else self._state.limit
        self._waiting = np.concatenate([self._waiting, *points])[-most:]
        if start_up.active < WORK_SAMPLES or start_up.active * interval_s < WORK_S:
            return []
        return [self._started(start_up)]

    def _started(self, start_up: StartUp) -> FloatArray:
        self._state.idle_time.samples += self._idle_waiting()
        waited, self._waiting = self._waiting, empty_matrix(self._gpus)
        self._state.first_active_at, self._start_up = start_up.since, None
        return waited

    def _idle_waiting(self) -> int:
        active = np.logical_or.reduce(self._waiting[:, 2 : 2 + self._gpus] >= ACTIVE_PERCENT, axis=1)
        return int(np.count_nonzero(~active))

    def settle(self) -> None:
        """Take the work that goes on at the stream's end for work, however short it is."""
        if self._start_up is not None and self._start_up.since is not None:
            capacity = 0 if self._capacity is None else self._capacity
            self._keep([self._started(self._start_up)], capacity)

    def _idle_on(self, run: FloatArray, start: float, end: float) -> None:
        if self._state.idle is None:
            self._state.idle = IdleRun(start, [], 0)
            self._idle = empty_matrix(self._gpus)
        self._state.idle.samples += len(run)
        if _is_long(self._state.idle, end) and not self._is_chance(self._state.idle):
            self._pause()
        elif self._idle is not None:
            self._idle = np.concatenate([self._idle, run])

    def _is_chance(self, idle: IdleRun) -> bool:
        if not PAUSE_SAMPLES <= idle.samples <= MOST_BY_CHANCE:
            return False
        if self._start_up is not None:
            return is_chance(idle.samples, self._idle_waiting(), len(self._waiting))
        return is_chance(idle.samples, self._state.idle_time.kept, self._state.kept_total + self._added)

    def _pause(self) -> None:
        """Forget the points of an idle run that is a pause; before the end of start-up the work before it as well."""
        self._idle = None
        if self._start_up is not None:
            self._state.idle, self._waiting = None, empty_matrix(self._gpus)
            self._start_up.since = None

    def _end_idle(self, now: float) -> list[FloatArray]:
        idle, points = self._state.idle, self._idle
        if idle is None:
            return []
        chance, long = self._is_chance(idle), _is_long(idle, now)
        pause = long and not chance
        if pause:
            self._pause()
        if self._start_up is None:
            self._state.idle_time.add(idle.since, now - idle.since, idle.samples, long=long, chance=chance)
        self._state.idle, self._idle = None, None
        return [] if pause or points is None else [points]

    def _keep(self, added: list[FloatArray], capacity: int) -> None:
        fresh = np.concatenate([empty_matrix(self._gpus), *added])
        self._state.kept_total += len(fresh)
        self._added = 0
        for gpu in range(self._gpus):
            values = fresh[:, 2 + gpu]
            bins = values[~np.isnan(values)].astype(np.int64)
            self.histogram[gpu] += np.bincount(bins, minlength=HISTOGRAM_BINS)
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
        """Hold whole percents, then half as many points; return the degradation's name, None at the smallest."""
        state = self._state
        if not state.quantised:
            state.quantised = True
            self._matrix[:, 1:] = quantise_column(self._matrix[:, 1:])
            self._waiting[:, 1:] = quantise_column(self._waiting[:, 1:])
            if self._idle is not None:
                self._idle[:, 1:] = quantise_column(self._idle[:, 1:])
            return "degraded_to_whole_percents"
        held = max(len(self._matrix), len(self._waiting))
        if held <= SMALLEST_WINDOW:
            return None
        state.limit = held // 2
        self._matrix = self._matrix[-state.limit :]
        self._waiting = self._waiting[-state.limit :]
        return "degraded_to_half_the_window"

    def store(self) -> None:
        """Write the matrix back into the state."""
        self.trim()
        state = self._state
        state.ever_active = self.ever_active.tolist()
        state.window = packed(self._matrix)
        state.histogram = self.histogram.astype("<u4").tobytes()
        if state.idle is not None:
            state.idle.points = [] if self._idle is None else packed(self._idle)
        state.start_up = self._start_up
        if state.start_up is not None:
            state.start_up.points = packed(self._waiting)

    @property
    def working_since(self) -> float | None:
        """Start of the work that may be the end of start-up, epoch seconds; None while there is none, or after it."""
        return None if self._start_up is None else self._start_up.since

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


def _is_long(idle: IdleRun, now: float) -> bool:
    return idle.samples >= PAUSE_SAMPLES and now - idle.since > KEPT_IDLE_S
