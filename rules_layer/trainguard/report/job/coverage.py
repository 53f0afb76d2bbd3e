"""What was collected of a job, stream by stream, and what was missing or could not be used."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import cast

from msgspec.structs import replace

from trainguard.core.records import FIRST_FAMILY, StreamKey, StreamRecord
from trainguard.core.units import counted, faults_counted, listed, show_duration, show_share
from trainguard.engine.family import Family
from trainguard.engine.installed import FAMILIES
from trainguard.engine.kernels.session import CaptureStreams
from trainguard.engine.ordering.grid_order import MINUTE_S
from trainguard.engine.profiler.system_stream import MINUTE_PARTITION
from trainguard.engine.streams.session import DEGRADED, HARMLESS_COUNTERS
from trainguard.engine.training.family import AnyStepStream, TrainingStreams
from trainguard.engine.training.stream import SCALARS, TRAINING
from trainguard.engine.verdicts.verdict import VANISHED_S
from trainguard.kernels.captures.keys import KERNELS
from trainguard.report.evaluated_job import EvaluatedJob, NodeCoverage, shown_time

STREAMS: Mapping[str, str] = {"system": "system metrics", "framework": "framework events"}
BAD_OBJECTS = "bad_objects"
UNREAD_PARTS, CUT_FILES = "unread_parts", "files_cut"


def minutes_of(record: StreamRecord, judged: EvaluatedJob) -> tuple[float, int]:
    """Return how many minutes of a system stream have samples, and how many there are from its first sample on.

    An object that could not be read counts, too.
    """
    state = judged.profiler.system[record.key.node].state
    last, first_at = record.cursors.get(MINUTE_PARTITION), state.kept.first_sample_at
    if last is None or first_at is None:
        return 0.0, 0
    expected = max((last - int(first_at // MINUTE_S) * MINUTE_S) // MINUTE_S + 1, 1)
    ended_at = first_at if state.watermark_s is None else state.watermark_s
    tail = max((last - ended_at) / MINUTE_S, 0.0)
    lost = state.kept.missing_s / MINUTE_S + (tail if tail > 1.0 else 0.0)
    return max(expected - lost, 0.0), expected


def nodes_without_metrics(judged: EvaluatedJob) -> list[str]:
    """Return the nodes that have written no system metrics; no more of them than SageMaker says that there are."""
    known, wrote = set(judged.streams.records), judged.system_nodes
    keys = known | FAMILIES.expected(judged.job, known)
    names = {key.node for key in keys if key.family == FIRST_FAMILY} - set(wrote)
    silent = sorted(names, key=lambda name: (len(name), name))
    instances = judged.job.instance_count
    return silent if instances is None else silent[: max(instances - len(wrote), 0)]


def silent_nodes(judged: EvaluatedJob) -> Iterator[str]:
    so_far = "" if judged.ended else " so far"
    without_metrics = nodes_without_metrics(judged)
    if without_metrics:
        yield f"{listed(without_metrics)} wrote no system metrics{so_far}."
    framework = set(judged.framework_nodes)
    others = [node for node in judged.system_nodes if node not in framework]
    if framework and others:
        yield f"{listed(others)} wrote no framework events{so_far}, which {listed(sorted(framework))} did."


def late_nodes(judged: EvaluatedJob) -> Iterator[str]:
    """Say which nodes stopped writing system metrics long before the others."""
    last = judged.profiler.system_through
    known = {node: stream.state.watermark_s for node, stream in judged.profiler.system.items()}
    behind = [(last - at, node) for node, at in known.items() if last is not None and at is not None]
    late = sorted((each for each in behind if each[0] >= VANISHED_S), key=lambda each: -each[0])
    if late:
        text = listed([f"{node} ({show_duration(late_s)})" for late_s, node in late])
        yield f"System metrics end before those of the other nodes: {text}."


def stream_coverage(record: StreamRecord, judged: EvaluatedJob) -> NodeCoverage:
    return NodeCoverage(
        node=record.key.node,
        stream=record.key.stream,
        first_at=None,
        evaluated_through=shown_time(record.watermark_s),
        closed=record.closed,
        share=None,
        counters=dict(record.counters),
        last_fault=judged.streams.stream_of(record.key).state.last_fault,
    )


@dataclass(frozen=True, slots=True)
class FamilyCoverage:
    """What a report says about what was collected of a family's streams.

    ``titles`` are what people call them, ``covered`` are phrases and ``missing`` sentences about all of them, ``entry``
    is of one.
    """

    titles: Mapping[str, str]
    covered: Callable[[EvaluatedJob], Sequence[str]]
    missing: Callable[[EvaluatedJob], Sequence[str]]
    entry: Callable[[StreamRecord, EvaluatedJob], NodeCoverage] = stream_coverage

    def title_of(self, stream: str) -> str:
        return self.titles.get(stream, stream)


def coverage_of(family: Family) -> FamilyCoverage:
    """Return a family's half; raises ImportError or AttributeError where ``family.report`` names none."""
    return cast("FamilyCoverage", resolve_name(family.report))


def _profiler_entry(record: StreamRecord, judged: EvaluatedJob) -> NodeCoverage:
    node, entry = record.key.node, stream_coverage(record, judged)
    if record.key.stream == "system":
        first_at = judged.profiler.system[node].state.kept.first_sample_at
        used, expected = minutes_of(record, judged)
        return replace(entry, first_at=shown_time(first_at), share=used / expected if expected else None)
    first_us = judged.profiler.framework[node].state.first_step_us
    return replace(entry, first_at=None if first_us is None else shown_time(first_us / 1e6))


def _profiler_covered(judged: EvaluatedJob) -> list[str]:
    nodes, framework = judged.system_nodes, judged.framework_nodes
    parts = []
    if nodes:
        systems = [record for record in judged.streams.records.values() if record.key.stream == "system"]
        counts = [minutes_of(record, judged) for record in systems]
        used, expected = sum(each for each, _ in counts), sum(each for _, each in counts)
        # Rounded down: what is missing is not hidden.
        covered = show_share(int(1_000 * used / expected) / 1_000 if expected else 0.0)
        instances = judged.mig_instances
        lacking = f" with {counted(instances, 'instance')} of partitioned GPUs" if instances else " without GPUs"
        gpus = f" with {counted(judged.gpus, 'GPU')}" if judged.gpus else lacking
        parts.append(
            f"system metrics of {counted(len(nodes), 'node')}{gpus}, {covered} of their minutes, "
            f"a point every {judged.interval_s:g} s"
        )
    if framework:
        parts.append(f"framework events of {counted(len(framework), 'node')}")
    return parts


PROFILER = FamilyCoverage(
    STREAMS, _profiler_covered, lambda judged: [*silent_nodes(judged), *late_nodes(judged)], _profiler_entry
)

IN_MINUTES = frozenset({"gaps", "late"})


def coverage(judged: EvaluatedJob) -> list[NodeCoverage]:
    families = judged.families
    return [coverage_of(families.of(key)).entry(record, judged) for key, record in judged.streams.records.items()]


def data_covered(judged: EvaluatedJob) -> str:
    parts = [part for family in judged.families for part in coverage_of(family).covered(judged)]
    text = "; ".join(parts) or "nothing was collected yet"
    return f"{text[0].upper()}{text[1:]}."


def data_missing(judged: EvaluatedJob) -> list[str]:
    missing = [sentence for family in judged.families for sentence in coverage_of(family).missing(judged)]
    amounts: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for record in judged.streams.records.values():
        for name, amount in record.counters.items():
            if amount and name not in HARMLESS_COUNTERS:
                title = coverage_of(judged.families.of(record.key)).title_of(record.key.stream)
                amounts[title, name][record.key.node] = amount
    return [*missing, *(_fault(stream, name, nodes) for (stream, name), nodes in sorted(amounts.items()))]


def _by_node(amounts: Mapping[str, int]) -> str:
    if len(amounts) == 1 and sum(amounts.values()) > 1:
        return f"all of {next(iter(amounts))}"
    ranked = sorted(amounts.items(), key=lambda each: (-each[1], each[0]))
    return listed([f"{amount:,} of {node}" for node, amount in ranked])


def _fault(stream: str, name: str, nodes: Mapping[str, int]) -> str:
    total = sum(nodes.values())
    if name in IN_MINUTES:
        verb = "missing" if name == "gaps" else "left out for being late"
        return f"{counted(total, 'minute')} of {stream} {'is' if total == 1 else 'are'} {verb}: {_by_node(nodes)}."
    if name.startswith(DEGRADED):
        return f"State of {stream} was shortened to keep it small ({name.replace('_', ' ')}): {_by_node(nodes)}."
    return f"Not used of {stream}: {faults_counted(total, name)}, {_by_node(nodes)}."


def _captures_covered(judged: EvaluatedJob) -> list[str]:
    family = judged.streams.families.get(KERNELS)
    stream = family.stream if isinstance(family, CaptureStreams) else None
    if stream is None or stream.state.verdict is None:
        return []
    verdict = stream.state.verdict
    traces = counted(verdict.traces, "trace")
    captures = f"{counted(stream.state.captures, 'capture')} of kernel traces, the newest of {traces}"
    snapshots = 0 if verdict.snapshots is None else verdict.snapshots.files
    of_memory = f"the newest {counted(snapshots, 'memory snapshot')}, one of each rank"
    return [*([captures] if verdict.has_traces else []), *([of_memory] if snapshots else [])]


def _captures_missing(judged: EvaluatedJob) -> list[str]:
    waits = any(each.pending for each in judged.streams.records.values() if each.key.family == KERNELS)
    return ["The newest kernel traces are not judged yet."] if waits else []


CAPTURES = FamilyCoverage({KERNELS: "kernel traces"}, _captures_covered, _captures_missing)


def _training_covered(judged: EvaluatedJob) -> list[str]:
    return [
        f"{counted(stream.state.steps, 'step')} of the {TRAINING_STREAMS.title_of(key.stream)}"
        for key, stream in _streams(judged).items()
        if stream.state.steps
    ]


def _training_missing(judged: EvaluatedJob) -> list[str]:
    streams = _streams(judged)
    without = [
        stream.state.no_data
        for key, stream in streams.items()
        if judged.streams.records[key].closed and stream.state.no_data
    ]
    return [*without, *(note for stream in streams.values() for note in stream.state.notes)]


def _streams(judged: EvaluatedJob) -> Mapping[StreamKey, AnyStepStream]:
    family = judged.streams.families.get(TRAINING)
    return family.of_steps if isinstance(family, TrainingStreams) else {}


TRAINING_STREAMS = FamilyCoverage(
    {TRAINING: "tensors of debug-output", SCALARS: "files of scalars"}, _training_covered, _training_missing
)
