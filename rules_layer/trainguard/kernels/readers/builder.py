"""What readers of all formats share: a trace's bytes, numbers, names of calls and copies, the collector of rows."""

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from trainguard.core.errors import KernelTraceError
from trainguard.core.text import one_line
from trainguard.kernels.columns import (
    GROWTH_FROM_BYTES,
    LONGEST_NAME,
    MOST_COLLECTIVE_CALLS,
    MOST_COLLECTIVES,
    MOST_GROWTH,
    MOST_NAME_BYTES,
    MOST_ROWS,
    Bools,
    Floats,
    Framework,
    Gpu,
    GpuRows,
    Ints,
    MemoryRows,
    Names,
    Rows,
    Trace,
)
from trainguard.kernels.entries import Collective, CounterEntry
from trainguard.kernels.readers.broken_times import broken_times, timed_rows
from trainguard.kernels.readers.grown import GrownColumn

if TYPE_CHECKING:
    from trainguard.core.ports import ByteStream

# Bytes that are unpacked at once: a gzip chunk of a trace grows 12 to 18 times.
CHUNK_BYTES = 1024 * 1024

_FEW_BYTES = 64
_GZIP_MAGIC = b"\x1f\x8b"


def text_chunks(name: str, stream: "ByteStream", tally: Counter[str]) -> Iterator[bytes]:
    """Yield the text of a trace; a gzip stream that breaks off ends it and is counted.

    ``tally`` counts ``text_bytes``, ``truncated_gzip`` and ``broken_gzip``. Raises KernelTraceError when a gzip stream
    is broken before its first byte of text, or grows as no trace does.
    """
    first = stream.read(CHUNK_BYTES)
    chunks = _unzipped(name, first, stream, tally) if first.startswith(_GZIP_MAGIC) else _read(first, stream)
    for chunk in chunks:
        tally["text_bytes"] += len(chunk)
        yield chunk


def _read(first: bytes, stream: "ByteStream") -> Iterator[bytes]:
    while first:
        yield first
        first = stream.read(CHUNK_BYTES)


def _unzipped(name: str, packed: bytes, stream: "ByteStream", tally: Counter[str]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    taken, given = 0, 0
    while packed:
        before = unpacker.copy()
        try:
            text = unpacker.decompress(packed, CHUNK_BYTES)
        except zlib.error as fault:
            text = _until_broken(before, packed)
            if not text and not tally["text_bytes"]:
                raise KernelTraceError(name, f"a broken gzip stream ({fault}), expected a trace") from fault
            tally["broken_gzip"] += 1
            yield text
            return
        taken += len(packed) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
        given += len(text)
        if given > max(GROWTH_FROM_BYTES, MOST_GROWTH * taken):
            raise KernelTraceError(name, f"a gzip stream that grows over {MOST_GROWTH}-fold, expected a trace")
        if text:
            yield text
        packed = unpacker.unconsumed_tail
        if unpacker.eof:
            packed = unpacker.unused_data
            if len(packed) < len(_GZIP_MAGIC):
                packed += stream.read(CHUNK_BYTES)
            if not packed.startswith(_GZIP_MAGIC):
                return
            unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        packed = packed or stream.read(CHUNK_BYTES)
    tally["truncated_gzip"] += 1


def _until_broken(unpacker: "zlib._Decompress", packed: bytes) -> bytes:
    """Return what a broken stream holds up to the fault, nearly: its bytes are given to it a few at a time."""
    text = b""
    try:
        for place in range(0, len(packed), _FEW_BYTES):
            text += unpacker.decompress(packed[place : place + _FEW_BYTES])
            if len(text) > CHUNK_BYTES:
                break
    except zlib.error:
        pass
    return text


_INT64 = 1 << 63
_UNKNOWN = -1
_NOT_NUMBERS = (TypeError, ValueError, OverflowError)
MOST_GPUS = 1_024
_INT32 = 1 << 31


def whole(value: Any) -> int:
    """Return a whole number as int64 holds it; -1 for anything else."""
    if type(value) is int:
        return value if -_INT64 <= value < _INT64 else _UNKNOWN
    if isinstance(value, str):
        try:
            return whole(int(value, 0))
        except ValueError:
            return _UNKNOWN
    if isinstance(value, float) and value.is_integer() and abs(value) < _INT64:
        return int(value)
    return _UNKNOWN


def number(value: Any) -> float:
    """Return a number; NaN for anything else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return float("nan")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < _INT64 else float("nan")
    return float("nan")


def floats(values: list[Any]) -> Floats:
    """Return numbers; NaN for what is none."""
    try:
        return np.fromiter(values, dtype=np.float64, count=len(values))
    except _NOT_NUMBERS:
        pass
    try:
        found = np.array(values, dtype=np.float64)  # takes None as NaN
    except _NOT_NUMBERS:
        found = np.empty((0, 0))
    return found if found.ndim == 1 else np.array([number(value) for value in values], dtype=np.float64)


def ints(values: list[Any]) -> Ints:
    """Return whole numbers; -1 for what is none."""
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except _NOT_NUMBERS:
        numbers = [_UNKNOWN if value is None else whole(value) for value in values]
        return np.fromiter(numbers, dtype=np.int64, count=len(values))


def sequences(values: list[Any]) -> Ints:
    """Return numbers of autograd's nodes; -1 for what is none, or too large for one."""
    found = ints(values)
    return np.where(found < _INT32, found, _UNKNOWN)


def described(name: str, memory: Any, major: Any, minor: Any, sms: Any) -> Gpu:
    """Return a GPU by what a trace says about it, 0 for what is no number."""
    size, first, second, count = (max(whole(each), 0) for each in (memory, major, minor, sms))
    return Gpu(name=name, memory=size, capability=(first, second), sms=count)


def by_number(found: Mapping[int, Gpu]) -> list[Gpu]:
    last = max((number for number in found if number < MOST_GPUS), default=-1)
    return [found.get(number, Gpu(name="", memory=0, capability=(0, 0), sms=0)) for number in range(last + 1)]


def text_of(value: Any) -> str:
    """Return stored bytes as a text as far as it can be read; empty for anything else."""
    return value[:LONGEST_NAME].decode("utf-8", "replace") if isinstance(value, bytes) else ""


def unknown(count: int) -> Ints:
    return np.full(count, _UNKNOWN, dtype=np.int64)


MOST_COUNTERS = 1_000
# Characters of a version.
MOST_SOFTWARE = 60

_LARGEST = float(1 << 63)

# The columns of `Rows`, 40 bytes a row.
_ROW_TYPES: Mapping[str, type[np.generic]] = {
    **dict.fromkeys(("start", "end", "correlation", "operator"), np.int64),
    **dict.fromkeys(("name", "lane"), np.int32),
}

_GPU_TYPES: Mapping[str, type[np.generic]] = {
    **dict.fromkeys(("kind", "device", "size", "collective"), np.int64),
    **dict.fromkeys(("blocks_per_sm", "occupancy"), np.float64),
}
_MORE_TYPES: Mapping[str, Mapping[str, type[np.generic]]] = {
    "gpu": _GPU_TYPES,
    "operators": {"inputs": np.int32, "sequence": np.int32},
}
_MEMORY_TYPES: Mapping[str, type[np.generic]] = {
    **dict.fromkeys(("at", "device", "address", "size", "allocated", "reserved"), np.int64),
    "lane": np.int32,
}

SORTS = (
    "gpu",
    "launches",
    "waits",
    "annotations",
    "gpu_annotations",
    "operators",
    "overhead",
    "modules",
    "functions",
)


class TraceBuilder:
    """Collects one trace; ``name`` is for errors, ``tally`` has a reader's counts."""

    def __init__(self, name: str, tally: Counter[str]) -> None:
        self.names = Names()
        self._name = name
        self._tally = tally
        types = {sort: {**_ROW_TYPES, **_MORE_TYPES.get(sort, {})} for sort in SORTS} | {"memory": _MEMORY_TYPES}
        self._rows = {sort: {name: GrownColumn(kind) for name, kind in of.items()} for sort, of in types.items()}
        self._count = 0
        self._collectives: dict[Collective, int] = {}
        self._called: dict[int, tuple[int, int]] = {}
        self._reserved: dict[int, int] = {}
        self._reserved_at: dict[int, int] = {}
        self._counters: dict[tuple[int, str], tuple[int, float, float, float]] = {}

    def add(self, sort: str, kept: Bools | None = None, **columns: Any) -> None:
        """Add rows of one of `SORTS` or ``memory`` by column, or those of a mask; one that is not given is unknown.

        Columns are those of `Rows`, of ``gpu`` and ``memory`` those of `GpuRows` and `MemoryRows`; ``operators`` have
        ``inputs`` and ``sequence``. Raises KernelTraceError for more rows than a trace has.
        """
        count = len(next(iter(columns.values()))) if kept is None else int(np.count_nonzero(kept))
        self._count += count
        if self._count > MOST_ROWS:
            raise KernelTraceError(self._name, f"over {MOST_ROWS:,} rows, expected a trace of some steps")
        if self.names.size > MOST_NAME_BYTES:
            raise KernelTraceError(self._name, f"names of over {MOST_NAME_BYTES:,} bytes, expected less")
        for name, held in self._rows[sort].items():
            values = columns.get(name)
            if values is None:
                held.unknown(count)
            else:
                held.add(values if kept is None else values[kept])

    def collective(self, found: Collective) -> int:
        """Return the number of a sort of collective; -1 for one more than a trace has."""
        if len(self._collectives) >= MOST_COLLECTIVES and found not in self._collectives:
            return -1
        return self._collectives.setdefault(found, len(self._collectives))

    def call(self, operator: int, found: Collective, size: int) -> None:
        """Note which collective, of so many bytes, the operator of an external id calls."""
        if operator >= 0 and len(self._called) < MOST_COLLECTIVE_CALLS:
            self._called[operator] = (self.collective(found), size)

    def reserve(self, device: int, size: int, at: int) -> None:
        """Note how many bytes of a GPU were reserved at a time, in nanoseconds of the trace's clock."""
        if size > self._reserved.get(device, 0):
            self._reserved[device], self._reserved_at[device] = size, at

    def count(self, gpu: int, name: str, values: Floats) -> None:
        """Add up samples of a hardware counter: there can be more of them than of kernels."""
        kept = values[np.abs(values) < _LARGEST]
        key = (gpu, name[:LONGEST_NAME])
        if key not in self._counters and len(self._counters) >= MOST_COUNTERS:
            kept = kept[:0]
        self._tally["bad_samples"] += len(values) - len(kept)
        if len(kept):
            samples, total, least, most = self._counters.get(key, (0, 0.0, np.inf, -np.inf))
            self._counters[key] = (
                samples + len(kept),
                total + float(kept.sum()),
                min(least, float(kept.min())),
                max(most, float(kept.max())),
            )

    def build(
        self,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        base_ns: int = 0,
        gpus: Sequence[Gpu] = (),
        framework: Framework = Framework.UNKNOWN,
        backend: str = "",
        software: Mapping[str, Any] | None = None,
    ) -> Trace:
        """Return the trace, with what it says about itself as a whole; see `Trace`."""
        columns = {sort: {name: held.values() for name, held in of.items()} for sort, of in self._rows.items()}
        gpu, memory = columns.pop("gpu"), MemoryRows(**columns.pop("memory"))
        for sort, of in columns.items():
            timed = timed_rows(of["start"], of["end"])
            if not timed.all():
                self._tally["bad_times"] += int((~timed).sum())
                columns[sort] = {name: values[timed] for name, values in of.items()}
        inputs, sequences = columns["operators"].pop("inputs"), columns["operators"].pop("sequence")
        texts = self.names.texts()
        broken = broken_times(GpuRows(**gpu), Rows(**columns["launches"]), texts, self._tally)
        if broken.any():
            gpu = {name: values[~broken] for name, values in gpu.items()}
        return Trace(
            name=self._name,
            rank=rank,
            world_size=world_size,
            base_ns=base_ns,
            names=texts,
            gpus=list(gpus),
            framework=framework,
            backend=backend,
            gpu=GpuRows(**gpu),
            software=_said(software or {}),
            memory=memory,
            reserved=self._reserved,
            reserved_at=self._reserved_at,
            tally={what: count for what, count in sorted(self._tally.items()) if count},
            counters=[
                CounterEntry(gpu=number, name=one_line(name), samples=count, mean=total / count, min=least, max=most)
                for (number, name), (count, total, least, most) in sorted(self._counters.items())
            ],
            collectives=list(self._collectives),
            operator_collectives=self._called,
            operator_inputs=inputs,
            operator_sequences=sequences,
            **{sort: Rows(**held) for sort, held in columns.items()},
        )


def _said(software: Mapping[str, Any]) -> dict[str, str]:
    """Return as texts what is known of the software: a trace may hold anything there."""
    kept = {name: value for name, value in software.items() if isinstance(value, str | int | float)}
    return {name: one_line(str(value), MOST_SOFTWARE) for name, value in kept.items() if value != ""}


_CALL = re.compile(r"(?:cu|cuda|hip)[A-Z]\w*")
_VERSION = re.compile(r"(?:_ptsz|_ptds)?(?:_v\d+)?(?:_ptsz|_ptds)?")


@lru_cache(maxsize=4_096)
def call_name(name: str) -> str:
    """Return a call's name without its version: ``cudaLaunchKernel`` for ``cudaLaunchKernel_v7000``."""
    place = name.find("_")
    return name[:place] if place > 0 and is_call(name) and _VERSION.fullmatch(name, place) else name


def is_call(name: str) -> bool:
    return _CALL.fullmatch(name) is not None


# By the number of the kind of a copy: CUPTI's, and behind them those that Nsight Systems adds.
DIRECTIONS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "UVM HtoD",
    12: "UVM DtoH",
    13: "UVM DtoD",
}


def memcpy_name(way: str, source: str, target: str) -> str:
    """Return the name of a copy: ``Memcpy HtoD (Pageable -> Device)``, without what is not known."""
    ends = f" ({source.title()} -> {target.title()})" if source and target else ""
    return f"Memcpy {way}{ends}" if way else f"Memcpy{ends}"


def memset_name(target: str) -> str:
    return f"Memset ({target.title()})" if target else "Memset"
