"""Samples to snapshots.

A node's samplers run in several threads on a grid that drifts: an object's last snapshot may go on in the next one, so
it is always carried, as an open snapshot.
"""

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.formats.profile.snapshots import FULL_CORE, FloatArray, IntArray, Snapshots
from trainguard.formats.profile.system import MAX_SERIES, SHORTEST_INTERVAL_S, MetricSeries, Samples, series_order

SAMPLING_INTERVALS_S = (0.1, 0.2, 0.5, 1.0, 5.0, 60.0)
# SageMaker takes no shorter interval; one of an older version counts as this.
SHORTEST_CONFIGURED_MS = 100

# So near a configured interval a measured one is taken for it; a median of few distances is a rough measure.
_SNAP, _ROUGH_SNAP, _FEW = 0.03, 0.08, 5

_MAX_INTERVAL_S = 120.0
# The kind of a series that is of no column of a snapshot.
_FURTHER = "further"


class OpenSnapshot(msgspec.Struct):
    """A snapshot that later samples may still join; lists have one entry a GPU, NaN where there is no sample."""

    time: float
    gpu_utilization: list[float]
    gpu_memory: list[float]
    cpu_sum: float
    cpu_count: int
    cpu_max: float
    io_wait_max: float
    io_wait_sum: float = 0.0
    io_wait_count: int = 0
    host_memory: float = math.nan
    network: float = math.nan
    cores_full: int = 0


# A median this many times the interval of before is that of missing samples where so many distances are as before.
_STRETCHED, _AS_BEFORE, _OF_DISTANCES = 1.5, 0.25, 0.25

# Distances this near to the interval of before only vary about it; so many of them are needed to estimate it again.
_NEAR, _STEADY = 0.5, 20


def estimate_interval_s(samples: Samples, previous_s: float | None, last_time: float | None) -> float | None:
    """Estimate the sampling interval, seconds: the median distance of one series' samples, or a configured one nearby.

    Where few samples come irregularly, they move the interval by their part of 20 alone: else points half an interval
    apart would be taken for one. With a single sample of each series, the smallest distance to ``last_time``, the
    snapshot before, stands in. Missing samples do not stretch the interval. Returns ``previous_s`` when nothing can be
    said.
    """
    if samples.times.size == 0:
        return previous_s
    busiest = int(np.argmax(np.bincount(samples.series)))
    times = np.sort(samples.times[samples.series == busiest])
    if previous_s is not None and 2 <= times.size < _STEADY:
        moved_s = _moved(previous_s, times if last_time is None else np.append(last_time, times))
        if moved_s is not None:
            return _configured(moved_s, _SNAP)
    distance = _distance(times, previous_s, last_time)
    if distance is None or distance <= 0.0:
        return previous_s
    return _configured(distance, _SNAP if times.size > _FEW else _ROUGH_SNAP)


def _distance(times: FloatArray, previous_s: float | None, last_time: float | None) -> float | None:
    if times.size >= 2:
        distances = np.sort(np.diff(times))
        distance = float(distances[(distances.size - 1) // 2] + distances[distances.size // 2]) / 2.0
        return previous_s if previous_s is not None and _is_stretched(distance, distances, previous_s) else distance
    if last_time is None:
        return None
    distance = float(times[0]) - last_time
    return distance if previous_s is None else min(distance, previous_s)


def _moved(previous_s: float, times: FloatArray) -> float | None:
    """Return the interval of before, moved by the distances that vary about it; None where none does."""
    distances = np.diff(times)
    near = distances[np.abs(distances - previous_s) < _NEAR * previous_s]
    if not near.size:
        return None
    return previous_s + min(near.size / _STEADY, 1.0) * (float(near.mean()) - previous_s)


def _configured(distance: float, within: float) -> float:
    for interval_s in SAMPLING_INTERVALS_S:
        if abs(distance - interval_s) <= within * interval_s:
            return interval_s
    return min(max(distance, SHORTEST_INTERVAL_S), _MAX_INTERVAL_S)


def _is_stretched(median: float, distances: FloatArray, before_s: float) -> bool:
    """Return True where many distances are still those of before: samples are missing."""
    as_before = np.count_nonzero(np.abs(distances - before_s) <= _AS_BEFORE * before_s)
    return median > _STRETCHED * before_s and bool(as_before >= _OF_DISTANCES * distances.size)


def with_times(samples: Samples) -> Samples:
    """Return samples that have the times of the further series where the object has no others, as of divided GPUs."""
    further = [each.times for by_device in samples.devices.by_metric.values() for each in by_device.values()]
    if samples.times.size or not further:
        return samples
    times = np.unique(np.concatenate(further))
    series = np.zeros(times.size, dtype=np.int64)
    return Samples(times, np.zeros(times.size), series, (MetricSeries(_FURTHER, ""),), samples.tally, samples.devices)


def of_gpus(samples: Samples) -> Samples:
    wanted = [column for column, series in enumerate(samples.table) if series.kind in {"gpu", "gpu_memory"}]
    if len(wanted) == len(samples.table):
        return samples
    chosen = np.isin(samples.series, wanted)
    return Samples(samples.times[chosen], samples.values[chosen], samples.series[chosen], samples.table)


def extend_gpu_names(known: tuple[str, ...], samples: Samples) -> tuple[str, ...]:
    """Append the samples' GPUs that are not known yet, gpu2 before gpu10, up to 64 in all."""
    seen = {series.name for series in samples.table if series.kind in {"gpu", "gpu_memory"}}
    new = sorted(seen.difference(known), key=lambda name: series_order(MetricSeries("gpu", name)))
    return (*known, *new)[: max(MAX_SERIES["gpu"], len(known))]


def assemble(
    samples: Samples, open_snapshot: OpenSnapshot | None, *, gpu_names: tuple[str, ...], interval_s: float
) -> tuple[Snapshots, OpenSnapshot | None]:
    """Group samples into snapshots; return the completed ones, and the one that is open now.

    A snapshot holds the samples less than half an interval after its first one; of two samples of one series the later
    line wins. ``gpu_names``, the columns, must contain those of ``samples``. ``interval_s`` is at least
    ``SHORTEST_INTERVAL_S``, which bounds the snapshots of an object.
    """
    if samples.times.size == 0:
        return complete([], gpu_names), open_snapshot
    half_s = max(interval_s, SHORTEST_INTERVAL_S) / 2.0
    starts = _snapshot_starts(np.sort(samples.times, kind="stable"), open_snapshot, half_s)
    rows = np.maximum(np.searchsorted(starts, samples.times, side="right") - 1, 0)
    columns = _columns(samples, rows, starts, gpu_names)
    if open_snapshot is not None:
        _join(columns, open_snapshot)
    last = OpenSnapshot(time=float(starts[-1]), **{name: column[-1].tolist() for name, column in columns.items()})
    return _snapshots(columns, starts[:-1], gpu_names), last


def complete(snapshots: list[OpenSnapshot], gpu_names: tuple[str, ...]) -> Snapshots:
    count, gpus = len(snapshots), len(gpu_names)
    columns = {
        name: np.array([getattr(each, name) for each in snapshots], np.int64 if name in _COUNTS else np.float64)
        for name in _NODE_COLUMNS
    }
    for name in _GPU_COLUMNS:
        rows = [_widened(getattr(each, name), gpus) for each in snapshots]
        columns[name] = np.array(rows, np.float64).reshape(count, gpus)
    return _snapshots(columns, np.array([each.time for each in snapshots], np.float64), gpu_names)


def _snapshot_starts(times: FloatArray, open_snapshot: OpenSnapshot | None, half_s: float) -> FloatArray:
    first = float(times[0]) if open_snapshot is None else open_snapshot.time
    later = times[times.searchsorted(first + half_s) :]
    if later.size == 0:
        return np.array([first])
    after_gap = np.flatnonzero(np.diff(later) >= half_s / 2.0)
    starts, ends = later[np.append(0, after_gap + 1)], later[np.append(after_gap, later.size - 1)]
    if (ends < starts + half_s).all() and (starts[1:] >= starts[:-1] + half_s).all():
        return np.append(first, starts)
    one_by_one, position = [first], 0
    while position < later.size:
        one_by_one.append(float(later[position]))
        position = int(later.searchsorted(one_by_one[-1] + half_s))
    return np.array(one_by_one)


# The fields of N `OpenSnapshot` by name, while they can still be joined: GPUs' are [N, G], others [N].
_Columns = dict[str, NDArray[Any]]

_GPU_COLUMNS = ("gpu_utilization", "gpu_memory")
_COUNTS = ("cpu_count", "cores_full", "io_wait_count")
_SUMS = ("cpu_sum", "io_wait_sum")
_MAXIMA = ("cpu_max", "io_wait_max")
_NODE_COLUMNS = (*_COUNTS, *_SUMS, *_MAXIMA, "host_memory", "network")


def _columns(samples: Samples, rows: IntArray, starts: FloatArray, gpu_names: tuple[str, ...]) -> _Columns:
    matrix = np.full((starts.size, len(samples.table)), np.nan)
    matrix[rows, samples.series] = samples.values
    cpu, io_wait, host_memory, network = (
        matrix[:, [index for index, series in enumerate(samples.table) if series.kind == kind]]
        for kind in ("cpu", "io_wait", "host_memory", "network")
    )
    return {
        "gpu_utilization": _device_columns(matrix, samples.table, "gpu", gpu_names),
        "gpu_memory": _device_columns(matrix, samples.table, "gpu_memory", gpu_names),
        "cpu_sum": np.nansum(cpu, axis=1),
        "cpu_count": _known(cpu),
        "cpu_max": _row_maximum(cpu),
        "cores_full": np.count_nonzero(cpu > FULL_CORE, axis=1).astype(np.int64),
        "io_wait_sum": np.nansum(io_wait, axis=1),
        "io_wait_count": _known(io_wait),
        "io_wait_max": _row_maximum(io_wait),
        "host_memory": _row_maximum(host_memory),
        "network": np.where(_known(network) > 0, np.nansum(network, axis=1), np.nan),
    }


def _join(columns: _Columns, earlier: OpenSnapshot) -> None:
    """Join what the previous object holds of the first snapshot; this object's samples are the later."""
    first = {name: column[:1] for name, column in columns.items()}
    for name in _GPU_COLUMNS:
        first[name][0] = np.where(
            np.isnan(first[name][0]), _widened(getattr(earlier, name), first[name].shape[1]), first[name][0]
        )
    for name in (*_COUNTS, *_SUMS):
        first[name] += getattr(earlier, name)
    for name in _MAXIMA:
        np.fmax(first[name], getattr(earlier, name), out=first[name])
    if math.isnan(first["host_memory"][0]):
        first["host_memory"][0] = earlier.host_memory
    if not math.isnan(earlier.network):
        first["network"][0] = earlier.network + np.nan_to_num(first["network"][0])


def _snapshots(columns: _Columns, times: FloatArray, gpu_names: tuple[str, ...]) -> Snapshots:
    of = {name: column[: times.size] for name, column in columns.items()}
    return Snapshots(
        times=times,
        gpu_names=gpu_names,
        cpu_mean=_mean(of["cpu_sum"], of["cpu_count"]),
        cores_full=np.where(of["cpu_count"] > 0, of["cores_full"].astype(np.float64), np.nan),
        io_wait_mean=_mean(of["io_wait_sum"], of["io_wait_count"]),
        **{name: of[name] for name in (*_GPU_COLUMNS, *_MAXIMA, "host_memory", "network")},
    )


def _known(matrix: FloatArray) -> IntArray:
    known: IntArray = np.count_nonzero(~np.isnan(matrix), axis=1).astype(np.int64)
    return known


def _mean(total: FloatArray, count: IntArray) -> FloatArray:
    mean: FloatArray = np.divide(total, count, out=np.full(total.size, np.nan), where=count > 0)
    return np.round(mean, 2)


def _device_columns(
    matrix: FloatArray, table: tuple[MetricSeries, ...], kind: str, gpu_names: tuple[str, ...]
) -> FloatArray:
    columns = {series.name: index for index, series in enumerate(table) if series.kind == kind}
    result = np.full((matrix.shape[0], len(gpu_names)), np.nan)
    for place, name in enumerate(gpu_names):
        if name in columns:
            result[:, place] = matrix[:, columns[name]]
    return result


def _row_maximum(matrix: FloatArray) -> FloatArray:
    if matrix.shape[1] == 0:
        return np.full(matrix.shape[0], np.nan)
    result: FloatArray = np.fmax.reduce(matrix, axis=1)
    return result


def _widened(values: list[float], width: int) -> FloatArray:
    return np.array([*values, *[np.nan] * (width - len(values))], dtype=np.float64)
