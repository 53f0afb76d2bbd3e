"""What was collected of the profiler's streams of a job, and what was missing, in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainguard.engine.ordering.grid_order import MINUTE_S
from trainguard.engine.verdicts.liveness import VANISHED_S
from trainguard.families.installed import FAMILIES
from trainguard.families.profiler.system_session import MINUTE_PARTITION
from trainguard.finding import clock_times
from trainguard.records import FIRST_FAMILY, NodeRecord
from trainguard.report.document import NodeCoverage
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.phrasing import shown_time
from trainguard.rules.units import counted, listed, show_duration, show_share
from trainguard.timestamps import iso_time

STREAMS: Mapping[str, str] = {"system": "system metrics", "framework": "framework events"}
BAD_OBJECTS = "bad_objects"
UNREAD_PARTS, CUT_FILES = "unread_parts", "files_cut"
"""What could not be read of another tool's files, and how many of them end inside a record, as a killed job's do."""

LACKING_SHARE = 0.05
"""A fault could hide where so much of a node's time has no samples: nobody may call its job healthy."""

_NAMED_GAPS = 3


@dataclass(frozen=True, slots=True)
class Minutes:
    """Minutes of a system stream, from the first to the last: how many there are, and how many have samples."""

    used: float
    expected: int

    @property
    def share(self) -> float | None:
        """Share, 0 to 1, that could be used; None before the first."""
        return self.used / self.expected if self.expected else None


def minutes_of(record: NodeRecord, judged: EvaluatedJob) -> Minutes:
    """Count a system stream's minutes from its first sample on; what is lost is the time without samples.

    An object that could not be read is known by that, too. One at the end may be cut, and holds less than a minute.
    """
    state = judged.profiler.system[record.key.node].state
    last, first_at = record.cursors.get(MINUTE_PARTITION), state.kept.first_sample_at
    if last is None or first_at is None:
        return Minutes(0, 0)
    expected = max((last - int(first_at // MINUTE_S) * MINUTE_S) // MINUTE_S + 1, 1)
    ended_at = first_at if state.watermark_s is None else state.watermark_s
    tail = max((last - ended_at) / MINUTE_S, 0.0)
    lost = state.kept.missing_s / MINUTE_S + (tail if tail > 1.0 else 0.0)
    return Minutes(max(expected - lost, 0.0), expected)


def lacking_nodes(judged: EvaluatedJob) -> dict[str, str]:
    """Return the nodes of whose time too much has no samples, with how much and when, in words."""
    records = {record.key.node: record for record in judged.streams.records.values() if record.key.stream == "system"}
    counts = {node: minutes_of(record, judged) for node, record in sorted(records.items())}
    return {
        node: _lack(minutes, judged.profiler.system[node].state.kept.gaps)
        for node, minutes in counts.items()
        if minutes.expected and minutes.used < (1.0 - LACKING_SHARE) * minutes.expected
    }


def _lack(minutes: Minutes, gaps: Sequence[tuple[float, float]]) -> str:
    lost_s, whole_s = (minutes.expected - minutes.used) * MINUTE_S, minutes.expected * MINUTE_S
    of = f"{show_duration(lost_s)} of its {show_duration(whole_s)}"
    named = [clock_times(iso_time(start), iso_time(end)) for start, end in gaps[-_NAMED_GAPS:]]
    more = "the newest of them " if len(gaps) > _NAMED_GAPS else ""
    return f"{of} ({more}{listed(named)})" if named else of


def stale_nodes(judged: EvaluatedJob) -> list[str]:
    """Return the nodes that have written no system metrics; no more of them than SageMaker says that there are."""
    known, wrote = set(judged.streams.records), judged.system_nodes
    keys = known | FAMILIES.expected(judged.job, known)
    names = {key.node for key in keys if key.family == FIRST_FAMILY} - set(wrote)
    silent = sorted(names, key=lambda name: (len(name), name))
    instances = judged.job.instance_count
    return silent if instances is None else silent[: max(instances - len(wrote), 0)]


def stopped_nodes(judged: EvaluatedJob) -> dict[str, float]:
    """Return the nodes that stopped writing system metrics long before the others, and how long, seconds."""
    last = judged.profiler.system_through
    behind = {
        node: last - stream.state.watermark_s
        for node, stream in judged.profiler.system.items()
        if last is not None and stream.state.watermark_s is not None and last - stream.state.watermark_s >= VANISHED_S
    }
    return dict(sorted(behind.items(), key=lambda each: -each[1]))


def minutes_covered(judged: EvaluatedJob) -> str:
    """Return the share of all nodes' minutes that could be used, rounded down: what is missing is not hidden."""
    counts = [minutes_of(record, judged) for record in judged.streams.records.values() if record.key.stream == "system"]
    used, expected = sum(each.used for each in counts), sum(each.expected for each in counts)
    return show_share(int(1_000 * used / expected) / 1_000 if expected else 0.0)


def silent_nodes(judged: EvaluatedJob) -> Iterator[str]:
    """Say which nodes wrote nothing of a kind that others wrote."""
    so_far = "" if judged.ended else " so far"
    stale = stale_nodes(judged)
    if stale:
        yield f"{listed(stale)} wrote no system metrics{so_far}."
    framework = set(judged.framework_nodes)
    others = [node for node in judged.system_nodes if node not in framework]
    if framework and others:
        yield f"{listed(others)} wrote no framework events{so_far}, which {listed(sorted(framework))} did."


def late_nodes(judged: EvaluatedJob) -> Iterator[str]:
    """Say which nodes stopped writing long before the others."""
    said = [f"{node} ({show_duration(late_s)})" for node, late_s in stopped_nodes(judged).items()]
    if said:
        yield f"System metrics end before those of the other nodes: {listed(said)}."


def entry_of(record: NodeRecord, judged: EvaluatedJob) -> NodeCoverage:
    """Return what was collected of one stream."""
    node, stream = record.key.node, record.key.stream
    if stream == "system":
        system = judged.profiler.system[node]
        first_at, fault = system.state.kept.first_sample_at, system.state.last_fault
        share = minutes_of(record, judged).share
    else:
        framework = judged.profiler.framework[node]
        first_us = framework.state.first_step_us
        first_at, fault, share = None if first_us is None else first_us / 1e6, framework.state.last_fault, None
    return NodeCoverage(
        node=node,
        stream=stream,
        first_at=shown_time(first_at),
        evaluated_through=shown_time(record.watermark_s),
        closed=record.closed,
        share=share,
        counters=dict(record.counters),
        last_fault=fault,
    )


class ProfilerReport:
    """The profiler's half in reports."""

    def title_of(self, stream: str) -> str:
        """Return what people call a stream."""
        return STREAMS[stream]

    def coverage(self, record: NodeRecord, judged: EvaluatedJob) -> NodeCoverage:
        """Return what was collected of one stream."""
        return entry_of(record, judged)

    def covered(self, judged: EvaluatedJob) -> list[str]:
        """Say what was collected, a clause each."""
        nodes, framework = judged.system_nodes, judged.framework_nodes
        parts = []
        if nodes:
            instances = judged.mig_instances
            lacking = f" with {counted(instances, 'instance')} of partitioned GPUs" if instances else " without GPUs"
            gpus = f" with {counted(judged.gpus, 'GPU')}" if judged.gpus else lacking
            parts.append(
                f"system metrics of {counted(len(nodes), 'node')}{gpus}, {minutes_covered(judged)} of their minutes, "
                f"a point every {judged.interval_s:g} s"
            )
        if framework:
            parts.append(f"framework events of {counted(len(framework), 'node')}")
        return parts

    def missing(self, judged: EvaluatedJob) -> list[str]:
        """Say what was not collected, a sentence each."""
        return [*silent_nodes(judged), *late_nodes(judged)]


REPORT_PARTS = ProfilerReport()
