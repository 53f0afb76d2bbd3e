"""A node's objects folded into the buckets of one axis, in any order, and the series of its GPUs."""

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from trainguard.core.errors import TimelinePartError
from trainguard.engine.family import ObjectSource
from trainguard.engine.profiler.listing import trace_of
from trainguard.formats.profile import snapshots as names
from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object
from trainguard.formats.profile.events import StepBatch
from trainguard.formats.profile.keys import FrameworkKey
from trainguard.formats.profile.snapshots import DeviceSamples, FloatArray, IntArray, device_order
from trainguard.formats.profile.system import MAX_SERIES, MetricSeries, Samples, series_order
from trainguard.report.timeline.buckets import BucketTable, Key, StoredTable
from trainguard.report.timeline.series import FINER, MAX_BUCKETS, TimeAxis
from trainguard.state.histogram import MAX_DURATION_US

MOST_GPUS = 64


# Units of values from 0 to 100, and of rates; a rate has no decimals, any other value has two.
PERCENT, RATE = "%", "bytes per second"

# Title, unit and metrics of each quantity of a GPU.
DEVICE_KINDS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "sm_activity": ("SM activity", PERCENT, (names.SM_ACTIVITY,)),
    "memory_used": ("GPU memory in use", PERCENT, (names.MEMORY_USED,)),
    "tensor_activity": ("Tensor core activity", PERCENT, (names.TENSOR_ACTIVITY,)),
    "dram_activity": ("Use of GPU memory's bandwidth", PERCENT, (names.DRAM_ACTIVITY,)),
    "sm_occupancy": ("SM occupancy", PERCENT, (names.SM_OCCUPANCY,)),
    "power": ("GPU power", "watts", (names.POWER,)),
    "sm_clock": ("SM clock", "MHz", (names.SM_CLOCK,)),
    "temperature": ("GPU temperature", "°C", (names.TEMPERATURE,)),
    "nvlink": ("NVLink, both directions", RATE, (names.NVLINK_SENT, names.NVLINK_RECEIVED)),
    "pcie": ("PCIe, both directions", RATE, (names.PCIE_SENT, names.PCIE_RECEIVED)),
}

KIND_LIMITS = {kind: MOST_GPUS * len(metrics) for kind, (_, _, metrics) in DEVICE_KINDS.items()}


def device_series(devices: DeviceSamples) -> Iterator[tuple[str, Key, FloatArray, FloatArray]]:
    """Yield kind, key, times (epoch seconds, float64[N]) and values (float64[N]) of one object's series.

    Memory in use, percent of the GPU's, is left out where the GPU's memory is not in the same object.
    """
    totals = devices.of(names.MEMORY_TOTAL)
    for kind, (_, _, metrics) in DEVICE_KINDS.items():
        for metric in metrics:
            for device, series in devices.of(metric).items():
                if not device.startswith("gpu"):
                    continue
                number = device_order(device)[0]
                values = series.values
                if kind == "memory_used":
                    if device not in totals or totals[device].last <= 0.0:
                        continue
                    values = np.minimum(100.0 * values / totals[device].last, 100.0)
                yield kind, (number, device, metric if len(metrics) > 1 else ""), series.times, values
    for device, series in devices.of(names.MEMORY_SHARE).items():
        if device.startswith("gpu") and device not in devices.of(names.MEMORY_USED):
            yield "memory_used", (device_order(device)[0], device, ""), series.times, series.values


# Processes times modes of one node.
MAX_STEP_SERIES = 64

KEPT_SLOWEST = 200
MICROSECONDS = 1_000_000


# A slow step: epoch microseconds, microseconds, and its number as the framework wrote it.
KeptStep = tuple[int, int, str]

# Of one series: when its first step began and its last one ended, epoch µs; its slowest, the slowest first.
Extent = tuple[int, int, list[KeptStep]]

# Steps as bytes: how many lie outside the axis, their table, and extents in the order of its series.
StoredSteps = tuple[int, StoredTable, list[Extent]]


def _extent(batch: StepBatch, rows: IntArray, durations: IntArray) -> Extent:
    starts = batch.starts_us[rows]
    first, end = int(starts.min()), int((starts + durations).max())
    if rows.size > KEPT_SLOWEST:
        least = np.partition(durations, -KEPT_SLOWEST)[-KEPT_SLOWEST]
        slow = durations >= least
        rows, starts, durations = rows[slow], starts[slow], durations[slow]
    numbers = (batch.numbers[row] for row in rows.tolist())
    return first, end, _slowest(zip(starts.tolist(), durations.tolist(), numbers, strict=True))


def _slowest(steps: Iterable[KeptStep]) -> list[KeptStep]:
    return sorted(steps, key=lambda step: (-step[1], step[0], step[2]))[:KEPT_SLOWEST]


# Percents are folded in as whole hundredths, so that sums are exact.
HUNDREDTHS = 100

# Beyond every device; a higher rate counts as this.
MAX_RATE = 10**12

MOST_BUCKETS = FINER * MAX_BUCKETS

STEPS = "steps"
# Cores are one series, of which the mean and the busiest is shown.
_LIMITS = MAX_SERIES | {"cpu": 1, "io_wait": 1} | KIND_LIMITS | {STEPS: MAX_STEP_SERIES}

_MAGIC = b"TGTL"
_FORMAT = 1
_LEVEL = 6
_MAX_UNPACKED_BYTES = 64 * 1024 * 1024


# `NodeDigest` as bytes: node, axis, samples outside it, tables by kind, steps.
_StoredDigest = tuple[str, TimeAxis, int, dict[str, StoredTable], StoredSteps]


class NodeDigest:
    """What one node was like over time; objects are added once each, in any order.

    ``axis`` is at most MOST_BUCKETS long. ``tables`` hold hundredths of a percent, and bytes per second of rates, by
    kind as in MAX_SERIES. That of ``steps`` holds microseconds in the bucket of a step's start, by keys (0, process,
    mode), which have ``extents``, too. ``outside`` counts samples and steps before the axis or after it.
    """

    def __init__(self, node: str, axis: TimeAxis) -> None:
        self.node = node
        self.axis = axis
        self.tables = {kind: BucketTable(axis.buckets, limit) for kind, limit in _LIMITS.items()}
        self.extents: dict[Key, Extent] = {}
        self.outside = 0

    def add(self, parsed: Samples | FrameworkEvents) -> None:
        """Add one object; of a framework object steps alone are used."""
        if isinstance(parsed, Samples):
            self.add_samples(parsed)
        else:
            self.add_events(parsed)

    def add_samples(self, samples: Samples) -> None:
        self._add_devices(samples.devices)
        buckets = np.floor((samples.times - self.axis.start) / self.axis.bucket_s)
        inside = (buckets >= 0) & (buckets < self.axis.buckets)
        if inside.all():
            values, series = samples.values, samples.series
        else:
            self.outside += int(inside.size - np.count_nonzero(inside))
            buckets, values, series = buckets[inside], samples.values[inside], samples.series[inside]
        places = buckets.astype(np.int64)
        kinds = np.array([_KIND_NUMBERS[each.kind] for each in samples.table], dtype=np.int64)[series]
        for number in np.flatnonzero(np.bincount(kinds, minlength=len(_KINDS))).tolist():
            rows = np.flatnonzero(kinds == number)
            kind = _KINDS[number]
            keys, index = _keys_of(kind, samples.table)
            self.tables[kind].add(keys, index[series[rows]], places[rows], _whole(kind, values[rows]))

    def _add_devices(self, devices: DeviceSamples) -> None:
        """Add further series; samples outside the axis are counted with the managed ones of their object."""
        for kind, key, times, values in device_series(devices):
            places = np.floor((times - self.axis.start) / self.axis.bucket_s)
            inside = (places >= 0) & (places < self.axis.buckets)
            scaled = values[inside] * (1 if DEVICE_KINDS[kind][1] == RATE else HUNDREDTHS)
            whole: IntArray = np.rint(np.clip(scaled, 0, MAX_RATE)).astype(np.int64)
            self.tables[kind].add([key], np.zeros(whole.size, dtype=np.int64), places[inside].astype(np.int64), whole)

    def add_events(self, events: FrameworkEvents) -> None:
        for batch in events.steps:
            self._add_steps(batch)

    def _add_steps(self, batch: StepBatch) -> None:
        axis = self.axis
        buckets = (batch.starts_us - round(axis.start * MICROSECONDS)) // round(axis.bucket_s * MICROSECONDS)
        rows = np.flatnonzero((buckets >= 0) & (buckets < axis.buckets))
        self.outside += int(batch.starts_us.size - rows.size)
        if not rows.size:
            return
        key = (0, batch.process, batch.mode)
        durations = np.clip(batch.durations_us[rows], 0, MAX_DURATION_US)
        self.tables[STEPS].add([key], np.zeros(rows.size, dtype=np.int64), buckets[rows], durations)
        self._widen({key: _extent(batch, rows, durations)})

    def merge(self, other: "NodeDigest") -> None:
        if (other.node, other.axis) != (self.node, self.axis):
            raise TimelinePartError(
                other.node, f"it is of {other.node} on {other.axis}, expected {self.node} on {self.axis}"
            )
        for kind, table in self.tables.items():
            table.merge(other.tables[kind])
        self._widen(other.extents)
        self.outside += other.outside

    def joined(self, axis: TimeAxis) -> "NodeDigest":
        """Return the digest on an ``axis`` of which each bucket joins whole buckets of this one's."""
        if axis == self.axis:
            return self
        starts = axis.start + np.arange(axis.buckets) * axis.bucket_s
        edges = np.maximum(np.rint((starts - self.axis.start) / self.axis.bucket_s), 0.0).astype(np.int64)
        joined = NodeDigest(self.node, axis)
        joined.tables = {kind: table.joined(edges) for kind, table in self.tables.items()}
        joined.extents, joined.outside = self.extents, self.outside
        return joined

    def encode(self) -> bytes:
        """Return the digest as bytes; equal digests give equal bytes."""
        tables = {kind: table.stored() for kind, table in self.tables.items() if table.keys and kind != STEPS}
        table = self.tables[STEPS]
        steps: StoredSteps = 0, table.stored(), [self.extents[key] for key in table.keys]
        stored: _StoredDigest = self.node, self.axis, self.outside, tables, steps
        return _MAGIC + bytes([_FORMAT]) + zlib.compress(msgspec.msgpack.encode(stored), _LEVEL)

    def _widen(self, extents: Mapping[Key, Extent]) -> None:
        """Take in extents of steps; those of series without a place are dropped."""
        for key, (first_us, end_us, slowest) in extents.items():
            own_first_us, own_end_us, own = self.extents.get(key, (first_us, end_us, []))
            self.extents[key] = min(first_us, own_first_us), max(end_us, own_end_us), _slowest([*own, *slowest])
        keys = self.tables[STEPS].keys
        if len(self.extents) > len(keys):
            self.extents = {key: self.extents[key] for key in keys}


class NodeDigests(dict[str, NodeDigest]):
    """One digest of each node that was met."""

    def __init__(self, axis: TimeAxis) -> None:
        super().__init__()
        self._axis = axis

    def __missing__(self, node: str) -> NodeDigest:
        digest = self[node] = NodeDigest(node, self._axis)
        return digest

    def add(self, node: str, parsed: Samples | FrameworkEvents) -> None:
        self[node].add(parsed)

    def in_order(self) -> list[NodeDigest]:
        return [self[node] for node in sorted(self)]


def decode_digest(data: bytes, part: str = "") -> NodeDigest:
    """Undo `NodeDigest.encode`; ``part`` is where the bytes come from, for the error.

    Raises TimelinePartError when the bytes are damaged, or of a format that this version does not read.
    """
    header = len(_MAGIC) + 1
    if data[:header] != _MAGIC + bytes([_FORMAT]):
        raise TimelinePartError(part, f"begins with {data[:header]!r}, expected {_MAGIC!r} and format {_FORMAT}")
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(data[header:], _MAX_UNPACKED_BYTES)
        if not unpacker.eof:
            raise ValueError(f"truncated, or larger than {_MAX_UNPACKED_BYTES} bytes")
        return _restored(msgspec.msgpack.decode(text, type=_StoredDigest))
    except (zlib.error, ValueError, RecursionError) as fault:
        raise TimelinePartError(part, f"damaged ({fault})") from fault


def _restored(stored: _StoredDigest) -> NodeDigest:
    node, axis, outside, tables, (steps_outside, steps, extents) = stored
    if not (1 <= axis.buckets <= MOST_BUCKETS and 1.0 <= axis.bucket_s < math.inf and math.isfinite(axis.start)):
        raise ValueError(f"{axis.buckets} buckets of {axis.bucket_s} s, expected 1 to {MOST_BUCKETS} of 1 s or more")
    digest = NodeDigest(node, axis)
    digest.outside = outside + steps_outside
    for kind, table in {**tables, STEPS: steps}.items():
        if kind not in digest.tables:
            raise ValueError(f"a series of kind {kind}, expected one of {', '.join(digest.tables)}")
        digest.tables[kind] = BucketTable.restored(table, axis.buckets, _LIMITS[kind])
    digest.extents = dict(zip(digest.tables[STEPS].keys, extents, strict=True))
    return digest


_KINDS = tuple(_LIMITS)
_KIND_NUMBERS: dict[str, int] = {kind: number for number, kind in enumerate(_KINDS)}
_ALL_CORES: Key = (0, "", "")


def _keys_of(kind: str, table: tuple[MetricSeries, ...]) -> tuple[list[Key], IntArray]:
    """Return the keys of the series of a kind, and int64[len(table)], their places among the keys."""
    index = np.zeros(len(table), dtype=np.int64)
    if _LIMITS[kind] == 1:
        return [_ALL_CORES], index
    rows = [row for row, series in enumerate(table) if series.kind == kind]
    index[rows] = np.arange(len(rows))
    return [(*series_order(table[row])[1:], "") for row in rows], index


def _whole(kind: str, values: FloatArray) -> IntArray:
    scaled: Any = np.minimum(values, MAX_RATE) if kind == "network" else values * HUNDREDTHS
    whole: IntArray = np.rint(scaled).astype(np.int64)
    return whole


def read_framework(source: ObjectSource, key: str, parsed: FrameworkKey) -> FrameworkEvents:
    """Read a timeline, or the TensorFlow trace that the metadata ``key`` describes.

    Raises TelemetryFormatError when it cannot be read or there is no trace to the metadata; ObjectMissingError when the
    object is gone; PortUnavailableError.
    """
    process = f"{parsed.node}-{parsed.process}"
    if parsed.start_us is not None:
        key = trace_of(source, key, parsed)
    return read_framework_object(
        key, source.get(key), process=process, end_us=parsed.end_us, kind=parsed.kind, start_us=parsed.start_us
    )
