"""A profile of XLA to columns, streamed: events of planes, some at a time, to rows with times in nanoseconds."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError

from trainguard.core.errors import KernelTraceError
from trainguard.formats.protobuf import LENGTH, VARINT, CutOffError, Wire, WireError
from trainguard.kernels.columns import BLOCK_UNTIL_READY, LATEST_NS, LONGEST_NS, Framework, Gpu, Ints, Trace, WorkKind
from trainguard.kernels.names.families import communicates
from trainguard.kernels.readers.builder import (
    MOST_GPUS,
    TraceBuilder,
    by_number,
    call_name,
    described,
    floats,
    ints,
    is_call,
    memcpy_name,
    memset_name,
    text_chunks,
    text_of,
    whole,
)
from trainguard.kernels.readers.xplane.planes import (
    GPU,
    LINE_DISPLAY_NAME,
    LINE_EVENT,
    LINE_NAME,
    LINE_TIMESTAMP,
    PLANE_LINE,
    TASK,
    TPU,
    Event,
    Line,
    Plane,
    each_plane,
    read_planes,
)

if TYPE_CHECKING:
    from trainguard.core.ports import ByteStream

BATCH_BYTES = 1024 * 1024
_LARGEST_EVENT = 1024 * 1024
_LONGEST_LINE_NAME = 1024
_PS_PER_NS = 1_000
_INT64 = 1 << 63


# The line of some events, these, and their starts and ends in nanoseconds of the profile's clock.
Batch = tuple[str, list[Any], Ints, Ints]


def batches(wire: Wire, end: float, plane: Plane, tally: Counter[str]) -> Iterator[Batch]:
    """Yield the events of a line that ends at a position; raises CutOffError and WireError."""
    length = int(end - wire.position)
    if length > BATCH_BYTES:
        yield from _streamed(wire, end, plane, tally)
        return
    text = wire.read(length)
    try:
        line = Line.FromString(text)
    except DecodeError:
        yield from _streamed(Wire(iter([text])), length, plane, tally)
        return
    name = text_of(line.display_name) or text_of(line.name)
    yield _batch(name, line.timestamp_ns, _named(list(line.events), plane, tally), tally)


def _streamed(wire: Wire, end: float, plane: Plane, tally: Counter[str]) -> Iterator[Batch]:
    line, timestamp, held = "", 0, bytearray()

    def batch() -> Batch:
        found = _batch(line, timestamp, _named(_decoded(bytes(held), tally), plane, tally), tally)
        held.clear()
        return found

    try:
        for number, kind, value in wire.fields(end):
            if kind == VARINT and number == LINE_TIMESTAMP:
                timestamp = value
            elif kind == LENGTH and number in (LINE_NAME, LINE_DISPLAY_NAME):
                line = text_of(wire.read(min(value, _LONGEST_LINE_NAME))) or line
            elif kind == LENGTH and number == LINE_EVENT:
                if value > _LARGEST_EVENT:
                    tally["unreadable_events"] += 1
                    continue
                held += _head(value) + wire.read(value)
                if len(held) >= BATCH_BYTES:
                    yield batch()
    except (CutOffError, WireError):
        yield batch()
        raise
    yield batch()


def _head(length: int) -> bytes:
    found = bytearray([LINE_EVENT << 3 | LENGTH])
    while length >= 0x80:
        found.append(length & 0x7F | 0x80)
        length >>= 7
    found.append(length)
    return bytes(found)


def _decoded(text: bytes, tally: Counter[str]) -> list[Any]:
    try:
        return list(Line.FromString(text).events)
    except DecodeError:
        return list(_one_by_one(text, tally))


def _one_by_one(text: bytes, tally: Counter[str]) -> Iterator[Any]:
    wire = Wire(iter([text]))
    for _, _, length in wire.fields(len(text)):
        try:
            yield Event.FromString(wire.read(length))
        except DecodeError:
            tally["unreadable_events"] += 1


def _named(events: list[Any], plane: Plane, tally: Counter[str]) -> list[Any]:
    """Return the events that have a name; others are counted."""
    found = [event for event in events if plane.event_names.get(event.metadata_id)]
    tally["unnamed_events"] += len(events) - len(found)
    return found


def _batch(line: str, timestamp: int, events: list[Any], tally: Counter[str]) -> Batch:
    """Return the events that have a time; others are counted."""
    tally["events"] += len(events)
    offset, duration = ints([event.offset_ps for event in events]), ints([event.duration_ps for event in events])
    good = (duration >= 0) & (duration <= LONGEST_NS * _PS_PER_NS) & (offset >= 0) & (offset <= LATEST_NS)
    good &= 0 <= timestamp <= LATEST_NS
    if not good.all():
        tally["bad_times"] += int((~good).sum())
        events = [event for event, kept in zip(events, good, strict=True) if kept]
        offset, duration = offset[good], duration[good]
    half = _PS_PER_NS // 2
    base = np.int64(timestamp if timestamp < _INT64 else 0)
    return line, events, base + (offset + half) // _PS_PER_NS, base + (offset + duration + half) // _PS_PER_NS


# Other lines repeat the work of the streams by step, module or operator.
_STREAM = re.compile(r"Stream #(-?\d+)")

_DETAIL = re.compile(r"(\w+):(\S+)")
_COPY = re.compile(r"[Mm]emcpy(\w)(?:2|to)(\w)")
_MEMORY_ONLY = frozenset({"memalloc_details", "MemFree_details", "MemoryResidency_details"})
_GPU_STATS = (
    "correlation_id",
    "kernel_details",
    "memcpy_details",
    "Memset_details",
    "memset_details",
    "hlo_op",
    "tf_op",
    *_MEMORY_ONLY,
)


class GpuPlane:
    def __init__(self, plane: Plane, builder: TraceBuilder) -> None:
        self.device = max(whole(plane.name.removeprefix(GPU).partition(" ")[0]), -1)
        stats = plane.stats
        name = stats.get("device_type") or stats.get("device_type_string") or stats.get("device_vendor") or ""
        wanted = ("memory_size", "compute_cap_major", "compute_cap_minor", "core_count")
        self.gpu = described(str(name), *map(stats.get, wanted))
        self._plane = plane
        self._builder = builder
        self._wanted = {number: name for number, name in plane.stat_names.items() if name in _GPU_STATS}

    def add(self, batch: Batch) -> None:
        line, events, start, end = batch
        stream = _STREAM.match(line)
        if not stream:
            return
        read = [self._row(event) for event in events]
        kept = [place for place, row in enumerate(read) if row is not None]
        found = [row for row in read if row is not None]
        names = self._builder.names
        self._builder.add(
            "gpu",
            start=start[kept],
            end=end[kept],
            name=names.of([row[0] for row in found]),
            lane=names.of([stream[1]] * len(found)),
            correlation=ints([row[1] for row in found]),
            operator=ints([row[2] for row in found]),
            kind=ints([row[3] for row in found]),
            device=ints([self.device] * len(found)),
            size=ints([row[4] for row in found]),
            blocks_per_sm=floats([row[5] for row in found]),
            occupancy=floats([row[6] for row in found]),
        )

    def _row(self, event: Any) -> tuple[str, int, int, int, int, float, float] | None:
        """Return name, correlation, operator, kind, size, blocks per SM and occupancy; None for what is no work."""
        plane = self._plane
        stats = plane.values(event.stats, self._wanted)
        if more := plane.event_stats.get(event.metadata_id):
            stats = plane.values(more, self._wanted) | stats
        if not _MEMORY_ONLY.isdisjoint(stats):
            return None
        name = plane.event_names.get(event.metadata_id, "").removesuffix(".kd")
        operator = stats.get("hlo_op") or stats.get("tf_op")
        number = self._builder.names.number(operator) if operator else -1
        correlation = whole(stats.get("correlation_id", -1))
        copied = stats.get("memcpy_details")
        if copied is not None or (name.startswith("Memcpy") and "kernel_details" not in stats):
            details = _details(str(copied or ""))
            return _copy_name(name, details), correlation, number, WorkKind.MEMCPY, _size(details), math.nan, math.nan
        filled = stats.get("Memset_details", stats.get("memset_details"))
        if filled is not None or (name.startswith("Memset") and "kernel_details" not in stats):
            details = _details(str(filled or ""))
            named = memset_name(details.get("kind", ""))
            return named, correlation, number, WorkKind.MEMSET, _size(details), math.nan, math.nan
        kind = WorkKind.COMMUNICATION if communicates(name) else WorkKind.COMPUTE
        blocks, occupancy = _filling(str(stats.get("kernel_details", "")), self.gpu.sms)
        return name, correlation, number, kind, -1, blocks, occupancy


@lru_cache(maxsize=4_096)
def _details(text: str) -> dict[str, str]:
    return dict(_DETAIL.findall(text))


def _size(details: dict[str, str]) -> int:
    return max(whole(details.get("size", details.get("num_bytes", "-1"))), -1)


def _copy_name(name: str, details: dict[str, str]) -> str:
    way = _COPY.search(name)
    source, target = details.get("kind_src", ""), details.get("kind_dst", "")
    if way:
        return memcpy_name(f"{way[1].upper()}to{way[2].upper()}", source, target)
    return memcpy_name(details.get("kind", "") if details.get("kind") != "Unknown" else "", source, target)


@lru_cache(maxsize=4_096)
def _filling(details: str, sms: int) -> tuple[float, float]:
    """Return blocks per SM and occupancy in percent; a profiler that cannot tell the occupancy writes 0."""
    found = _details(details)
    blocks = [whole(each) for each in found.get("grid", "").split(",") if each]
    occupancy = whole(found.get("occ_pct", "").partition(".")[0] or "0")
    filled = math.prod(blocks) / sms if blocks and sms and min(blocks) > 0 else math.nan
    return filled, float(occupancy) if occupancy > 0 else math.nan


_HOST_STATS = ("correlation_id", "step_num", "hlo_op", "tf_op", "_src", "allocator_name", "peak_bytes_in_use")
_ALLOCATOR = re.compile(r"GPU_(\d{1,9})_bfc")
_LOADER = ("IteratorGetNext",)
_OF_RUNTIME = re.compile(r"TFE_|Eager|Executor|Prefetch|Parallel|PjRt|PJRT|Xla|Thunk|Memory(?:Dea|A)llocation|Kernel")
# Calls of JAX that return when the GPU is done, by name of the runtime or of Python's function.
_WAITS = re.compile(
    r"block_until_ready|BlockHostUntil(?:Ready|Done)|BlockUntilReady|\$array\.py:\d+ (?:_value|__array__)"
)

# Python's own calls, and marks of the thread pool.
_IGNORED = ("$", "ThreadpoolListener")


class HostPlane:
    def __init__(self, plane: Plane, builder: TraceBuilder) -> None:
        self._plane = plane
        self._builder = builder
        self._wanted = {number: name for number, name in plane.stat_names.items() if name in _HOST_STATS}

    def add(self, batch: Batch) -> None:
        names = self._builder.names
        line, events, start, end = batch
        lane = names.number(line)
        lasts = (end > start).tolist()
        sorted_in: dict[str, list[tuple[int, str, int, int]]] = {}
        for place, event in enumerate(events):
            name = self._plane.event_names.get(event.metadata_id, "")
            stats = self._plane.values(event.stats, self._wanted)
            if name == "MemoryAllocation":
                self._reserve(stats, int(start[place]))
            sort, shown = _sorted_in(name, stats)
            if not lasts[place] and (sort != "launches" or shown == BLOCK_UNTIL_READY):
                continue
            operator = stats.get("hlo_op") or stats.get("tf_op")
            number = names.number(operator) if operator else -1
            correlation = whole(stats.get("correlation_id", -1)) if sort == "launches" else -1
            sorted_in.setdefault(sort, []).append((place, shown, correlation, number))
            if sort == "launches" and operator:
                sorted_in.setdefault("operators", []).append((place, str(operator), -1, number))
        for sort, rows in sorted_in.items():
            if sort:
                places = [row[0] for row in rows]
                self._builder.add(
                    sort,
                    start=start[places],
                    end=end[places],
                    name=names.of([row[1] for row in rows]),
                    lane=np.full(len(rows), lane, dtype=np.int32),
                    correlation=ints([names.number("") if sort == "operators" else row[2] for row in rows]),
                    operator=ints([row[3] for row in rows]),
                )

    def _reserve(self, stats: dict[str, Any], at: int) -> None:
        """Note the most bytes in use: XLA reserves most of the memory at once, whether it needs it or not."""
        allocator = _ALLOCATOR.fullmatch(str(stats.get("allocator_name", "")))
        if allocator:
            self._builder.reserve(int(allocator[1]), max(whole(stats.get("peak_bytes_in_use")), 0), at)


def _sorted_in(name: str, stats: dict[str, Any]) -> tuple[str, str]:
    """Return the sort of a row, empty for one that is not read, and the name that it is shown by."""
    if "step_num" in stats:
        return "annotations", f"ProfilerStep#{max(whole(stats['step_num']), 0)}"
    if "correlation_id" in stats or is_call(name):
        return "launches", call_name(name)
    sort = _by_name(name, known="_src" in stats or "hlo_op" in stats)
    return sort, BLOCK_UNTIL_READY if sort == "launches" else name


@lru_cache(maxsize=16_384)
def _by_name(name: str, *, known: bool) -> str:
    if _WAITS.search(name):
        return "launches"
    if name.startswith(_IGNORED):
        return ""
    if name.startswith(_LOADER):
        return "annotations"
    return "operators" if known or ":" in name or _OF_RUNTIME.match(name) else "annotations"


_EPOCH_LEAST_NS = 10**18
# Calls on the host that only one framework makes.
_MARKS = (
    ("PjitFunction", Framework.JAX),
    ("EagerExecute", Framework.TENSORFLOW),
    ("FunctionRun", Framework.TENSORFLOW),
)


def read_xplane(name: str, open_stream: Callable[[], "ByteStream"]) -> Trace:
    """Read a profile twice, plain or gzip: names, then events; KernelTraceError when nothing can be read."""
    with open_stream() as stream:
        planes = read_planes(name, Wire(text_chunks(name, stream, Counter())), Counter())
    if not any(plane.name for plane in planes):
        raise KernelTraceError(name, "it has no plane with a name, expected a profile of XLA (xplane.pb)")
    tally: Counter[str] = Counter()
    builder = TraceBuilder(name, tally)
    gpus: dict[int, Gpu] = {}
    latest_ns = 0
    left = iter(planes)
    with open_stream() as stream:
        wire = Wire(text_chunks(name, stream, tally))

        def take(end: float) -> None:
            nonlocal latest_ns
            plane = next(left, Plane())
            tally["tpu_planes"] += plane.name.startswith(TPU)
            if not plane.has_events:
                return
            rows = GpuPlane(plane, builder) if plane.name.startswith(GPU) else HostPlane(plane, builder)
            if isinstance(rows, GpuPlane) and 0 <= rows.device < MOST_GPUS:
                gpus[rows.device] = rows.gpu
            for number, kind, length in wire.fields(end):
                if number == PLANE_LINE and kind == LENGTH:
                    for batch in batches(wire, wire.position + length, plane, tally):
                        latest_ns = max(latest_ns, int(batch[2].max(initial=0)))
                        rows.add(batch)

        each_plane(wire, tally, take)
    if not tally["events"] and (tally["cut_off"] or tally["unreadable_parts"] or tally["unreadable_events"]):
        raise KernelTraceError(name, "not one of its events is whole, expected a profile of XLA (xplane.pb)")
    framework = framework_of(builder.names.texts())
    return builder.build(base_ns=_base_ns(planes, latest_ns), gpus=by_number(gpus), framework=framework)


def framework_of(names: Iterable[str]) -> Framework:
    """Return the framework that made one of the calls; XLA where its calls identify none, or several."""
    found = {framework for name in names for mark, framework in _MARKS if name.startswith(mark)}
    return found.pop() if len(found) == 1 else Framework.XLA


def _base_ns(planes: list[Plane], latest_ns: int) -> int:
    """Return what makes a time one of the epoch; 0 where it is one, as in old profiles, or none can be made."""
    if latest_ns >= _EPOCH_LEAST_NS:
        return 0
    return max([0, *(whole(plane.stats.get("profile_start_time")) for plane in planes if plane.name == TASK)])
