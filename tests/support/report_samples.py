"""Reports made up for tests of what shows them: small and large, healthy and not, and with hostile names."""

import functools
from collections.abc import Sequence

from msgspec.structs import replace

from tests.support.timeline_samples import START, make_timelines
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
from trainguard.timeline.series import (
    Band,
    GpuTimeline,
    Mark,
    NodeTimeline,
    Phase,
    TimeAxis,
    Timelines,
    Values,
)

HOSTILE = "</script><script>window.__hacked=1</script><img src=x onerror=window.__hacked=1>'\"&<!--\u202e"
LONG = "n" * 10_000
SPIKE = 1_000


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
