"""Parts of a job's time in finer buckets, as far as a page has room for them.

The most severe episodes share the room; of an episode that is longer than its share, the onset is shown.
"""

import math
from collections.abc import Collection, Iterator, Sequence

from trainguard.core.finding import severity_rank
from trainguard.report.timeline.digest import NodeDigest
from trainguard.report.timeline.series import Band, Episode, TimeAxis, TimelineDetail, Timelines
from trainguard.report.timeline.shown import (
    FLOAT_BYTES,
    PERCENT_BYTES,
    DeviceForms,
    bytes_a_bucket,
    bytes_taken,
    node_timeline,
    part_of,
)

MAX_PAGE_BYTES = 2_600_000
"""What all series of a page may take; a page of 3 MB has the rest for everything else."""

GPU_BYTES, NODE_BYTES = 80, 120

MAX_EPISODES = 12
FEWEST_BUCKETS = 60
"""A shorter part is shown as it is."""

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
    percents, floats, devices = [], [], 0.0
    for node in timelines.nodes:
        percents += [node.cpu, node.io_wait, node.host_memory]
        percents += [band for gpu in node.gpus for band in (gpu.utilization, gpu.memory)]
        floats.append(node.network)
        devices += bytes_taken(node.devices)
    steps = sum(3 * FLOAT_BYTES * len(each.mean_s) + 40 * len(each.slowest) for each in timelines.steps)
    return _band_bytes(percents, PERCENT_BYTES) + _band_bytes(floats, FLOAT_BYTES) + devices + steps


def _band_bytes(bands: Sequence[Band | None], each: float) -> float:
    lines = [line for band in bands if band is not None for line in (band.mean, band.low, band.high)]
    return each * sum(len(line) for line in lines if line is not None)
