"""Time lines made up for tests of what shows them."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from trainguard.report.timeline.series import (
    Band,
    GpuTimeline,
    NodeTimeline,
    Phase,
    ShownSlowStep,
    StepTimeline,
    TimeAxis,
    Timelines,
    Values,
)

START = 1_782_864_000.0  # 2026-07-01T00:00:00Z

Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def _values(series: Matrix) -> Values:
    missing, values = np.isnan(series), np.round(series, 4).tolist()
    return [None if gone else each for gone, each in zip(missing, values, strict=True)] if missing.any() else values


def _band(mean: Matrix, spread: float, highest: float = 100.0) -> Band:
    return Band(
        mean=_values(mean),
        low=_values(np.clip(mean - spread, 0.0, highest)),
        high=_values(np.clip(mean + spread, 0.0, highest)),
    )


def _wave(random: np.random.Generator, buckets: int, level: float, noise: float) -> Matrix:
    """A load around ``level`` percent that wanders slowly and flickers."""
    drift = np.cumsum(random.normal(0.0, noise / 12.0, buckets))
    load: Matrix = np.clip(level + drift - drift.mean() + random.normal(0.0, noise, buckets), 0.0, 100.0)
    return load


def _gpu(random: np.random.Generator, number: int, level: float, axis: TimeAxis) -> GpuTimeline:
    load = _wave(random, axis.buckets, level, 3.0)
    load[: axis.buckets // 40] = 2.0
    dips = random.integers(0, axis.buckets, max(1, axis.buckets // 90))
    load[dips] *= 0.3
    return GpuTimeline(
        gpu=f"gpu{number}", utilization=_band(load, 6.0), memory=_band(_wave(random, axis.buckets, 64.0, 0.6), 1.0)
    )


def _node(random: np.random.Generator, name: str, levels: Sequence[float], axis: TimeAxis) -> NodeTimeline:
    cpu = _wave(random, axis.buckets, 42.0, 5.0)
    io_wait = np.clip(random.exponential(1.4, axis.buckets), 0.0, 30.0)
    return NodeTimeline(
        node=name,
        gpus=[_gpu(random, i, level, axis) for i, level in enumerate(levels)],
        cpu=Band(mean=_values(cpu), high=_values(np.clip(cpu + 35.0, 0.0, 100.0))),
        io_wait=Band(mean=_values(io_wait), high=_values(np.clip(io_wait * 4.0, 0.0, 100.0))),
        host_memory=_band(np.linspace(21.0, 38.0, axis.buckets), 0.4),
        network=_band(random.gamma(4.0, 9e7, axis.buckets), 5e7, 1e11),
    )


def _steps(random: np.random.Generator, node: str, rank: int, axis: TimeAxis) -> StepTimeline:
    mean = 0.42 + 0.01 * rank + random.normal(0.0, 0.008, axis.buckets)
    mean[: axis.buckets // 40] = np.nan
    at = axis.start + axis.bucket_s * axis.buckets * np.array([0.2, 0.55, 0.8])
    return StepTimeline(
        node=node,
        process=f"{node}-{900 + rank}",
        mode="Step:ModeKeys.TRAIN",
        steps=int(axis.buckets * axis.bucket_s / 0.42),
        mean_s=_values(mean),
        low_s=_values(mean - 0.02),
        high_s=_values(mean + 0.06),
        slowest=[
            ShownSlowStep(at=float(each), step=str(1_000 * (i + 1)), duration_s=1.1 + 0.2 * i)
            for i, each in enumerate(at)
        ],
    )


def _phases(axis: TimeAxis) -> list[Phase]:
    length = axis.bucket_s * axis.buckets
    edges = [axis.start + length * share for share in (0.0, 0.025, 0.6, 0.66, 0.975, 1.0)]
    return [
        Phase(kind="initialization", label="initialization", start=edges[0], end=edges[1]),
        Phase(kind="training", label="training", start=edges[1], end=edges[2]),
        Phase(kind="evaluation", label="evaluation", start=edges[2], end=edges[3]),
        Phase(kind="training", label="training", start=edges[3], end=edges[4]),
        Phase(kind="finalization", label="finalization", start=edges[4], end=edges[5]),
    ]


def make_timelines(
    *,
    nodes: Sequence[str],
    gpus: int,
    buckets: int,
    bucket_s: float,
    slow: Sequence[tuple[int, int]] = (),
    banded: int | None = None,
    steps_a_node: int = 1,
) -> Timelines:
    """Build time lines of ``gpus`` GPUs a node; those in ``slow`` (places of node and GPU) do a third of the work.

    Extremes are given of the GPUs of the first ``banded`` nodes, steps of the first 32 nodes. On the last node, a tenth
    of the time from 0.45 of the job on was not collected.
    """
    random = np.random.default_rng(7)
    axis = TimeAxis(start=START, bucket_s=bucket_s, buckets=buckets)
    shown = [
        _node(random, name, [31.0 if (i, gpu) in slow else 92.0 - gpu for gpu in range(gpus)], axis)
        for i, name in enumerate(nodes)
    ]
    if banded is not None:
        shown[banded:] = [without_extremes(each) for each in shown[banded:]]
    shown[-1] = with_gap(shown[-1], int(0.45 * buckets), int(0.55 * buckets))
    steps = [_steps(random, name, rank, axis) for name in nodes[:32] for rank in range(steps_a_node)]
    return Timelines(axis=axis, nodes=shown, steps=steps, phases=_phases(axis))


def without_extremes(node: NodeTimeline) -> NodeTimeline:
    def bare(band: Band | None) -> Band | None:
        return None if band is None else Band(mean=band.mean)

    gpus = [replace(gpu, utilization=Band(mean=gpu.utilization.mean), memory=bare(gpu.memory)) for gpu in node.gpus]
    return replace(node, gpus=gpus)


def brief(node: NodeTimeline) -> NodeTimeline:
    """Return a node as a detail has it: means alone, but for the busiest core."""
    bare = without_extremes(node)
    host = None if node.host_memory is None else Band(mean=node.host_memory.mean)
    network = None if node.network is None else Band(mean=node.network.mean)
    return replace(bare, host_memory=host, network=network)


def with_gap(node: NodeTimeline, start: int, end: int) -> NodeTimeline:
    def cut(band: Band) -> Band:
        gap: Values = [None] * (end - start)
        parts = [None if each is None else [*each[:start], *gap, *each[end:]] for each in (band.low, band.high)]
        return Band(mean=[*band.mean[:start], *gap, *band.mean[end:]], low=parts[0], high=parts[1])

    return replace(node, gpus=[replace(each, utilization=cut(each.utilization)) for each in node.gpus])
