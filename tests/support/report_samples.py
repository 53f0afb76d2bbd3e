"""Reports made up for tests of what shows them: small and large, healthy and not, and with hostile names."""

import functools
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from trainguard.report.document import (
    FindingEntry,
    JobSummary,
    Money,
    NodeCoverage,
    NotCollected,
    Report,
    RuleEntry,
    Span,
    Spending,
    Verdict,
)
from trainguard.timeline.shown import (
    Band,
    GpuTimeline,
    Mark,
    NodeTimeline,
    Phase,
    SlowStep,
    StepTimeline,
    TimeAxis,
    Timelines,
    Values,
)

START = 1_782_864_000.0  # 2026-07-01T00:00:00Z
HOSTILE = "</script><script>window.__hacked=1</script><img src=x onerror=window.__hacked=1>'\"&<!--\u202e"
LONG = "n" * 10_000
SPIKE = 1_000

Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def _values(series: Matrix) -> Values:
    return [None if np.isnan(each) else round(each, 4) for each in series.tolist()]


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
            SlowStep(at=float(each), step=str(1_000 * (i + 1)), duration_s=1.1 + 0.2 * i) for i, each in enumerate(at)
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
    marks: Sequence[Mark] = (),
    steps_a_node: int = 1,
) -> Timelines:
    """Build time lines of ``gpus`` GPUs a node; those in ``slow`` (places of node and GPU) do a third of the work.

    Extremes are told of the GPUs of the first ``banded`` nodes, steps of the first 32 nodes. On the last node, a tenth
    of the time from 0.45 of the job on was not collected.
    """
    random = np.random.default_rng(7)
    axis = TimeAxis(start=START, bucket_s=bucket_s, buckets=buckets)
    shown = [
        _node(random, name, [31.0 if (i, gpu) in slow else 92.0 - gpu for gpu in range(gpus)], axis)
        for i, name in enumerate(nodes)
    ]
    if banded is not None:
        shown[banded:] = [_without_extremes(each) for each in shown[banded:]]
    shown[-1] = _with_gap(shown[-1], int(0.45 * buckets), int(0.55 * buckets))
    steps = [_steps(random, name, rank, axis) for name in nodes[:32] for rank in range(steps_a_node)]
    return Timelines(axis=axis, nodes=shown, steps=steps, phases=_phases(axis), marks=list(marks))


def _without_extremes(node: NodeTimeline) -> NodeTimeline:
    def bare(band: Band | None) -> Band | None:
        return None if band is None else Band(mean=band.mean)

    gpus = [replace(gpu, utilization=Band(mean=gpu.utilization.mean), memory=bare(gpu.memory)) for gpu in node.gpus]
    return replace(node, gpus=gpus)


def _with_gap(node: NodeTimeline, start: int, end: int) -> NodeTimeline:
    def cut(band: Band) -> Band:
        gap: Values = [None] * (end - start)
        parts = [None if each is None else [*each[:start], *gap, *each[end:]] for each in (band.low, band.high)]
        return Band(mean=[*band.mean[:start], *gap, *band.mean[end:]], low=parts[0], high=parts[1])

    return replace(node, gpus=[replace(each, utilization=cut(each.utilization)) for each in node.gpus])


def _low_gpu_entry(worst: str, hostile: str = "") -> RuleEntry:
    node, gpu = worst.rsplit("/", 1)
    box = {"p25": 21.0, "p50": 25.0, "p75": 29.0, "p95": 35.0, "upper": 41.0, "lower": 9.0, "kind": "under"}
    return RuleEntry(
        rule="LowGPUUtilization",
        status="FIRED",
        severity="critical",
        reason=f"{gpu} on {node}: 95 % of the last 500 points (250 s) are at or below 34 % (threshold 70 %).{hostile}",
        recommendation="Raise the batch size, make fewer blocking calls, or distribute the work in another way.",
        measured=34.0,
        threshold=70.0,
        unit="%",
        worst=worst,
        times_fired=2,
        violations=8,
        data_points=2_880,
        fired_at="2026-07-01T00:30:00.000Z",
        parameters={"threshold_p95": 70.0, "threshold_p5": 10.0, "window": 500, "patience": 1000},
        changed=["patience"],
        details={
            node: {
                "gpus": {gpu: {"gpu_max": 53.0, "gpu_95": 34.0, "gpu_5": 15.0, **box}},
                "never_active": [],
                "last_timestamp": int(START * 1e6),
            }
        },
    )


def _quiet_entry(rule: str) -> RuleEntry:
    return RuleEntry(
        rule=rule,
        status="OK",
        severity=None,
        reason="in 0 of 2,880 points (0 %, threshold 50 %).",
        recommendation=None,
        measured=0.0,
        threshold=50.0,
        unit="%",
        worst=None,
        times_fired=0,
        violations=0,
        data_points=2_880,
        fired_at=None,
        parameters={"threshold": 50.0, "patience": 100},
        changed=[],
        details={},
    )


def _finding(worst: str, nodes: int, reason: str) -> FindingEntry:
    return FindingEntry(
        rule="LowGPUUtilization",
        severity="critical",
        score=74.9,
        ongoing=True,
        affected_share=0.94,
        wasted_share=0.31,
        worst=worst,
        nodes_affected=1,
        nodes=nodes,
        reason=reason,
        advice="Raise the batch size.",
        cost=Money(lost=18.4, spent=59.3, currency="USD", sentence="USD 18.40 of the USD 59.30 spent so far."),
        explained_by=None,
    )


def _job(name: str, nodes: Sequence[str], gpus: int) -> JobSummary:
    return JobSummary(
        name=name,
        arn=f"arn:aws:sagemaker:eu-west-1:123456789012:training-job/{name}",
        status="Completed",
        instance_type="ml.p4d.24xlarge",
        instance_count=len(nodes),
        gpus=gpus * len(nodes),
        started_at="2026-07-01T00:00:00.000Z",
        ended_at="2026-07-01T01:00:00.000Z",
        duration_s=3_600.0,
        evaluated_through="2026-07-01T01:00:00.000Z",
        initialization=Span(
            start="2026-07-01T00:00:00.000Z", end="2026-07-01T00:01:30.000Z", duration_s=90.0, share=0.025
        ),
        training_loop=Span(
            start="2026-07-01T00:01:30.000Z", end="2026-07-01T00:58:30.000Z", duration_s=3_420.0, share=0.95
        ),
        finalization=Span(
            start="2026-07-01T00:58:30.000Z", end="2026-07-01T01:00:00.000Z", duration_s=90.0, share=0.025
        ),
        steps=8_142,
    )


def _coverage(nodes: Sequence[str]) -> list[NodeCoverage]:
    return [
        NodeCoverage(
            node=node,
            stream="system",
            first_at="2026-07-01T00:00:00.000Z",
            evaluated_through="2026-07-01T01:00:00.000Z",
            closed=True,
            share=1.0,
            counters={"lines": 77_760},
            last_fault=None,
        )
        for node in nodes
    ]


def make_report(
    name: str,
    nodes: Sequence[str],
    gpus: int,
    timelines: Timelines | None,
    *,
    worst: str | None = None,
    hostile: str = "",
) -> Report:
    """Build a report; LowGPUUtilization has fired on ``worst`` (``node/gpu``), without which the job is healthy."""
    entries = [_quiet_entry("CPUBottleneck"), _quiet_entry("IOBottleneck")]
    fired = [] if worst is None else [_low_gpu_entry(worst, hostile)]
    return Report(
        generated_at="2026-07-01T01:02:03.000Z",
        scope="state" if timelines is None else "full",
        final=timelines is not None,
        healthy=worst is None,
        verdict=Verdict(
            health="The job is healthy." if worst is None else "The job leaves a third of its GPU time unused.",
            change="Nothing needs to be changed." if worst is None else f"Raise the batch size.{hostile}",
            cost="Nothing is lost." if worst is None else "Leaving it costs USD 18.40 of USD 59.30.",
            level="healthy" if worst is None else "unhealthy",
            rule=None if worst is None else "LowGPUUtilization",
            wasted_share=None if worst is None else 0.31,
            lost=None if worst is None else 18.4,
        ),
        summary="11 rules: 10 judged, 1 not applicable.",
        fired=[each.rule for each in fired],
        findings=[_finding(each.worst or "", len(nodes), each.reason) for each in fired],
        cost=Spending(spent=59.3, currency="USD", note="On-demand price in eu-west-1."),
        job=_job(name, nodes, gpus),
        coverage=_coverage(nodes),
        not_collected=[
            NotCollected(
                what="data loader events",
                unknown="Whether the GPUs wait for data.",
                how="Turn on the framework's dataloader profiling.",
            )
        ],
        rules=[*fired, *entries],
        timelines=timelines,
    )


def _fire(share: float, axis_s: float, node: str | None, gpu: str | None, **more: str) -> Mark:
    return Mark(
        at=START + share * axis_s,
        rule=more.get("rule", "LowGPUUtilization"),
        severity=more.get("severity", "critical"),
        node=node,
        gpu=gpu,
        text=more.get("text", "95 % of the last 500 points are at or below 34 %."),
    )


@functools.cache
def healthy_report() -> Report:
    """One node with 8 GPUs, one hour in buckets of 15 s; nothing fired."""
    nodes = ["algo-1"]
    return make_report("resnet-healthy", nodes, 8, make_timelines(nodes=nodes, gpus=8, buckets=240, bucket_s=15.0))


@functools.cache
def bad_report() -> Report:
    """Two nodes with 8 GPUs, one hour; gpu3 of the first is slow, two rules have fired."""
    nodes = ["algo-1", "algo-2"]
    marks = [
        _fire(0.5, 3_600.0, "algo-1", "gpu3"),
        _fire(0.505, 3_600.0, None, None, rule="CPUBottleneck", severity="medium"),
        _fire(0.8, 3_600.0, "algo-1", "gpu3", severity="high"),
    ]
    timelines = make_timelines(nodes=nodes, gpus=8, buckets=240, bucket_s=15.0, slow=[(0, 3)], marks=marks)
    return make_report("bert-large-slow", nodes, 8, timelines, worst="algo-1/gpu3")


@functools.cache
def tiny_report() -> Report:
    """One GPU, one minute in one bucket, and nothing else collected; its rule is not a known one."""
    axis = TimeAxis(start=START, bucket_s=60.0, buckets=1)
    node = NodeTimeline(node="algo-1", gpus=[GpuTimeline(gpu="gpu0", utilization=Band(mean=[12.5]))])
    marks = [_fire(0.5, 60.0, "algo-1", "gpu0", rule="OwnRule"), _fire(0.6, 60.0, None, None, rule="OwnRule")]
    timelines = Timelines(axis=axis, nodes=[node], steps=[], phases=[], marks=marks)
    return make_report("tiny", ["algo-1"], 1, timelines)


@functools.cache
def state_report() -> Report:
    """The report from state alone: no time lines."""
    return make_report("bert-large-slow", ["algo-1", "algo-2"], 8, None, worst="algo-1/gpu3")


@functools.cache
def hostile_report() -> Report:
    """Names and texts that would run or hide something if they were not escaped, and one without end."""
    nodes = [HOSTILE, LONG]
    marks = [_fire(0.5, 1_800.0, HOSTILE, "gpu0", text=HOSTILE)]
    timelines = make_timelines(nodes=nodes, gpus=2, buckets=60, bucket_s=30.0, marks=marks)
    first = timelines.nodes[0]
    named = replace(first, gpus=[replace(first.gpus[0], gpu=HOSTILE), *first.gpus[1:]])
    phases = [Phase(kind="training", label=HOSTILE, start=START, end=START + 1_800.0)]
    shown = replace(timelines, nodes=[named, timelines.nodes[1]], phases=phases, left_out=[HOSTILE])
    return make_report(HOSTILE, nodes, 2, shown, worst=f"{HOSTILE}/gpu0", hostile=HOSTILE)


@functools.cache
def day_report() -> Report:
    """24 hours of two nodes with 8 GPUs in buckets of 30 s, everything with its extremes, 8 processes a node."""
    nodes = ["algo-1", "algo-2"]
    marks = [_fire(share, 86_400.0, "algo-2", "gpu5") for share in (0.1, 0.4, 0.402, 0.7)]
    timelines = make_timelines(
        nodes=nodes, gpus=8, buckets=2_880, bucket_s=30.0, slow=[(1, 5)], marks=marks, steps_a_node=8
    )
    return make_report("llm-pretrain-day", nodes, 8, timelines, worst="algo-2/gpu5")


@functools.cache
def spiky_report() -> Report:
    """A GPU, 2,000 seconds at 40 %, of which one has a high of 100 % and the next one a low of 0 %; one is missing."""
    axis = TimeAxis(start=START, bucket_s=1.0, buckets=2_000)
    mean: Values = [40.0 + index % 2 for index in range(2_000)]
    low: Values = [40.0] * 2_000
    high: Values = [41.0] * 2_000
    high[SPIKE], low[SPIKE + 1] = 100.0, 0.0
    mean[SPIKE + 2] = low[SPIKE + 2] = high[SPIKE + 2] = None
    gpu = GpuTimeline(gpu="gpu0", utilization=Band(mean=mean, low=low, high=high))
    cpu = Band(mean=[20.0] * 2_000, high=[95.0 if index == SPIKE else 30.0 for index in range(2_000)])
    node = NodeTimeline(node="algo-1", gpus=[gpu], cpu=cpu)
    timelines = Timelines(axis=axis, nodes=[node], steps=[], phases=[], marks=[])
    return make_report("spiky", ["algo-1"], 1, timelines)


@functools.cache
def large_report() -> Report:
    """24 hours of 128 nodes with 8 GPUs in buckets of 5 minutes; a node and a GPU of another one are slow."""
    nodes = [f"algo-{i + 1}" for i in range(128)]
    slow = [(40, gpu) for gpu in range(8)] + [(90, 2)]
    marks = [_fire(0.3, 86_400.0, "algo-41", "gpu0"), _fire(0.6, 86_400.0, "algo-91", "gpu2", severity="medium")]
    timelines = make_timelines(nodes=nodes, gpus=8, buckets=288, bucket_s=300.0, slow=slow, banded=4, marks=marks)
    return make_report("llm-pretrain-1024", nodes, 8, timelines, worst="algo-41/gpu0")
