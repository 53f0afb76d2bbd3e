"""Drives a system rule over a simulated node, minute by minute, as an engine would.

The kept points are computed again for every minute from the whole series so far, straight from their definition, and
so differently from the engine's own incremental way.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.support.kept_points import kept_points
from tests.support.node_snapshots import node_snapshots
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray
from trainguard.rules.protocol import AnySystemRule, RuleParameters
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult

# A full minute, epoch seconds.
JOB_START = 1_700_000_040.0

NODE = "algo-1"
HELD_POINTS = 2_500


@dataclass(frozen=True)
class NodeSeries:
    """A node's samples, one row every ``interval_s``.

    Utilization and memory are float64[T, G], the busiest core and the largest I/O wait float64[T].
    """

    gpu: FloatArray
    cpu_max: FloatArray
    gpu_memory: FloatArray
    io_wait_max: FloatArray
    interval_s: float = 0.5

    @property
    def times(self) -> FloatArray:
        return JOB_START + np.arange(len(self.gpu), dtype=np.float64) * self.interval_s


@dataclass(frozen=True)
class Replay:
    """What a rule said after each minute; ``minutes`` since the job's start."""

    minutes: tuple[float, ...]
    results: tuple[RuleResult, ...]
    state: Any
    view: NodeView

    @property
    def last(self) -> RuleResult:
        return self.results[-1]

    @property
    def statuses(self) -> tuple[Status, ...]:
        return tuple(result.status for result in self.results)

    @property
    def first_fire(self) -> float | None:
        fires = (at for at, said in zip(self.minutes, self.results, strict=True) if said.status is Status.FIRED)
        return next(fires, None)


def series(
    gpu: Sequence[float] | FloatArray,
    *,
    cpu: float | Sequence[float] | FloatArray = 40.0,
    gpu_memory: Sequence[float] | FloatArray | None = None,
    io_wait: float | Sequence[float] | FloatArray = 0.0,
    interval_s: float = 0.5,
) -> NodeSeries:
    """Build a node's series; a flat ``gpu`` is one GPU, a scalar a steady column, memory half of ``gpu``."""
    matrix = _columns(gpu)

    def column(values: float | Sequence[float] | FloatArray) -> FloatArray:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), len(matrix)).copy()

    memory = matrix / 2.0 if gpu_memory is None else _columns(gpu_memory)
    return NodeSeries(matrix, column(cpu), memory, column(io_wait), interval_s)


def _columns(values: Sequence[float] | FloatArray) -> FloatArray:
    matrix = np.asarray(values, dtype=np.float64)
    return matrix[:, np.newaxis] if matrix.ndim == 1 else matrix


def replay(rule: AnySystemRule, parameters: RuleParameters, node: NodeSeries, *, closed: bool = True) -> Replay:
    """Show ``rule`` the node's minutes, and at last, where ``closed``, the end of the stream."""
    return replayed(rule, parameters, node_minutes(node, closed=closed))


def replayed(rule: AnySystemRule, parameters: RuleParameters, shown: Iterable[NodeMinute]) -> Replay:
    """Show ``rule`` some minutes of a node."""
    state: Any = rule.state_type()
    minutes, results = [], []
    for minute in shown:
        rule.observe(state, minute, parameters)
        results.append(rule.judge(state, minute.view, parameters))
        minutes.append(((minute.view.watermark_s or JOB_START) - JOB_START) / 60.0)
    return Replay(tuple(minutes), tuple(results), state, minute.view)


@dataclass(frozen=True)
class _Whole:
    """What is known of each row of a series, and in which row each GPU was first seen and first active."""

    times: FloatArray
    active: BoolArray
    sampled: BoolArray
    counted: IntArray
    first_seen: IntArray
    first_busy: IntArray

    @classmethod
    def of(cls, node: NodeSeries) -> "_Whole":
        busy, seen = node.gpu >= 10.0, ~np.isnan(node.gpu)
        return cls(
            node.times,
            np.logical_or.reduce(busy, axis=1),
            np.logical_or.reduce(seen, axis=1),
            np.where(seen, np.floor(node.gpu), -1).astype(np.int64),
            _first_rows(seen),
            _first_rows(busy),
        )


def _first_rows(marked: BoolArray) -> IntArray:
    """Return in which row each column is first true: one behind the last where it never is."""
    return np.where(marked.any(axis=0), marked.argmax(axis=0), len(marked)).astype(np.int64)


def node_minutes(node: NodeSeries, *, closed: bool) -> Iterator[NodeMinute]:
    """Cut a series into minutes; the last one, where ``closed``, is empty and says that the stream has ended."""
    whole = _Whole.of(node)
    times = whole.times
    numbers = np.floor(times / 60.0).astype(np.int64)
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    begin, kept_before, quiet_since = 0, 0, None
    last_start = None
    for end in [*ends, *([ends[-1]] if closed else [])]:
        minute, start = _minute(node, whole, begin, end, kept_before, closed=begin == end)
        recent = slice(np.searchsorted(times, 240.0 * np.floor((times[end - 1] - 1_200.0) / 240.0)), end)
        highest = _highest_mean(node.gpu[recent]) if node.gpu.shape[1] else 100.0
        quiet_since = None if highest >= 5.0 else times[recent][0] if quiet_since is None else quiet_since
        quiet_s = 0.0 if quiet_since is None else float(times[end - 1] - quiet_since)
        run = node.gpu[int(np.searchsorted(times, times[end - 1] - minute.view.idle_run_s)) : end]
        run_mean = _highest_mean(run) if minute.view.idle_run_s else 0.0
        idle_time = replace(minute.view.idle_time, quiet_s=quiet_s, highest_mean=highest, run_mean=run_mean)
        yield replace(
            minute,
            view=replace(minute.view, idle_time=idle_time),
            restarted=last_start is not None and start != last_start,
        )
        begin, kept_before, last_start = end, minute.view.kept_total, start


def _highest_mean(values: FloatArray) -> float:
    """Return the highest mean of a column, leaving out NaN; 0 without a number."""
    if not values.size:
        return 0.0
    seen = ~np.isnan(values)
    numbers = np.maximum(seen.sum(axis=0), 1)
    return float((np.where(seen, values, 0.0).sum(axis=0) / numbers).max())


def _minute(
    node: NodeSeries, whole: _Whole, begin: int, end: int, kept_before: int, *, closed: bool
) -> tuple[NodeMinute, int | None]:
    """Return the minute, without how quiet the node was, and the first row that is shown as work."""
    times, active = whole.times[:end], whole.active[:end]
    shown = np.flatnonzero(whole.first_seen < end)
    names = tuple(f"gpu{index}" for index in shown.tolist())
    kept = kept_points(times, active, whole.sampled[:end], node.interval_s)
    if closed and kept.working is not None:
        kept = replace(kept, rows=kept.waiting, start=kept.working)
    shown_start = kept.working if kept.start is None else kept.start
    started = np.arange(begin, end) >= (end if shown_start is None else shown_start)
    rows = np.array(kept.rows, dtype=np.int64)
    window = rows[-HELD_POINTS:]
    watermark_s = float(times[-1])
    idle_since = kept.idle_since if shown_start is not None else float(times[0])
    idle_run_s = 0.0 if idle_since is None else watermark_s - idle_since
    points = (whole.counted[rows, gpu] for gpu in shown.tolist())
    histogram = np.array([np.bincount(each[each >= 0], minlength=101)[:101] for each in points])
    part = slice(begin, end)
    minute = NodeMinute(
        snapshots=node_snapshots(
            times[part],
            node.gpu[part][:, shown],
            gpu_names=names,
            gpu_memory=node.gpu_memory[part][:, shown],
            cpu_mean=node.cpu_max[part] / 2.0,
            cpu_max=node.cpu_max[part],
            io_wait_mean=node.io_wait_max[part] / 2.0,
            io_wait_max=node.io_wait_max[part],
        ),
        active=active[part],
        started=started,
        fresh=len(kept.rows) - kept_before,
        view=NodeView(
            node=NODE,
            watermark_s=watermark_s,
            first_sample_at=float(times[0]),
            first_active_at=None if kept.start is None else float(times[kept.start]),
            interval_s=node.interval_s,
            gpu_names=names,
            ever_active=whole.first_busy[shown] < end,
            kept_total=len(kept.rows),
            kept_times=times[window],
            kept_gpu_utilization=node.gpu[window][:, shown],
            kept_gpu_memory=node.gpu_memory[window][:, shown],
            kept_cpu_mean=node.cpu_max[window] / 2.0,
            idle_run_s=idle_run_s,
            gpu_histogram=histogram.reshape(len(names), 101),
            closed=closed,
            idle_time=kept.idle_time,
        ),
    )
    return minute, shown_start
