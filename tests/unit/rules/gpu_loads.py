"""Nodes whose GPUs have given loads, for LoadBalancing's tests."""

from dataclasses import replace

import numpy as np

from tests.unit.rules.node_replay import NodeSeries, Replay, node_minutes, replay, series
from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.rules.load_balancing.judging import LoadBalancingParameters
from trainguard.rules.load_balancing.rule import LoadBalancing, LoadBalancingAcrossNodes
from trainguard.rules.rule_inputs import JobView, NodeFacts, NodeView
from trainguard.rules.rule_result import RuleResult

RULE = LoadBalancing()
JOB_RULE = LoadBalancingAcrossNodes()
DEFAULTS = LoadBalancingParameters()


def judge(node: NodeSeries, parameters: LoadBalancingParameters = DEFAULTS, *, closed: bool = False) -> Replay:
    return replay(RULE, parameters, node, closed=closed)


def node_of(*gpus: FloatArray | list[float], interval_s: float = 1.0) -> NodeSeries:
    """Build a node's series, a column a GPU."""
    return series(np.column_stack(gpus), interval_s=interval_s)


def work(points: int, level: float, *, seed: int = 0) -> FloatArray:
    return np.clip(np.rint(np.random.default_rng(seed).normal(level, 4.0, points)), 0.0, 100.0)


def spread_over(low: float, high: float, share: float, points: int = 600) -> FloatArray:
    """``share`` of the points at ``high``, the others at ``low``, evenly mixed."""
    return np.where(np.arange(points) * share % 1.0 + share >= 1.0, high, low)


def counted(*values: float, points: int = 1_000) -> IntArray:
    """Counts of one GPU whose points are spread evenly over some values."""
    counts = np.zeros(101, dtype=np.int64)
    for value in values:
        counts[int(value)] += points // len(values)
    return counts


def view_of(name: str, *gpus: IntArray, idle_run_s: float = 0.0, interval_s: float = 0.5) -> NodeView:
    """Build a node's view from its GPUs' counts; without a count it was never active."""
    ended = next(iter(node_minutes(node_of(*[[90.0]] * max(len(gpus), 1)), closed=False))).view
    histogram = np.array(gpus, dtype=np.int64).reshape(len(gpus), 101)
    points = int(histogram.sum(axis=1).max()) if gpus else 0
    return replace(
        ended,
        node=name,
        gpu_names=tuple(f"gpu{index}" for index in range(len(gpus))),
        gpu_histogram=histogram,
        kept_total=points,
        interval_s=interval_s,
        idle_run_s=idle_run_s,
        first_sample_at=0.0,
        first_active_at=0.0 if points else None,
        ever_active=np.atleast_1d(histogram.any(axis=1)),
        watermark_s=max(points * interval_s, idle_run_s) - interval_s,
    )


def across(*views: NodeView, parameters: LoadBalancingParameters = DEFAULTS) -> RuleResult:
    nodes = {view.node: NodeFacts(view.node, view) for view in views}
    job = JobView(0.0, 0.0, None, False, False, False, nodes)
    return JOB_RULE.judge(job, parameters)


def nothing() -> IntArray:
    return np.zeros(101, dtype=np.int64)
