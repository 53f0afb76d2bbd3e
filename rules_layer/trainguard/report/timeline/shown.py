"""Further series of GPUs as a report shows them: as many as there is room for."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.report.timeline.buckets import BucketTable
from trainguard.report.timeline.digest import DEVICE_KINDS, HUNDREDTHS, MICROSECONDS, PERCENT, RATE, STEPS, NodeDigest
from trainguard.report.timeline.series import (
    Band,
    DeviceTimeline,
    GpuTimeline,
    NodeTimeline,
    ShownSlowStep,
    StepTimeline,
    TimeAxis,
    Values,
)

_PERCENT_DECIMALS = 1
_SECOND_DECIMALS = 6


def part_of(axis: TimeAxis, shown: slice) -> TimeAxis:
    """Return the shown buckets of an axis as one of its own."""
    start = axis.start + shown.start * axis.bucket_s
    return TimeAxis(start=start, bucket_s=axis.bucket_s, buckets=shown.stop - shown.start)


def percents(table: BucketTable, row: int, shown: slice, *, low: bool, high: bool) -> Band:
    """Return a series of percents, to a tenth."""
    present = table.counts[row, shown] > 0

    def values(column: IntArray) -> Values:
        return _values(column[row, shown] / HUNDREDTHS, present, _PERCENT_DECIMALS)

    mean = _values(_means(table, row, shown) / HUNDREDTHS, present, _PERCENT_DECIMALS)
    return Band(mean=mean, low=values(table.lows) if low else None, high=values(table.highs) if high else None)


def seconds(table: BucketTable, row: int, shown: slice) -> tuple[Values, Values, Values]:
    """Return mean, lowest and highest of a series of microseconds, in seconds."""
    present = table.counts[row, shown] > 0
    columns: tuple[Any, ...] = (_means(table, row, shown), table.lows[row, shown], table.highs[row, shown])
    mean, low, high = (_values(column / MICROSECONDS, present, _SECOND_DECIMALS) for column in columns)
    return mean, low, high


def mean_of_rows(table: BucketTable, rows: Sequence[int], shown: slice) -> Band:
    """Return the mean of all values of some series in each bucket, of hundredths, to a tenth."""
    counts, totals = (column[list(rows), shown].sum(axis=0) for column in (table.counts, table.totals))
    return Band(mean=_values(totals / np.maximum(counts, 1) / HUNDREDTHS, counts > 0, _PERCENT_DECIMALS))


def rate_of_rows(table: BucketTable, rows: Sequence[int], shown: slice, gpus: int = 1) -> Band:
    """Return the sum of some series' means in each bucket, a share for each of ``gpus``, to a whole number."""
    present = (table.counts[list(rows), shown] > 0).any(axis=0)
    total = np.sum([_means(table, row, shown) for row in rows], axis=0) / gpus
    return Band(mean=_listed(np.rint(total).astype(np.int64), present))


def used_buckets(tables: Sequence[BucketTable]) -> tuple[int, int] | None:
    """Return the first and the last bucket in which a table has a value; None when there is none."""
    used = np.flatnonzero(np.any([table.counts.any(axis=0) for table in tables], axis=0))
    return (int(used[0]), int(used[-1])) if used.size else None


def overall_means(table: BucketTable, rows: Sequence[int]) -> FloatArray:
    """Return the mean of all values of each series: float64[len(rows)]."""
    means: FloatArray = table.totals[list(rows)].sum(axis=1) / np.maximum(table.counts[list(rows)].sum(axis=1), 1)
    return means


def _means(table: BucketTable, row: int, shown: slice) -> FloatArray:
    means: FloatArray = table.totals[row, shown] / np.maximum(table.counts[row, shown], 1)
    return means


def _values(values: FloatArray, present: Any, decimals: int) -> Values:
    return _listed(np.round(values, decimals), present)


def _listed(values: Any, present: Any) -> Values:
    listed = values.astype(object)
    listed[~present] = None
    entries: Values = listed.tolist()
    return entries


# What these series of the whole job may take on a page of 3 MB.
ROOM_BYTES = 500_000

# A value as base64 on the page: of a percentage one byte, of anything else four.
PERCENT_BYTES, FLOAT_BYTES = 4 / 3, 16 / 3

NAME_BYTES = 70

DeviceForms = Mapping[str, bool]

_SIZES = {kind: PERCENT_BYTES if unit == PERCENT else FLOAT_BYTES for kind, (_, unit, _) in DEVICE_KINDS.items()}


def device_forms(digests: Sequence[NodeDigest], buckets: int) -> tuple[DeviceForms, list[str]]:
    """Return what is shown over so many buckets, and sentences on what is not.

    A kind without room for a line a GPU has the mean of each node's GPUs, and else no line.
    """
    forms: dict[str, bool] = {}
    left_out, room = [], float(ROOM_BYTES)
    for kind, (title, _, _) in DEVICE_KINDS.items():
        gpus = sum(len(_rows_by_gpu(digest.tables[kind])) for digest in digests)
        nodes = sum(bool(digest.tables[kind].keys) for digest in digests)
        if not nodes:
            continue
        each = buckets * _SIZES[kind] + NAME_BYTES
        for by_gpu, lines in ((True, gpus), (False, nodes)):
            if lines * each <= room:
                forms[kind] = by_gpu
                room -= lines * each
                break
        else:
            left_out.append(f"{title} is left out: a report of so many nodes has no room for it.")
        if forms.get(kind) is False:
            left_out.append(f"{title} is shown as the mean of each node's GPUs.")
    return forms, left_out


def device_timelines(digest: NodeDigest, shown: slice, forms: DeviceForms) -> list[DeviceTimeline]:
    found = []
    for kind, (_, unit, _) in DEVICE_KINDS.items():
        table = digest.tables[kind]
        by_gpu = _rows_by_gpu(table)
        if kind not in forms or not by_gpu:
            continue
        if forms[kind]:
            lines: list[tuple[str | None, list[int], int]] = [(gpu, rows, 1) for gpu, rows in by_gpu.items()]
        else:
            lines = [(None, [row for own in by_gpu.values() for row in own], len(by_gpu))]
        for gpu, rows, gpus in lines:
            band = rate_of_rows(table, rows, shown, gpus) if unit == RATE else mean_of_rows(table, rows, shown)
            found.append(DeviceTimeline(kind=kind, gpu=gpu, band=band))
    return found


def bytes_a_bucket(digests: Sequence[NodeDigest], forms: DeviceForms) -> tuple[float, int]:
    """Return what these series take on the page in each bucket, and beside that in each part that is shown."""
    taken, lines = 0.0, 0
    for kind in DEVICE_KINDS:
        tables = [digest.tables[kind] for digest in digests] if kind in forms else []
        own = sum(len(_rows_by_gpu(table)) if forms[kind] else bool(table.keys) for table in tables)
        taken, lines = taken + own * _SIZES[kind], lines + own
    return taken, NAME_BYTES * lines


def bytes_taken(shown: Sequence[DeviceTimeline]) -> float:
    """Return what series take on the page."""
    return sum(_SIZES[each.kind] * len(each.band.mean) + NAME_BYTES for each in shown)


def _rows_by_gpu(table: BucketTable) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, (_, gpu, _) in enumerate(table.keys):
        rows.setdefault(gpu, []).append(row)
    return rows


def node_timeline(
    digest: NodeDigest,
    shown: slice,
    banded: Collection[tuple[str, str]],
    *,
    brief: bool = False,
    forms: DeviceForms | None = None,
) -> NodeTimeline:
    """Return a node's series over the ``shown`` part of its axis.

    Of ``banded`` GPUs, as (node, GPU), the range of utilization is shown; ``brief`` shows memory as means alone.
    ``forms`` says which further series are shown, none by default.
    """
    tables = digest.tables

    def only(kind: str, *, low: bool, high: bool) -> Band | None:
        return percents(tables[kind], 0, shown, low=low, high=high) if tables[kind].keys else None

    network = tables["network"]
    return NodeTimeline(
        node=digest.node,
        gpus=_gpus(digest, shown, banded, brief=brief),
        cpu=only("cpu", low=False, high=True),
        io_wait=only("io_wait", low=False, high=True),
        host_memory=only("host_memory", low=not brief, high=not brief),
        network=rate_of_rows(network, range(len(network.keys)), shown) if network.keys else None,
        devices=device_timelines(digest, shown, forms or {}),
    )


def _gpus(digest: NodeDigest, shown: slice, banded: Collection[tuple[str, str]], *, brief: bool) -> list[GpuTimeline]:
    utilization, memory = digest.tables["gpu"], digest.tables["gpu_memory"]
    gpus = []
    for row, key in enumerate(utilization.keys):
        has_band = (digest.node, key[1]) in banded
        both = has_band and not brief
        memory_row = memory.row_of(key)
        gpus.append(
            GpuTimeline(
                gpu=key[1],
                utilization=percents(utilization, row, shown, low=has_band, high=has_band),
                memory=None if memory_row is None else percents(memory, memory_row, shown, low=both, high=both),
            )
        )
    return gpus


MAX_PROCESSES = 32
SLOWEST_OF_ALL = 2_000
FEWEST_SLOWEST = 10
_NAMED = 20

Process = tuple[str, str]
# Digest, row of its table of steps, process and mode.
_Series = tuple[NodeDigest, int, str, str]


def step_timelines(nodes: Iterable[NodeDigest], shown: slice) -> tuple[list[StepTimeline], list[str]]:
    """Return the steps of at most MAX_PROCESSES processes in order of their names, and who was left out."""
    series = [
        (digest, row, process, mode)
        for digest in nodes
        for row, (_, process, mode) in enumerate(digest.tables[STEPS].keys)
    ]
    ranked = _by_time_lost(series)
    chosen = set(ranked[:MAX_PROCESSES])
    kept = [each for each in series if (each[0].node, each[2]) in chosen]
    slowest = max(FEWEST_SLOWEST, SLOWEST_OF_ALL // max(len(kept), 1))
    return [_timeline(*each, shown, slowest) for each in kept], _left_out(ranked)


def _by_time_lost(series: Sequence[_Series]) -> list[Process]:
    """Order by the time that steps took beyond the median of the processes' mean steps."""
    means = defaultdict(list)
    for digest, row, _, mode in series:
        table = digest.tables[STEPS]
        means[mode].append(float(table.totals[row].sum()) / float(table.counts[row].sum()))
    typical = {mode: median(values) for mode, values in means.items()}
    lost: defaultdict[Process, float] = defaultdict(float)
    for digest, row, process, mode in series:
        beyond = digest.tables[STEPS].totals[row] - digest.tables[STEPS].counts[row] * typical[mode]
        lost[digest.node, process] += float(np.maximum(beyond, 0.0).sum())
    return sorted(lost, key=lambda owner: -lost[owner])


def _timeline(digest: NodeDigest, row: int, process: str, mode: str, shown: slice, slowest: int) -> StepTimeline:
    mean, low, high = seconds(digest.tables[STEPS], row, shown)
    _, _, kept = digest.extents[0, process, mode]
    return StepTimeline(
        node=digest.node,
        process=process,
        mode=mode,
        steps=int(digest.tables[STEPS].counts[row].sum()),
        mean_s=mean,
        low_s=low,
        high_s=high,
        slowest=[
            ShownSlowStep(at=start_us / MICROSECONDS, step=number, duration_s=duration_us / MICROSECONDS)
            for start_us, duration_us, number in sorted(kept[:slowest])
        ],
    )


def _left_out(ranked: Sequence[Process]) -> list[str]:
    hidden = sorted(process for _, process in ranked[MAX_PROCESSES:])
    if not hidden:
        return []
    names = ", ".join(hidden[:_NAMED]) + (f" and {len(hidden) - _NAMED:,} more" if len(hidden) > _NAMED else "")
    return [f"Steps are shown of the {MAX_PROCESSES} processes that lost most time in them; left out: {names}."]
