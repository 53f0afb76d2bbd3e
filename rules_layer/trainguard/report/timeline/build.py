"""Digests of all nodes to the time lines of a report."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np

from trainguard.core.errors import TimelinePartError
from trainguard.core.finding import severity_rank
from trainguard.formats.profile.snapshots import IntArray
from trainguard.render.numbers import natural
from trainguard.report.timeline.digest import MICROSECONDS, STEPS, NodeDigest
from trainguard.report.timeline.series import Episode, Phase, TimeAxis, TimelineDetail, Timelines, bands_of, shown_axis
from trainguard.report.timeline.shown import (
    FLOAT_BYTES,
    PERCENT_BYTES,
    DeviceForms,
    bytes_a_bucket,
    bytes_taken,
    device_forms,
    node_timeline,
    overall_means,
    part_of,
    step_timelines,
    used_buckets,
)

MAX_PHASES = 200

Loop = Literal["training", "evaluation", "other"]
_LOOPS: tuple[Loop, ...] = ("training", "evaluation", "other")
_MODES: dict[str, Loop] = {"TRAIN": "training", "EVAL": "evaluation"}
_LABELS: dict[Loop, str] = {"training": "Training", "evaluation": "Evaluation", "other": "Other steps"}
_INITIALIZATION = "Initialization"
_FINALIZATION = "Finalization"


def phases_of(
    digests: Sequence[NodeDigest], axis: TimeAxis, *, started_at: float | None, ended_at: float | None
) -> tuple[list[Phase], float]:
    """Return a job's phases in order, at most MAX_PHASES, and the least length of one, seconds.

    Without ``started_at`` and ``ended_at``, epoch seconds, there is no initialization and no finalization. The length
    is ``axis.bucket_s``, or as many times longer as MAX_PHASES takes.
    """
    extents = [extent for digest in digests for extent in digest.extents.values()]
    if not extents:
        return [], axis.bucket_s
    first = min(first_us for first_us, _, _ in extents) / MICROSECONDS
    last = max(end_us for _, end_us, _ in extents) / MICROSECONDS
    time = _time_by_loop(digests, axis)
    together = 1
    while len(runs := _runs(time)) > MAX_PHASES - 2:
        together *= 2
        time = np.add.reduceat(time, np.arange(0, time.shape[1], 2), axis=1)
    width = axis.bucket_s * together
    starts = [first, *(axis.start + bucket * width for bucket, _ in runs[1:])]
    ends = [*starts[1:], last]
    phases = [
        Phase(kind=loop, label=_LABELS[loop], start=start, end=end)
        for (_, loop), start, end in zip(runs, starts, ends, strict=True)
    ]
    if started_at is not None and started_at < first:
        phases.insert(0, Phase(kind="initialization", label=_INITIALIZATION, start=started_at, end=first))
    if ended_at is not None and ended_at > last:
        phases.append(Phase(kind="finalization", label=_FINALIZATION, start=last, end=ended_at))
    return phases, width


def _time_by_loop(digests: Sequence[NodeDigest], axis: TimeAxis) -> IntArray:
    """Return microseconds of the steps that began in each bucket, and one a step: int64[3, buckets]."""
    time = np.zeros((len(_LOOPS), axis.buckets), dtype=np.int64)
    for digest in digests:
        table = digest.tables[STEPS]
        loops = [_LOOPS.index(_MODES.get(mode.rpartition(".")[2], "other")) for _, _, mode in table.keys]
        np.add.at(time, loops, table.totals + table.counts)
    return time


def _runs(time: IntArray) -> list[tuple[int, Loop]]:
    used = np.flatnonzero(time.any(axis=0))
    loops = np.argmax(time[:, used], axis=0)
    begins = np.flatnonzero(np.append(True, np.diff(loops) != 0))
    return [(bucket, _LOOPS[loop]) for bucket, loop in zip(used[begins].tolist(), loops[begins].tolist(), strict=True)]


GPUS_WITH_BANDS = 32
_NAMED = 5


def build_timelines(
    digests: Sequence[NodeDigest], *, episodes: Sequence[Episode], started_at: float | None, ended_at: float | None
) -> Timelines:
    """Return what a report shows over time, without empty buckets before the job's start and after its end.

    ``detail`` holds finer buckets as far as there is room, around the ``episodes`` of a large job. ``started_at`` and
    ``ended_at`` are epoch seconds. Raises TimelinePartError when there is no digest, or their axes differ.
    """
    fine = merged(digests)
    gpus = sum(len(node.tables["gpu"].keys) for node in fine)
    whole = shown_axis(fine[0].axis, gpus, len(fine))
    nodes = [node.joined(whole) for node in fine]
    shown = _shown(nodes, [time for time in (started_at, ended_at) if time is not None])
    banded = _least_busy(nodes)
    steps, steps_left_out = step_timelines(nodes, shown)
    phases, phase_s = phases_of(nodes, whole, started_at=started_at, ended_at=ended_at)
    forms, devices_left_out = device_forms(nodes, shown.stop - shown.start)
    left_out = [*devices_left_out, *steps_left_out, *_not_shown(nodes)]
    if gpus > len(banded):
        said = f"Lowest and highest values are shown for the {len(banded)} least busy of {gpus:,} GPUs, means for all."
        left_out.insert(0, said)
    if phase_s > whole.bucket_s:
        left_out.append(f"Phases are shown in steps of {phase_s:.0f} s: there are more than can be shown.")
    built = Timelines(
        axis=part_of(whole, shown),
        nodes=[node_timeline(node, shown, banded, forms=forms) for node in nodes],
        steps=steps,
        phases=phases,
        left_out=left_out,
    )
    return msgspec.structs.replace(built, detail=details_of(fine, built, banded, forms, episodes))


def merged(digests: Iterable[NodeDigest]) -> list[NodeDigest]:
    """Return one digest a node, algo-2 before algo-10; raises TimelinePartError when there is none or axes differ."""
    nodes: dict[str, NodeDigest] = {}
    axis: TimeAxis | None = None
    for digest in digests:
        if axis is not None and digest.axis != axis:
            raise TimelinePartError(digest.node, f"its axis is {digest.axis}, expected {axis}")
        axis = digest.axis
        nodes.setdefault(digest.node, NodeDigest(digest.node, axis)).merge(digest)
    if not nodes:
        raise TimelinePartError("", "there is none, expected at least one")
    return [nodes[name] for name in sorted(nodes, key=natural)]


def _shown(nodes: Sequence[NodeDigest], times: Sequence[float]) -> slice:
    """Return the buckets from the first to the last value or time; all when there is none."""
    axis = nodes[0].axis
    ranges = [used_buckets([*node.tables.values()]) for node in nodes]
    buckets = [bucket for used in ranges if used is not None for bucket in used]
    if not buckets:
        return slice(0, axis.buckets)
    inside = [min(max(int((time - axis.start) // axis.bucket_s), 0), axis.buckets - 1) for time in times]
    return slice(min([*buckets, *inside]), max([*buckets, *inside]) + 1)


def _least_busy(nodes: Sequence[NodeDigest]) -> set[tuple[str, str]]:
    """Return the (node, GPU) of the lowest mean."""
    means = []
    for node in nodes:
        table = node.tables["gpu"]
        overall = overall_means(table, range(len(table.keys))).tolist()
        means += [
            (mean, natural(node.node), number, node.node, gpu)
            for mean, (number, gpu, _) in zip(overall, table.keys, strict=True)
        ]
    return {(node, gpu) for *_, node, gpu in sorted(means)[:GPUS_WITH_BANDS]}


def _not_shown(nodes: Sequence[NodeDigest]) -> list[str]:
    sentences = []
    outside = {node.node: node.outside for node in nodes}
    if any(outside.values()):
        sentences.append(f"{_on_nodes(outside)} lie outside the time shown.")
    refused = {node.node: sum(table.refused for table in node.tables.values()) for node in nodes}
    if any(refused.values()):
        sentences.append(f"{_on_nodes(refused)} are of more devices or processes than a node is shown with.")
    return sentences


def _on_nodes(counts: dict[str, int]) -> str:
    found = [node for node, count in counts.items() if count]
    names = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    return f"{sum(counts.values()):,} samples or steps on {names}"


# What all series of a page may take; a page of 3 MB has the rest for everything else.
MAX_PAGE_BYTES = 2_600_000

GPU_BYTES, NODE_BYTES = 80, 120

MAX_EPISODES = 12
# A shorter part is shown as it is.
FEWEST_BUCKETS = 60

BEFORE, AFTER = 0.25, 0.1

LEAST_AROUND_S = 120.0


def details_of(
    digests: Sequence[NodeDigest],
    shown: Timelines,
    banded: Collection[tuple[str, str]],
    forms: DeviceForms,
    episodes: Sequence[Episode],
) -> list[TimelineDetail]:
    """Return the parts to show finely, in order of time; none where ``shown`` is as fine as the digests are.

    ``banded`` are the GPUs, as (node, GPU), whose lowest and highest utilization is shown. ``forms`` says which further
    series are shown, and how.
    """
    axis = digests[0].axis
    if axis.bucket_s >= shown.axis.bucket_s:
        return []
    names = NODE_BYTES * len(digests) + GPU_BYTES * sum(len(digest.tables["gpu"].keys) for digest in digests)
    names += bytes_a_bucket(digests, forms)[1]
    room = MAX_PAGE_BYTES - _packed_bytes(shown) - 2 * names
    whole = _buckets(axis, shown.axis.start, shown.axis.start + shown.axis.buckets * shown.axis.bucket_s)
    for bands in (banded, ()):
        if (whole.stop - whole.start) * _bytes_a_bucket(digests, bands, forms) <= room:
            return [_detail(digests, whole, bands, forms)]
    a_bucket = _bytes_a_bucket(digests, (), forms)
    overhead = math.ceil(names / a_bucket)
    parts = _around(episodes, axis, whole, int(room / a_bucket) + overhead, overhead)
    return [_detail(digests, part, (), forms) for part in parts]


def _around(episodes: Sequence[Episode], axis: TimeAxis, whole: slice, fitting: int, overhead: int) -> list[slice]:
    """Return the parts around the most severe episodes; each takes ``overhead`` buckets for names."""
    most = min(max(fitting // (FEWEST_BUCKETS + overhead), 0), MAX_EPISODES)
    chosen = sorted(episodes, key=lambda episode: (-severity_rank(episode[2]), episode[0]))[:most]
    each = fitting // max(len(chosen), 1) - overhead
    parts = []
    for start, end, _ in chosen:
        length = max((axis.start + whole.stop * axis.bucket_s if end is None else end) - start, 0.0)
        before, after = (max(share * length, LEAST_AROUND_S) for share in (BEFORE, AFTER))
        before = min(before, 0.25 * each * axis.bucket_s)
        wanted = _buckets(axis, start - before, start + length + after)
        first = max(wanted.start, whole.start)
        parts.append(slice(first, min(wanted.stop, first + each, whole.stop)))
    return list(_joined(sorted((part for part in parts if part.stop > part.start), key=lambda part: part.start)))


def _joined(parts: Sequence[slice]) -> Iterator[slice]:
    if not parts:
        return
    first, stop = parts[0].start, parts[0].stop
    for part in parts[1:]:
        if part.start > stop:
            yield slice(first, stop)
            first = part.start
        stop = max(stop, part.stop)
    yield slice(first, stop)


def _buckets(axis: TimeAxis, start: float, end: float) -> slice:
    first = math.floor((start - axis.start) / axis.bucket_s + 1e-9)
    stop = math.ceil((end - axis.start) / axis.bucket_s - 1e-9)
    first = min(max(first, 0), axis.buckets - 1)
    return slice(first, min(max(stop, first + 1), axis.buckets))


def _detail(
    digests: Sequence[NodeDigest], part: slice, banded: Collection[tuple[str, str]], forms: DeviceForms
) -> TimelineDetail:
    return TimelineDetail(
        axis=part_of(digests[0].axis, part),
        nodes=[node_timeline(digest, part, banded, brief=True, forms=forms) for digest in digests],
    )


def _bytes_a_bucket(digests: Sequence[NodeDigest], banded: Collection[tuple[str, str]], forms: DeviceForms) -> float:
    percents, floats = 2 * len(banded), 0
    for digest in digests:
        tables = digest.tables
        percents += len(tables["gpu"].keys) + len(tables["gpu_memory"].keys) + len(tables["host_memory"].keys)
        percents += 2 * (len(tables["cpu"].keys) + len(tables["io_wait"].keys))
        floats += 1 if tables["network"].keys else 0
    return max(PERCENT_BYTES * percents + FLOAT_BYTES * floats + bytes_a_bucket(digests, forms)[0], PERCENT_BYTES)


def _packed_bytes(timelines: Timelines) -> float:
    percents = floats = 0
    for node in timelines.nodes:
        for _, quantity, band in bands_of(node):
            values = sum(len(line) for line in (band.mean, band.low, band.high) if line is not None)
            if quantity == "network":
                floats += values
            else:
                percents += values
    devices = sum(bytes_taken(node.devices) for node in timelines.nodes)
    steps = sum(3 * FLOAT_BYTES * len(each.mean_s) + 40 * len(each.slowest) for each in timelines.steps)
    return PERCENT_BYTES * percents + FLOAT_BYTES * floats + devices + steps
