"""Digests of a trace or snapshot: a brief one for all ranks together, and a full one with its timeline, packed."""

import zlib
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from trainguard.core.errors import TelemetryFormatError
from trainguard.kernels.columns import Ints
from trainguard.kernels.document import RankProfile
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.timeline.build import MOST_LANES, MOST_ROWS, Timeline, TimelineHead
from trainguard.kernels.timeline.rows import ROW_FIELDS, RowTable, Sort
from trainguard.kernels.verdict import decoded

LONGEST_STORED_NAME = 1_000
_BYTES = 8


class StoredTimeline(TimelineHead, frozen=True, kw_only=True):
    """A `Timeline`; ``columns`` are its arrays by name, each compressed 64-bit numbers, ``size`` rows long."""

    size: int
    columns: dict[str, bytes]


def stored(timeline: Timeline) -> StoredTimeline:
    used, place = np.unique(timeline.rows.name, return_inverse=True)
    shift = int(np.count_nonzero(used < 0))
    columns = {field: getattr(timeline.rows, field) for field in ROW_FIELDS}
    columns |= {"name": place.astype(np.int64) - shift, "level": timeline.level, "launch": timeline.launch}
    head = {name: getattr(timeline, name) for name in TimelineHead.__struct_fields__}
    head["lanes"] = [replace(each, name=each.name[:LONGEST_STORED_NAME]) for each in timeline.lanes]
    head["names"] = [timeline.names[each][:LONGEST_STORED_NAME] for each in used[shift:].tolist()]
    packed = {name: _packed(values) for name, values in {**columns, "size": timeline.size}.items()}
    return StoredTimeline(**head, size=len(timeline.rows), columns=packed)


def restored(key: str, held: StoredTimeline) -> Timeline:
    """Return a timeline from its stored form; raises TelemetryFormatError where columns do not fit."""
    rows = {name: _unpacked(key, held, name) for name in ROW_FIELDS}
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
    if len(held.lanes) > MOST_LANES:
        raise TelemetryFormatError(key, f"{len(held.lanes)} lanes, expected at most {MOST_LANES}")
    head = {name: getattr(held, name) for name in TimelineHead.__struct_fields__}
    return Timeline(**head, rows=RowTable(**rows), level=level, launch=launch, size=size)


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


BRIEF_KERNELS = 50

BRIEF_STEPS = 100
BRIEF_MEMORY = 20
BRIEF_LINES = 10
LONGEST_NAME = 300


def brief(profile: RankProfile) -> RankProfile:
    """Return a profile with what ranks are compared by, its findings and its sums; the rest is counted as left out."""
    rest = profile.kernels[BRIEF_KERNELS:]
    return replace(
        profile,
        steps=profile.steps[:BRIEF_STEPS],
        steps_left_out=profile.steps_left_out + len(profile.steps[BRIEF_STEPS:]),
        kernels=[
            replace(kernel, name=kernel.name[:LONGEST_NAME], operator=kernel.operator[:LONGEST_NAME])
            for kernel in profile.kernels[:BRIEF_KERNELS]
        ],
        kernels_left_out=profile.kernels_left_out + len(rest),
        kernels_left_out_ns=profile.kernels_left_out_ns + sum(each.total_ns for each in rest),
        kernels_left_out_count=profile.kernels_left_out_count + sum(each.count for each in rest),
        memory_operations=profile.memory_operations[:BRIEF_MEMORY],
        **_left_out(profile, "annotations", "streams", "collectives", "operators"),
        counters=[],
        critical_paths=[],
        host_utilization=[],
        step_times=None,
        quality=replace(
            profile.quality,
            missing=profile.quality.missing[:BRIEF_LINES],
            damaged=profile.quality.damaged[:BRIEF_LINES],
        ),
    )


def _left_out(profile: RankProfile, *names: str) -> dict[str, Any]:
    counts = {f"{name}_left_out": getattr(profile, f"{name}_left_out") + len(getattr(profile, name)) for name in names}
    return {**{name: [] for name in names}, **counts}


FORMAT = 1
MOST_BRIEF_BYTES = 8 * 1024 * 1024
MOST_FULL_BYTES = 32 * 1024 * 1024


class BriefDigest(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of each trace or snapshot; ``fault`` says why there is neither ``profile`` nor ``snapshot``."""

    format: int = FORMAT
    profile: RankProfile | None = None
    fault: str = ""
    snapshot: SnapshotProfile | None = None


class FullDigest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    profile: RankProfile
    timeline: StoredTimeline | None


# Built once, as the types of a decoder that several threads build at once may be half-built.
_BRIEF = msgspec.json.Decoder(BriefDigest)
_FULL = msgspec.json.Decoder(FullDigest)


def decode_brief(key: str, body: bytes) -> BriefDigest:
    """Read a brief digest back; raises TelemetryFormatError when it is none, or of another version of this code."""
    digest = decoded(key, body, _BRIEF, MOST_BRIEF_BYTES, FORMAT, "a digest of a trace")
    if digest.profile is None and digest.snapshot is None and not digest.fault:
        raise TelemetryFormatError(key, "neither profile nor snapshot nor fault, expected one of them")
    return digest


def decode_full(key: str, body: bytes) -> FullDigest:
    return decoded(key, body, _FULL, MOST_FULL_BYTES, FORMAT, "a digest of a trace")
