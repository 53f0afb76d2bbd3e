"""State of the rules on bottlenecks: what is judged for good, and what waits for its end.

One pause is no bottleneck, but a compilation, a download or an evaluation: they count from the third within two hours.
"""

import msgspec
import numpy as np

from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.rules.bottlenecks.counts import Counted, IsSlow, Tally
from trainguard.rules.rule_inputs import NodeMinute, NodeView

PAUSE_S = 60.0
"""A longer idle run is a pause; two sampling intervals where they are longer."""

CLOCK_S = 1e-3
"""Clocks of samplers are that exact: six intervals of 10 s are 60 s, and no longer."""

RECURRENCES, RECUR_MINUTES = 3, 120
UNUSED_S = 600.0
"""A GPU that idles for longer while others work is no longer used, and waits for nothing."""
QUIET_MINUTES = 10
"""A bottleneck that was not seen for longer counts as a new one when it is seen again."""
LAPSED_MINUTES = 3


class Pause(msgspec.Struct, array_like=True):
    """A pause: the epoch minute of its end, and what it counts; nothing once it was counted."""

    ended: int
    tally: Tally


class BottleneckState(msgspec.Struct, array_like=True):
    """What is judged for good, and the open idle run: it counts as soon as the node is active again, else never.

    ``idle_since`` is in epoch seconds; ``pauses`` are the newest two. ``unused`` counts active snapshots in which each
    GPU was idle since it last worked. ``bad_since``, ``bad_through`` and ``checked`` are epoch minutes.
    """

    kept: Tally = msgspec.field(default_factory=Tally)
    open_idle: Tally = msgspec.field(default_factory=Tally)
    idle_since: float | None = None
    pauses: list[Pause] = msgspec.field(default_factory=list)
    unused: dict[str, int] = msgspec.field(default_factory=dict)
    bad_since: int | None = None
    bad_through: int | None = None
    checked: int = 0

    def reset(self) -> None:
        self.kept, self.open_idle, self.idle_since, self.pauses = Tally(), Tally(), None, []
        self.bad_since = self.bad_through = None

    def used(self, view: NodeView) -> tuple[str, ...]:
        """Return the GPUs that work on the node: once active, and not idle for long while others were."""
        return tuple(gpu for gpu in view.used_gpus if self.unused.get(gpu, 0) * view.interval_s < UNUSED_S)

    def note_use(self, minute: NodeMinute, busy: BoolArray) -> None:
        """Take note of which GPUs worked: bool[T, G] of the snapshots' GPUs."""
        for column, gpu in enumerate(minute.snapshots.gpu_names):
            own = np.flatnonzero(busy[:, column])
            since = minute.active if own.size == 0 else minute.active[int(own[-1]) + 1 :]
            idle = int(np.count_nonzero(since)) + (self.unused.get(gpu, 0) if own.size == 0 else 0)
            self.unused[gpu] = idle
            if not idle:
                del self.unused[gpu]

    @property
    def has_lapsed(self) -> bool:
        """Whether no bottleneck was seen of late: what is over does not go on to fire."""
        if self.bad_through is None or not self.kept.minutes:
            return True
        return self.kept.minutes[-1].minute > self.bad_through + LAPSED_MINUTES

    def add(
        self, minute: NodeMinute, counted: Counted, judged: BoolArray, *, is_slow: IsSlow, threshold: float
    ) -> None:
        times, chosen = minute.snapshots.times, judged.copy()
        if not times.size:
            return
        longest_s = max(PAUSE_S, 2.0 * minute.view.interval_s) + CLOCK_S
        active_rows = np.flatnonzero(minute.active)
        rows = np.arange(times.size)
        for begin, end in _inner_runs(active_rows, times, longest_s):
            run = judged & (rows >= begin) & (rows < end)
            chosen &= ~run
            self._end_pause(counted.tally(times, run), float(times[end]), is_slow)
        first, last = (int(active_rows[0]), int(active_rows[-1])) if active_rows.size else (times.size, times.size - 1)
        leading = judged & (rows < first)
        self.open_idle.absorb(counted.tally(times, leading), is_slow)
        if self.idle_since is None:
            self.idle_since = float(times[0])
        if not active_rows.size:
            return
        ended = float(times[first])
        if ended - self.idle_since > longest_s:
            self._end_pause(self.open_idle, ended, is_slow)
        else:
            self.kept.absorb(self.open_idle, is_slow)
        self.kept.absorb(counted.tally(times, chosen & (rows >= first) & (rows <= last)), is_slow)
        self.open_idle = counted.tally(times, judged & (rows > last))
        self.idle_since = float(times[last + 1]) if last + 1 < times.size else None
        self._note_bad(is_slow, threshold)

    def _end_pause(self, tally: Tally, ended_at: float, is_slow: IsSlow) -> None:
        if not tally.judged:
            return
        pause = Pause(int(ended_at // 60.0), tally)
        recent = [each for each in self.pauses if each.ended > pause.ended - RECUR_MINUTES]
        if len(recent) >= RECURRENCES - 1:
            for each in (*recent, pause):
                self.kept.absorb(each.tally, is_slow)
                self.checked = min([self.checked, *(count.minute - 1 for count in each.tally.minutes)])
                each.tally = Tally()
        self.pauses = [*recent, pause][-(RECURRENCES - 1) :]

    def _note_bad(self, is_slow: IsSlow, threshold: float) -> None:
        """Note since when and up to when minutes have been bad.

        Minutes of a pause that counts late may lie before the onset: it moves back to them.
        """
        bad = []
        for count in self.kept.minutes:
            if count.minute < self.checked:
                continue
            self.checked = count.minute
            if 100.0 * count.bottlenecked > threshold * count.judged or is_slow(count):
                bad.append(count.minute)
        for minute in bad:
            if self.bad_through is None or minute > self.bad_through + QUIET_MINUTES:
                self.bad_since = self.bad_through = minute
            self.bad_through = max(self.bad_through, minute)
        for minute in reversed(bad):
            if self.bad_since is not None and self.bad_since - QUIET_MINUTES <= minute < self.bad_since:
                self.bad_since = minute


def _inner_runs(active_rows: IntArray, times: FloatArray, longest_s: float) -> list[tuple[int, int]]:
    """Return the idle runs between active snapshots that are pauses, first row and the row after the last."""
    begins, ends = active_rows[:-1] + 1, active_rows[1:]
    long = times[ends] - times[begins] > longest_s
    return list(zip(begins[long].tolist(), ends[long].tolist(), strict=True))
