"""Series of GPU memory, and what GPUMemoryIncrease says about them minute by minute."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.support.node_snapshots import node_snapshots
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.rules.gpu_memory_increase.growth import MemoryState
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncrease, GPUMemoryIncreaseParameters
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult

RULE = GPUMemoryIncrease()
DEFAULTS = GPUMemoryIncreaseParameters()
SMALL = GPUMemoryIncreaseParameters(window=20, patience=20)
START = 1_700_000_040.0
# Points an hour at 0.5 s.
HOUR = 7_200


@dataclass(frozen=True)
class Played:
    """What the rule said after each minute, by kept points, and its state at the end."""

    points: tuple[int, ...]
    results: tuple[RuleResult, ...]
    state: MemoryState

    @property
    def last(self) -> RuleResult:
        return self.results[-1]

    @property
    def fired_at(self) -> list[int]:
        return [at for at, said in zip(self.points, self.results, strict=True) if said.status is Status.FIRED]

    def kinds(self, gpu: str = "gpu0") -> set[str | None]:
        said = (each.plain_details[gpu]["kind"] for each in self.results if gpu in each.plain_details)
        return {kind for kind in said if kind is not None}


def minutes(
    memory: FloatArray, *, interval_s: float, a_minute: int, held: int, load: float | FloatArray = 90.0
) -> Iterator[NodeMinute]:
    """Cut memory (float64[T] or [T, G]) of a node whose GPUs are at ``load`` into minutes of ``a_minute`` points."""
    matrix = memory[:, np.newaxis] if memory.ndim == 1 else memory
    loads = np.broadcast_to(np.atleast_1d(np.asarray(load, dtype=np.float64)).reshape(-1, 1), matrix.shape)
    gpus = matrix.shape[1]
    for begin in range(0, len(matrix), a_minute):
        end = min(begin + a_minute, len(matrix))
        oldest = max(begin - held, 0)
        times: FloatArray = START + np.arange(oldest, end, dtype=np.float64) * interval_s
        busy = loads[oldest:end]
        view = NodeView(
            node="algo-1",
            watermark_s=float(times[-1]),
            first_sample_at=START,
            first_active_at=START,
            interval_s=interval_s,
            gpu_names=tuple(f"gpu{index}" for index in range(gpus)),
            ever_active=np.ones(gpus, dtype=np.bool_),
            kept_total=end,
            kept_times=times,
            kept_gpu_utilization=busy,
            kept_gpu_memory=matrix[oldest:end],
            kept_cpu_mean=np.full(end - oldest, 20.0),
            idle_run_s=0.0,
            gpu_histogram=np.full((gpus, 101), end, dtype=np.int64),
            closed=False,
        )
        seen = np.ones(end - begin, dtype=np.bool_)
        snapshots = node_snapshots(times[begin - oldest :], busy[begin - oldest :], gpu_memory=matrix[begin:end])
        yield NodeMinute(snapshots=snapshots, active=seen, started=seen, fresh=end - begin, view=view)


def play(
    memory: FloatArray,
    parameters: GPUMemoryIncreaseParameters = SMALL,
    *,
    interval_s: float = 0.5,
    a_minute: int | None = None,
    held: int | None = None,
    load: float | FloatArray = 90.0,
) -> Played:
    """Show the rule a series of whole percents, a minute at a time or, where that is less, a window."""
    state, points, results = RULE.state_type(), [], []
    window = RULE.window_points(parameters, interval_s)
    kept = window if held is None else held
    cut = min(round(60.0 / interval_s), window) if a_minute is None else a_minute
    whole = np.clip(np.rint(memory), 0.0, 100.0)
    for minute in minutes(whole, interval_s=interval_s, a_minute=cut, held=kept, load=load):
        RULE.observe(state, minute, parameters)
        results.append(RULE.judge(state, minute.view, parameters))
        points.append(minute.view.kept_total)
    return Played(tuple(points), tuple(results), state)


def windows(*levels: float | tuple[float, float], parameters: GPUMemoryIncreaseParameters = SMALL) -> FloatArray:
    """Patience at the first level, then a window a level; a pair is the level's floor and the rest of its window."""
    pairs = [level if isinstance(level, tuple) else (level, level) for level in levels]
    window, patience = RULE.window_points(parameters, 0.5), parameters.patience_points(0.5)
    parts = [np.where(np.arange(window) < 3, low, rest) for low, rest in pairs]
    return np.concatenate([np.full(patience, pairs[0][1]), *parts]).astype(np.float64)


def noise(hours: float, level: float, spread: float = 3.0, *, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(level, spread, int(hours * HOUR))


def autoregressive(hours: float, weight: float, spread: float) -> FloatArray:
    shocks = noise(hours, 0.0, spread * np.sqrt(1.0 - weight**2))
    values = np.empty_like(shocks)
    last = 0.0
    for index, shock in enumerate(shocks.tolist()):
        last = weight * last + shock
        values[index] = last
    return 50.0 + values


def sawtooth(hours: float, points: int, low: float = 20.0, high: float = 80.0) -> FloatArray:
    phase = np.arange(int(hours * HOUR)) % points / points
    return low + (high - low) * phase + noise(hours, 0.0, 1.0)


def with_evaluations(hours: float, every: int, *, share: float = 0.15) -> FloatArray:
    """Training at 60 %, and evaluations at 25 % that take ``share`` of the time."""
    evaluating = np.arange(int(hours * HOUR)) % every >= (1.0 - share) * every
    return np.where(evaluating, 25.0, 60.0) + noise(hours, 0.0, 2.0)


def ramp(hours: float, first: float, last: float) -> FloatArray:
    return np.linspace(first, last, int(hours * HOUR))
