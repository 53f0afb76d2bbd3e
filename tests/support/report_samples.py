"""Reports made up for tests of what shows them: small and large, healthy and not, and with hostile names."""

import functools
from collections.abc import Sequence

from msgspec.structs import replace

from tests.support.timeline_samples import START, brief, make_timelines
from trainguard.core.finding import EpisodeEntry
from trainguard.core.timestamps import iso_time
from trainguard.render.rule_entry import RuleEntry
from trainguard.report.document import FindingEntry, Headline, JobSummary, NotCollected, Report, Span, Spending
from trainguard.report.evaluated_job import NodeCoverage
from trainguard.report.timeline.series import (
    Band,
    DeviceTimeline,
    GpuTimeline,
    NodeTimeline,
    Phase,
    TimeAxis,
    TimelineDetail,
    Timelines,
    Values,
)
from trainguard.report.training.digest import ScalarSeries, TrainingDigest
from trainguard.report.training.document import FirstFire, training_report

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


def finding(
    rule: str, episodes: Sequence[EpisodeEntry], *, severity: str = "critical", worst: str = ""
) -> FindingEntry:
    """Return a finding with its episodes; it goes on where the last one has no end."""
    return FindingEntry(
        rule=rule,
        severity=severity,
        score=74.9,
        ongoing=episodes[-1].end is None,
        affected_share=0.94,
        wasted_share=0.31,
        worst=worst or None,
        nodes_affected=1,
        nodes=2,
        reason="2026-07-01 00:10 to 00:25 UTC: 95 % of the last 500 points are at or below 34 % (threshold 70 %).",
        advice="Raise the batch size.",
        lost=18.4,
        cost="USD 18.40 of the USD 59.30 spent.",
        explained_by=None,
        episodes=list(episodes),
    )


def episode(
    start_s: float, end_s: float | None, node: str | None = None, gpus: Sequence[str] = (), *, measured: float = 34.0
) -> EpisodeEntry:
    """Return an episode, seconds since START, with what an hour of a node costs."""
    lasted = 0.0 if end_s is None else end_s - start_s
    return EpisodeEntry(
        start=iso_time(START + start_s),
        end=None if end_s is None else iso_time(START + end_s),
        node=node,
        nodes=[] if node is None else [node],
        gpus=list(gpus),
        measured=measured,
        wasted_s=0.66 * lasted,
        cost=round(0.66 * lasted / 3_600.0 * 29.65, 2),
    )


def _job(name: str, nodes: Sequence[str], gpus: int, hours: float) -> JobSummary:
    return JobSummary(
        name=name,
        arn=f"arn:aws:sagemaker:eu-west-1:123456789012:training-job/{name}",
        status="Completed",
        instance_type="ml.p4d.24xlarge",
        instance_count=len(nodes),
        gpus=gpus * len(nodes),
        started_at="2026-07-01T00:00:00.000Z",
        ended_at=iso_time(START + 3_600.0 * hours),
        duration_s=3_600.0 * hours,
        evaluated_through=iso_time(START + 3_600.0 * hours),
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
    hours: float = 1.0,
    episodes: Sequence[EpisodeEntry] = (),
    more: Sequence[FindingEntry] = (),
) -> Report:
    """Build a report; LowGPUUtilization has fired on ``worst`` (``node/gpu``), without which the job is healthy.

    ``episodes`` are those of LowGPUUtilization, ``more`` are findings beside it.
    """
    entries = [_quiet_entry("CPUBottleneck"), _quiet_entry("IOBottleneck")]
    known = {each.rule for each in more}
    entries = [replace(each, times_fired=1, status="FIRED") if each.rule in known else each for each in entries]
    fired = [] if worst is None else [_low_gpu_entry(worst, hostile)]
    return Report(
        generated_at="2026-07-01T01:02:03.000Z",
        scope="state" if timelines is None else "full",
        final=timelines is not None,
        healthy=worst is None,
        verdict=Headline(
            health="The job is healthy." if worst is None else "The job leaves a third of its GPU time unused.",
            change="Nothing needs to be changed." if worst is None else f"Raise the batch size.{hostile}",
            cost="Nothing is lost." if worst is None else "Leaving it costs USD 18.40 of USD 59.30.",
            level="healthy" if worst is None else "unhealthy",
            rule=None if worst is None else "LowGPUUtilization",
            wasted_share=None if worst is None else 0.31,
            lost=None if worst is None else 18.4,
        ),
        summary="11 rules: 10 evaluated, 1 not applicable.",
        fired=[each.rule for each in fired],
        findings=[
            *(
                finding("LowGPUUtilization", episodes or [episode(1_800.0, None)], worst=each.worst or "")
                for each in fired
            ),
            *more,
        ],
        cost=Spending(spent=59.3, currency="USD", note="On-demand price in eu-west-1."),
        job=_job(name, nodes, gpus, hours),
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


@functools.cache
def healthy_report() -> Report:
    """One node with 8 GPUs, one hour in buckets of 15 s; nothing fired."""
    nodes = ["algo-1"]
    return make_report("resnet-healthy", nodes, 8, make_timelines(nodes=nodes, gpus=8, buckets=240, bucket_s=15.0))


@functools.cache
def collected_report() -> Report:
    """The healthy job with further series: activity and power of each GPU, PCIe traffic as a mean of them."""
    report = healthy_report()
    assert report.timelines is not None
    timelines = report.timelines
    [node] = timelines.nodes
    buckets = timelines.axis.buckets
    devices = [
        *(_device("sm_activity", gpu.gpu, [30.0 + number] * buckets) for number, gpu in enumerate(node.gpus)),
        *(_device("tensor_activity", gpu.gpu, [20.0 + number] * buckets) for number, gpu in enumerate(node.gpus)),
        *(_device("power", gpu.gpu, [400.0 + number] * buckets) for number, gpu in enumerate(node.gpus)),
        _device("pcie", None, [2.5e9] * buckets),
    ]
    return replace(report, timelines=replace(timelines, nodes=[replace(node, devices=devices)]))


def _device(kind: str, gpu: str | None, values: Values) -> DeviceTimeline:
    return DeviceTimeline(kind=kind, gpu=gpu, band=Band(mean=values))


@functools.cache
def bad_report() -> Report:
    """Two nodes with 8 GPUs, one hour; gpu3 of the first is slow in two episodes, two rules have fired."""
    nodes = ["algo-1", "algo-2"]
    timelines = make_timelines(nodes=nodes, gpus=8, buckets=240, bucket_s=15.0, slow=[(0, 3)])
    episodes = [
        episode(600.0, 1_500.0, "algo-1", ["gpu3"]),
        episode(2_880.0, 3_600.0, "algo-1", ["gpu3"], measured=31.0),
    ]
    more = [finding("CPUBottleneck", [episode(1_818.0, 2_100.0, measured=61.0)], severity="medium")]
    return make_report("bert-large-slow", nodes, 8, timelines, worst="algo-1/gpu3", episodes=episodes, more=more)


@functools.cache
def trained_report() -> Report:
    """The bad job with a loss every 6 seconds, 60 steps apart, that is undefined at one of them; a rule found that."""
    places = range(600)
    mean = [None if place == 300 else 2.0 / (1.0 + place / 100.0) for place in places]
    loss = ScalarSeries(
        name="loss",
        mode="TRAIN",
        kind="loss",
        steps=[60 * place for place in places],
        at=[START + 6.0 * place for place in places],
        mean=mean,
        low=mean,
        high=mean,
        counts=[1] * 600,
        undefined=[int(value is None) for value in mean],
    )
    rate = replace(loss, name="learning_rate", kind="metric", mean=[1e-4] * 600, low=[1e-4] * 600, high=[1e-4] * 600)
    fire = FirstFire(rule="LossNotFinite", step=18_000, at=START + 1_800.0, tensor="loss", reason="NaN.", episodes=[])
    empty = training_report(TrainingDigest(), [])
    training = replace(
        empty, steps=600, first_step=0, last_step=35_940, modes={"TRAIN": 600}, series=[loss, rate], fires=[fire]
    )
    return replace(bad_report(), training=training)


@functools.cache
def tiny_report() -> Report:
    """One GPU, one minute in one bucket, and nothing else collected."""
    axis = TimeAxis(start=START, bucket_s=60.0, buckets=1)
    node = NodeTimeline(node="algo-1", gpus=[GpuTimeline(gpu="gpu0", utilization=Band(mean=[12.5]))])
    timelines = Timelines(axis=axis, nodes=[node], steps=[], phases=[])
    return make_report("tiny", ["algo-1"], 1, timelines)


@functools.cache
def state_report() -> Report:
    """The report from state alone: no time lines."""
    episodes = [episode(600.0, 1_500.0, "algo-1", ["gpu3"]), episode(2_880.0, None, "algo-1", ["gpu3"])]
    return make_report("bert-large-slow", ["algo-1", "algo-2"], 8, None, worst="algo-1/gpu3", episodes=episodes)


@functools.cache
def hostile_report() -> Report:
    """Names and texts that would run or hide something if they were not escaped, and one without end."""
    nodes = [HOSTILE, LONG]
    timelines = make_timelines(nodes=nodes, gpus=2, buckets=60, bucket_s=30.0)
    first = timelines.nodes[0]
    named = replace(first, gpus=[replace(first.gpus[0], gpu=HOSTILE), *first.gpus[1:]])
    phases = [Phase(kind="training", label=HOSTILE, start=START, end=START + 1_800.0)]
    shown = replace(timelines, nodes=[named, timelines.nodes[1]], phases=phases, left_out=[HOSTILE])
    episodes = [episode(900.0, 1_200.0, HOSTILE, [HOSTILE, "gpu1"]), episode(1_500.0, 1_600.0, LONG)]
    more = [finding(HOSTILE, [episode(60.0, None)], severity=HOSTILE)]
    return make_report(
        HOSTILE, nodes, 2, shown, worst=f"{HOSTILE}/gpu0", hostile=HOSTILE, hours=0.5, episodes=episodes, more=more
    )


@functools.cache
def day_report() -> Report:
    """24 hours of two nodes with 8 GPUs in buckets of 30 s, and of 5 s where one zooms in; 8 processes a node."""
    nodes = ["algo-1", "algo-2"]
    timelines = make_timelines(nodes=nodes, gpus=8, buckets=2_880, bucket_s=30.0, slow=[(1, 5)], steps_a_node=8)
    fine = make_timelines(nodes=nodes, gpus=8, buckets=17_280, bucket_s=5.0, slow=[(1, 5)])
    detail = TimelineDetail(axis=fine.axis, nodes=[brief(each) for each in fine.nodes])
    episodes = [episode(3_600.0 * hour, 3_600.0 * (hour + 1.5), "algo-2", ["gpu5"]) for hour in (2.0, 9.0, 17.0)]
    whole = replace(timelines, detail=[detail])
    return make_report("llm-pretrain-day", nodes, 8, whole, worst="algo-2/gpu5", hours=24.0, episodes=episodes)


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
    timelines = Timelines(axis=axis, nodes=[node], steps=[], phases=[])
    return make_report("spiky", ["algo-1"], 1, timelines)


@functools.cache
def large_report() -> Report:
    """24 hours of 128 nodes with 8 GPUs in buckets of 5 minutes, and of one around two onsets; few GPUs are slow."""
    nodes = [f"algo-{i + 1}" for i in range(128)]
    slow = [(40, gpu) for gpu in range(8)] + [(90, 2)]
    timelines = make_timelines(nodes=nodes, gpus=8, buckets=288, bucket_s=300.0, slow=slow, banded=4)
    fine = make_timelines(nodes=nodes, gpus=8, buckets=48, bucket_s=60.0, slow=slow, banded=0)
    axes = [replace(fine.axis, start=START + hour * 3_600.0) for hour in (6.8, 13.8)]
    detail = [TimelineDetail(axis=axis, nodes=[brief(each) for each in fine.nodes]) for axis in axes]
    episodes = [episode(25_200.0, 28_800.0, "algo-41"), episode(50_400.0, 54_000.0, "algo-91", ["gpu2"])]
    whole = replace(timelines, detail=detail)
    return make_report("llm-pretrain-1024", nodes, 8, whole, worst="algo-41/gpu0", hours=24.0, episodes=episodes)
