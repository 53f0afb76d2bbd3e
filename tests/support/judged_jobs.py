"""Jobs judged by hand: what the parts of a report are written from, without a profile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tests.support.ledgers import HOUR_S, Part, ledger_of, node_time
from trainguard.core.records import JobRecord, JobStatus, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.profiler.framework_session import FrameworkState, FrameworkStream
from trainguard.engine.profiler.system_stream import SystemState, SystemStream
from trainguard.engine.streams.job_streams import JobState, JobStreams
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import CostEstimate, PaidTime
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.rules.overall_system_usage.rule import OverallSystemUsage, UsageState
from trainguard.state.gpu_time import IdleRuns
from trainguard.state.histogram import PercentCounts
from trainguard.state.sample_window import SampleWindowState

if TYPE_CHECKING:
    from trainguard.engine.streams.session import AnyStream

START = 1_795_248_000.0
# USD 3.825 an hour.
P3 = "ml.p3.2xlarge"

JOB = JobRecord(
    "bert", "arn:bert", "profiles", "", JobStatus.IN_PROGRESS, instance_type=P3, instance_count=1, started_at=START
)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of a job: its GPUs, how busy they were (percent), and what was read and not read of it.

    What its GPUs left undone has no source, unless ``lost`` says what its time went into.
    ``paused`` points were left out as pauses, beside 800 that were kept. ``missing_s`` of its time have no samples, in
    ``gaps`` as far as these are long.
    """

    name: str = "algo-1"
    gpus: int = 1
    use: float | None = 93.0
    hours: float = 10.0
    interval_s: float | None = 0.5
    counters: Mapping[str, int] = field(default_factory=dict)
    cursors: Mapping[str, int] = field(default_factory=dict)
    closed: bool = False
    silent: bool = False
    framework: FrameworkState | None = None
    paused: int = 0
    missing_s: float = 0.0
    gaps: Sequence[tuple[float, float]] = ()
    lost: Sequence[Part] | None = None


def judged_job(
    *verdicts: RuleOutcome,
    job: JobRecord = JOB,
    nodes: Sequence[Node] = (Node(),),
    by_node: Mapping[str, Mapping[str, RuleOutcome]] | None = None,
    settings: Mapping[str, str] | None = None,
) -> EvaluatedJob:
    """Return a job with such verdicts, of which the account is of ten hours by default."""
    job = replace(job, rule_settings=settings or {})
    plan = FAMILIES.plan(job)
    records = {record.key: record for node in nodes for record in _records(node)}
    of_nodes: dict[StreamKey, AnyStream] = {
        StreamKey(job.job, node.name, "system"): SystemStream(node.name, _system(node), plan) for node in nodes
    }
    for node in nodes:
        if node.framework is not None:
            key = StreamKey(job.job, node.name, "framework")
            of_nodes[key] = FrameworkStream(node.name, node.framework, plan)
    streams = JobStreams(
        families={PROFILER.name: PROFILER.streams_of(records, of_nodes)},
        records=records,
        job_item=StreamRecord(StreamKey.own(job.job)),
        state=JobState(),
    )
    paid_time = PaidTime(
        job.instance_type, job.started_at, streams.watermark_s, max(len(nodes), job.instance_count or 0)
    )
    ledger = _ledger(nodes, paid_time)
    return EvaluatedJob(
        job=job,
        plan=plan,
        streams=streams,
        verdicts=verdicts,
        by_node={} if by_node is None else by_node,
        paid_time=paid_time,
        ledger_once=lambda: ledger,
    )


def in_job(verdict: RuleOutcome) -> RuleOutcome:
    """Return a verdict whose episodes are of hours since the job's start."""
    moved = [
        replace(each, start=START + each.start, end=None if each.end is None else START + each.end)
        for each in verdict.episodes
    ]
    return replace(verdict, merged=tuple(moved))


def _ledger(nodes: Sequence[Node], paid_time: PaidTime) -> Ledger:
    estimate = paid_time.estimate()
    return ledger_of(
        *(
            node_time(node.name, *_parts(node), hours=node.hours, gpus=node.gpus, start=START)
            for node in nodes
            if node.gpus and node.use is not None and not node.silent
        ),
        hourly=estimate.hourly if isinstance(estimate, CostEstimate) else None,
    )


def _parts(node: Node) -> Sequence[Part]:
    if node.lost is not None:
        return node.lost
    return [(0.0, node.hours, {Bucket.UNEXPLAINED: 1.0 - (node.use or 0.0) / 100.0})]


def ended(job: JobRecord = JOB, *, hours: float = 10.0) -> JobRecord:
    """Return a job that has ended after so many hours."""
    return replace(job, status=JobStatus.COMPLETED, closing=True, ended_at=START + hours * HOUR_S)


def _records(node: Node) -> list[StreamRecord]:
    watermark_s = None if node.silent else START + node.hours * HOUR_S
    shared: dict[str, Any] = {"watermark_s": watermark_s, "closed": node.closed}
    system = StreamRecord(
        StreamKey(JOB.job, node.name, "system"), 1, cursors=node.cursors, counters=node.counters, **shared
    )
    framework = StreamRecord(StreamKey(JOB.job, node.name, "framework"), 1, **shared)
    return [system] if node.framework is None else [system, framework]


def _system(node: Node) -> SystemState:
    if node.silent:
        return SystemState()
    usage = UsageState(snapshots=100)
    if node.use is not None:
        usage.percents["GPU"] = PercentCounts()
        usage.percents["GPU"].add(np.full(100, node.use))
    return SystemState(
        interval_s=node.interval_s,
        gpu_names=[f"gpu{index}" for index in range(node.gpus)],
        kept=SampleWindowState(
            first_sample_at=START,
            kept_total=800,
            gaps=[*node.gaps],
            missing_s=node.missing_s,
            idle_time=IdleRuns(paused=node.paused),
        ),
        watermark_s=START + node.hours * HOUR_S,
        stored_rules={OverallSystemUsage.name: StoredRule(data=msgspec.msgpack.encode(usage))},
    )
