"""A node's objects folded into the buckets of one axis, whatever their order and however they were shared out."""

import math
import zlib
from typing import Any

import msgspec
import numpy as np

from trainguard.errors import TimelinePartError
from trainguard.telemetry.devices import DeviceSamples
from trainguard.telemetry.framework import FrameworkEvents
from trainguard.telemetry.snapshots import FloatArray, IntArray
from trainguard.telemetry.system import MAX_SERIES, Samples, Series, series_order
from trainguard.timeline.axis import FINER, MAX_BUCKETS
from trainguard.timeline.buckets import BucketTable, Key, StoredTable
from trainguard.timeline.device_kinds import KIND_LIMITS, device_series
from trainguard.timeline.series import TimeAxis
from trainguard.timeline.steps import StepDigest, StoredSteps

HUNDREDTHS = 100
"""Percents are folded in as whole hundredths, so that sums are exact."""

MAX_RATE = 10**12
"""A terabyte a second, beyond every device; a higher rate counts as this."""

MOST_BUCKETS = FINER * MAX_BUCKETS
"""No axis of a digest is longer."""

_LIMITS = MAX_SERIES | {"cpu": 1, "io_wait": 1} | KIND_LIMITS
"""Series of each kind; cores are one, of which the mean and the busiest is shown."""

_MAGIC = b"TGTL"
_FORMAT = 1
_LEVEL = 6
_MAX_UNPACKED_BYTES = 64 * 1024 * 1024


class _StoredDigest(msgspec.Struct, array_like=True):
    node: str
    axis: TimeAxis
    outside: int
    tables: dict[str, StoredTable]
    steps: StoredSteps


class NodeDigest:
    """What one node was like over time; objects are added once each, in any order.

    Parameters
    ----------
    node : str
    axis : TimeAxis
        At most MOST_BUCKETS long.

    Attributes
    ----------
    tables : dict of str to BucketTable
        By the kind of series, as MAX_SERIES has them; hundredths of a percent, bytes per second of rates.
    steps : StepDigest
    outside : int
        Samples that lie before the axis or after it.
    """

    def __init__(self, node: str, axis: TimeAxis) -> None:
        self.node = node
        self.axis = axis
        self.tables = {kind: BucketTable(axis.buckets, limit) for kind, limit in _LIMITS.items()}
        self.steps = StepDigest(axis)
        self.outside = 0

    def add_samples(self, samples: Samples) -> None:
        """Add one object of system metrics."""
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
        """Add further series; what lies outside the axis is counted with the managed ones of its object."""
        for kind, key, times, values in device_series(devices):
            places = np.floor((times - self.axis.start) / self.axis.bucket_s)
            inside = (places >= 0) & (places < self.axis.buckets)
            scaled = values[inside] * (1 if kind.is_rate else HUNDREDTHS)
            whole: IntArray = np.rint(np.clip(scaled, 0, MAX_RATE)).astype(np.int64)
            self.tables[kind.name].add(
                [key], np.zeros(whole.size, dtype=np.int64), places[inside].astype(np.int64), whole
            )

    def add_events(self, events: FrameworkEvents) -> None:
        """Add one framework object, of which steps alone are used."""
        for batch in events.steps:
            self.steps.add(batch)

    def merge(self, other: "NodeDigest") -> None:
        """Add all that another part of the same node holds, as if its objects had been added here.

        Raises
        ------
        TimelinePartError
            When it is of another node, or its axis is another.
        """
        if (other.node, other.axis) != (self.node, self.axis):
            raise TimelinePartError(
                other.node, f"it is of {other.node} on {other.axis}, expected {self.node} on {self.axis}"
            )
        for kind, table in self.tables.items():
            table.merge(other.tables[kind])
        self.steps.merge(other.steps)
        self.outside += other.outside

    def joined(self, axis: TimeAxis) -> "NodeDigest":
        """Return the digest on an ``axis`` of which each bucket joins whole buckets of this one's."""
        if axis == self.axis:
            return self
        starts = axis.start + np.arange(axis.buckets) * axis.bucket_s
        edges = np.maximum(np.rint((starts - self.axis.start) / self.axis.bucket_s), 0.0).astype(np.int64)
        joined = NodeDigest(self.node, axis)
        joined.tables = {kind: table.joined(edges) for kind, table in self.tables.items()}
        joined.steps, joined.outside = self.steps.joined(axis, edges), self.outside
        return joined

    def encode(self) -> bytes:
        """Return the digest as bytes; equal digests give equal bytes."""
        tables = {kind: table.stored() for kind, table in self.tables.items() if table.keys}
        stored = _StoredDigest(self.node, self.axis, self.outside, tables, self.steps.stored())
        return _MAGIC + bytes([_FORMAT]) + zlib.compress(msgspec.msgpack.encode(stored), _LEVEL)


def decode_digest(data: bytes, part: str = "") -> NodeDigest:
    """Undo `NodeDigest.encode`.

    Parameters
    ----------
    data : bytes
    part : str
        Where the bytes come from, for the error.

    Raises
    ------
    TimelinePartError
        When the bytes are damaged, or of a format that this version does not read.
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
    axis = stored.axis
    if not (1 <= axis.buckets <= MOST_BUCKETS and 1.0 <= axis.bucket_s < math.inf and math.isfinite(axis.start)):
        raise ValueError(f"{axis.buckets} buckets of {axis.bucket_s} s, expected 1 to {MOST_BUCKETS} of 1 s or more")
    digest = NodeDigest(stored.node, axis)
    digest.outside = stored.outside
    digest.steps = StepDigest.restored(stored.steps, axis)
    for kind, table in stored.tables.items():
        if kind not in digest.tables:
            raise ValueError(f"a series of kind {kind}, expected one of {', '.join(digest.tables)}")
        digest.tables[kind] = BucketTable.restored(table, axis.buckets, _LIMITS[kind])
    return digest


_KINDS = tuple(_LIMITS)
_KIND_NUMBERS: dict[str, int] = {kind: number for number, kind in enumerate(_KINDS)}
_ALL_CORES: Key = (0, "", "")


def _keys_of(kind: str, table: tuple[Series, ...]) -> tuple[list[Key], IntArray]:
    """Return the keys of the series of a kind, and int64[len(table)], the place of each of them among the keys."""
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
