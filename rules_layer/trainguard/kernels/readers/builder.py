"""Collector of a trace for readers of all formats: columns by sort, with limits."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainguard.core.errors import KernelTraceError
from trainguard.core.text import one_line
from trainguard.kernels.columns import (
    LONGEST_NAME,
    MOST_COLLECTIVE_CALLS,
    MOST_COLLECTIVES,
    MOST_NAME_BYTES,
    MOST_ROWS,
    Floats,
    Framework,
    Gpu,
    GpuRows,
    Ints,
    Names,
    Rows,
    Trace,
)
from trainguard.kernels.entries import Collective, CounterEntry

_INT64 = 1 << 63
_UNKNOWN = -1


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
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.empty((0, 0))
    return found if found.ndim == 1 else np.array([number(value) for value in values], dtype=np.float64)


def ints(values: list[Any]) -> Ints:
    """Return whole numbers; -1 for what is none."""
    try:
        found = np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        found = np.empty((0, 0), dtype=np.int64)
    return found if found.ndim == 1 else np.array([whole(value) for value in values], dtype=np.int64)


MOST_TRACKS = 1_000

_LARGEST = float(1 << 63)


class CounterSums:
    """Adds up samples of hardware counters by GPU and counter: there can be more of them than of kernels."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, str], tuple[int, float, float, float]] = {}

    def add(self, gpu: int, name: str, values: Floats) -> int:
        """Add samples; return how many were not kept: what no counter reaches, and tracks over `MOST_TRACKS`."""
        kept = values[np.abs(values) < _LARGEST]
        key = (gpu, name[:LONGEST_NAME])
        if not len(kept) or (key not in self._sums and len(self._sums) >= MOST_TRACKS):
            return len(values)
        samples, total, least, most = self._sums.get(key, (0, 0.0, np.inf, -np.inf))
        self._sums[key] = (
            samples + len(kept),
            total + float(kept.sum()),
            min(least, float(kept.min())),
            max(most, float(kept.max())),
        )
        return len(values) - len(kept)

    def tracks(self) -> list[CounterEntry]:
        """Return the counters, by GPU and name."""
        return [
            CounterEntry(gpu=gpu, name=one_line(name), samples=samples, mean=total / samples, min=least, max=most)
            for (gpu, name), (samples, total, least, most) in sorted(self._sums.items())
        ]


_ROW_TYPES = {"start": "q", "end": "q", "name": "i", "lane": "i", "correlation": "q", "operator": "q"}
"""The columns of `Rows`, 40 bytes a row."""

_GPU_TYPES = {"kind": "q", "device": "q", "size": "q", "blocks_per_sm": "d", "occupancy": "d", "collective": "q"}
_DTYPES = {"q": np.int64, "i": np.int32, "d": np.float64}
SORTS = ("gpu", "launches", "waits", "annotations", "gpu_annotations", "operators", "overhead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Rows to add: nanoseconds, numbers of names and lanes, and -1 where a join is not known."""

    start: Ints
    end: Ints
    name: Ints
    lane: Ints
    correlation: Ints
    operator: Ints
    inputs: Ints | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuColumns:
    """What rows of a GPU have beside `Columns`; see `GpuRows`."""

    kind: Ints
    device: Ints
    size: Ints
    blocks_per_sm: Floats
    occupancy: Floats
    collective: Ints | None = None


class TraceBuilder:
    """Collects one trace; ``name`` is for errors, ``tally`` has a reader's counts."""

    def __init__(self, name: str, tally: Counter[str]) -> None:
        self.names = Names()
        self._name = name
        self._tally = tally
        self._rows = {sort: {name: array(code) for name, code in _ROW_TYPES.items()} for sort in SORTS}
        self._count = 0
        self._gpu = {name: array(code) for name, code in _GPU_TYPES.items()}
        self._inputs = array("i")
        self._collectives: dict[Collective, int] = {}
        self._called: dict[int, tuple[int, int]] = {}
        self._reserved: dict[int, int] = {}
        self._reserved_at: dict[int, int] = {}
        self._counters = CounterSums()

    def add(self, sort: str, columns: Columns) -> None:
        """Add rows of one of `SORTS`; raises KernelTraceError for more rows or names than a trace has."""
        self._count += len(columns.start)
        if self._count > MOST_ROWS:
            raise KernelTraceError(self._name, f"over {MOST_ROWS:,} rows, expected a trace of some steps")
        if self.names.size > MOST_NAME_BYTES:
            raise KernelTraceError(self._name, f"names of over {MOST_NAME_BYTES:,} bytes, expected less")
        for name, held in self._rows[sort].items():
            held.frombytes(getattr(columns, name).astype(_DTYPES[held.typecode], copy=False).tobytes())
        if sort == "operators":
            self._inputs.frombytes(_or_unknown(columns.inputs, len(columns.start)).astype(np.int32).tobytes())

    def collective(self, found: Collective) -> int:
        """Return the number of a sort of collective; -1 for one more than a trace has."""
        if len(self._collectives) >= MOST_COLLECTIVES and found not in self._collectives:
            return -1
        return self._collectives.setdefault(found, len(self._collectives))

    def call(self, operator: int, found: Collective, size: int) -> None:
        """Note which collective, of so many bytes, the operator of an external id calls."""
        if operator >= 0 and len(self._called) < MOST_COLLECTIVE_CALLS:
            self._called[operator] = (self.collective(found), size)

    def add_gpu(self, columns: Columns, more: GpuColumns) -> None:
        """Add what ran on GPUs."""
        self.add("gpu", columns)
        for name, held in self._gpu.items():
            values = getattr(more, name)
            held.frombytes(_or_unknown(values, len(columns.start)).tobytes())

    def reserve(self, device: int, size: int, at: int) -> None:
        """Note how many bytes of a GPU were reserved at a time, in nanoseconds of the trace's clock."""
        if size > self._reserved.get(device, 0):
            self._reserved[device], self._reserved_at[device] = size, at

    def count(self, gpu: int, name: str, values: Floats) -> None:
        """Add samples of a hardware counter."""
        self._tally["bad_samples"] += self._counters.add(gpu, name, values)

    def build(
        self,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        base_ns: int = 0,
        gpus: Sequence[Gpu] = (),
        framework: Framework = Framework.UNKNOWN,
        backend: str = "",
    ) -> Trace:
        """Return the trace, with what it says about itself as a whole; see `Trace`."""
        rows = {sort: Rows(**{name: _array(held) for name, held in of.items()}) for sort, of in self._rows.items()}
        gpu = GpuRows(rows=rows.pop("gpu"), **{name: _array(held) for name, held in self._gpu.items()})
        return Trace(
            name=self._name,
            rank=rank,
            world_size=world_size,
            base_ns=base_ns,
            names=self.names.texts(),
            gpus=list(gpus),
            framework=framework,
            backend=backend,
            gpu=gpu,
            reserved=self._reserved,
            reserved_at=self._reserved_at,
            tally={what: count for what, count in sorted(self._tally.items()) if count},
            counters=self._counters.tracks(),
            collectives=list(self._collectives),
            operator_collectives=self._called,
            operator_inputs=_array(self._inputs),
            **rows,
        )


def _array(values: "array[Any]") -> Any:
    kind = _DTYPES[values.typecode]
    return np.frombuffer(values, dtype=kind) if values else np.empty(0, dtype=kind)


def _or_unknown(values: Any, length: int) -> Any:
    return np.full(length, -1, dtype=np.int64) if values is None else values
