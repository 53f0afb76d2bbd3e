"""A timeline as it lies between the digest of a trace and the page: columns packed, and the names that are used."""

import zlib
from typing import Literal

import msgspec
import numpy as np

from trainguard.errors import TelemetryFormatError
from trainguard.kernels.columns import Ints
from trainguard.kernels.timeline.build import MOST_LANES, MOST_ROWS, LeftOut, Timeline
from trainguard.kernels.timeline.rows import LaneKey, RowTable, Sort

LONGEST_NAME = 1_000
_COLUMNS = ("start", "end", "name", "sort", "lane", "source", "count")
_BYTES = 8


class StoredLane(msgspec.Struct, frozen=True, array_like=True):
    """A `LaneKey`."""

    side: Literal["gpu", "host"]
    device: int
    holds: Literal["work", "waits", "annotations"]
    name: str


class StoredTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """A `Timeline`; ``columns`` are its arrays by name, each compressed 64-bit numbers, ``size`` rows long."""

    trace: str
    start_unix_ns: int
    lead_ns: int
    window_ns: int
    size: int
    lanes: list[StoredLane]
    names: list[str]
    columns: dict[str, bytes]
    detail: list[tuple[int, int]]
    left_out: dict[str, int]


def stored(timeline: Timeline) -> StoredTimeline:
    """Return a timeline as it is stored."""
    used, place = np.unique(timeline.rows.name, return_inverse=True)
    shift = int(np.count_nonzero(used < 0))
    columns = {field: getattr(timeline.rows, field) for field in _COLUMNS}
    columns |= {"name": place.astype(np.int64) - shift, "level": timeline.level, "launch": timeline.launch}
    left = timeline.left_out
    return StoredTimeline(
        trace=timeline.trace,
        start_unix_ns=timeline.start_unix_ns,
        lead_ns=timeline.lead_ns,
        window_ns=timeline.window_ns,
        size=len(timeline.rows),
        lanes=[StoredLane(each.side, each.device, each.holds, each.name[:LONGEST_NAME]) for each in timeline.lanes],
        names=[timeline.names[each][:LONGEST_NAME] for each in used[shift:].tolist()],
        columns={name: _packed(values) for name, values in {**columns, "size": timeline.size}.items()},
        detail=timeline.detail,
        left_out={name: getattr(left, name) for name in LeftOut.__slots__},
    )


def restored(key: str, held: StoredTimeline) -> Timeline:
    """Return a timeline from its stored form.

    Raises
    ------
    TelemetryFormatError
        When columns are missing, of another length, or point to what is not there.
    """
    rows = {name: _unpacked(key, held, name) for name in _COLUMNS}
    level, launch, size = (_unpacked(key, held, name) for name in ("level", "launch", "size"))
    within = (
        ("name", rows["name"], -1, len(held.names)),
        ("lane", rows["lane"], 0, len(held.lanes)),
        ("sort", rows["sort"], 0, len(Sort)),
        ("launch", launch, -1, held.size),
    )
    for name, values, least, end in within:
        if len(values) and not (least <= int(values.min()) and int(values.max()) < end):
            raise TelemetryFormatError(key, f"column {name} holds numbers outside of {least} to {end - 1}")
    if set(held.left_out) != set(LeftOut.__slots__) or len(held.lanes) > MOST_LANES:
        raise TelemetryFormatError(key, f"{len(held.lanes)} lanes, and {sorted(held.left_out)} left out")
    return Timeline(
        trace=held.trace,
        start_unix_ns=held.start_unix_ns,
        lead_ns=held.lead_ns,
        window_ns=held.window_ns,
        lanes=[LaneKey(each.side, each.device, each.holds, each.name) for each in held.lanes],
        rows=RowTable(**rows),
        level=level,
        launch=launch,
        size=size,
        names=held.names,
        detail=held.detail,
        left_out=LeftOut(**held.left_out),
    )


def _packed(values: Ints) -> bytes:
    """Compress numbers byte by byte of their places: times that rise slowly differ in few of them."""
    raw = np.ascontiguousarray(np.diff(values, prepend=0).astype("<i8")).view(np.uint8).reshape(-1, _BYTES)
    return zlib.compress(np.ascontiguousarray(raw.T).tobytes(), 6)


def _unpacked(key: str, held: StoredTimeline, name: str) -> Ints:
    length = held.size * _BYTES
    if not 0 <= held.size <= MOST_ROWS:
        raise TelemetryFormatError(key, f"{held.size:,} rows, expected at most {MOST_ROWS:,}")
    try:
        raw = zlib.decompressobj().decompress(held.columns.get(name, b""), length + 1)
    except zlib.error as fault:
        raise TelemetryFormatError(key, f"column {name}: {fault}") from fault
    if len(raw) != length:
        raise TelemetryFormatError(key, f"column {name} is not of {held.size:,} rows")
    table = np.frombuffer(raw, dtype=np.uint8).reshape(_BYTES, held.size)
    values: Ints = np.cumsum(np.ascontiguousarray(table.T).view("<i8").reshape(-1), dtype=np.int64)
    return values
