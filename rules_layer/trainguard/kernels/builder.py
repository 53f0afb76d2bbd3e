"""What readers of all formats collect a trace in: columns by sort, and how much of it there may be."""

from array import array
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from trainguard.errors import KernelTraceError
from trainguard.kernels.columns import (
    Collective,
    Floats,
    Framework,
    Gpu,
    GpuRows,
    Ints,
    Names,
    RowBuilder,
    Trace,
    as_floats,
    as_ints,
    as_numbers,
)
from trainguard.kernels.counters import CounterSums
from trainguard.kernels.limits import MOST_COLLECTIVE_CALLS, MOST_COLLECTIVES, MOST_NAME_BYTES, MOST_ROWS

SORTS = ("gpu", "launches", "waits", "annotations", "gpu_annotations", "operators", "overhead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Rows to add: nanoseconds, numbers of names and lanes, and -1 where a join is not known.

    ``inputs`` are those of operators; see `Trace.operator_inputs`.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a trace says of itself as a whole; see `Trace`."""

    rank: int | None = None
    world_size: int | None = None
    base_ns: int = 0
    gpus: list[Gpu] = field(default_factory=list)
    framework: Framework = Framework.UNKNOWN
    backend: str = ""


class TraceBuilder:
    """Collects one trace.

    Parameters
    ----------
    name : str
        The trace's; named in errors.
    tally : Counter
        What a reader counts.
    """

    def __init__(self, name: str, tally: Counter[str]) -> None:
        self.names = Names()
        self._name = name
        self._tally = tally
        self._rows = {sort: RowBuilder() for sort in SORTS}
        self._count = 0
        self._ints = {column: array("q") for column in ("kind", "device", "size", "collective")}
        self._inputs = array("i")
        self._collectives: dict[Collective, int] = {}
        self._called: dict[int, tuple[int, int]] = {}
        self._floats = {column: array("d") for column in ("blocks_per_sm", "occupancy")}
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
        self._rows[sort].extend(
            (columns.start, columns.end, columns.name, columns.lane, columns.correlation, columns.operator)
        )
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
        for column, whole in self._ints.items():
            whole.frombytes(_or_unknown(getattr(more, column), len(columns.start)).tobytes())
        for column, parts in self._floats.items():
            parts.frombytes(getattr(more, column).tobytes())

    def reserve(self, device: int, size: int, at: int) -> None:
        """Note how many bytes of a GPU were reserved at a time, in nanoseconds of the trace's clock."""
        if size > self._reserved.get(device, 0):
            self._reserved[device], self._reserved_at[device] = size, at

    def count(self, gpu: int, name: str, values: Floats) -> None:
        """Add samples of a hardware counter."""
        self._tally["bad_samples"] += self._counters.add(gpu, name, values)

    def build(self, head: Head) -> Trace:
        """Return the trace."""
        rows = {sort: builder.build() for sort, builder in self._rows.items()}
        gpu = GpuRows(
            rows=rows.pop("gpu"),
            kind=as_ints(self._ints["kind"]),
            device=as_ints(self._ints["device"]),
            size=as_ints(self._ints["size"]),
            blocks_per_sm=as_floats(self._floats["blocks_per_sm"]),
            occupancy=as_floats(self._floats["occupancy"]),
            collective=as_ints(self._ints["collective"]),
        )
        return Trace(
            name=self._name,
            rank=head.rank,
            world_size=head.world_size,
            base_ns=head.base_ns,
            names=self.names.texts(),
            gpus=head.gpus,
            framework=head.framework,
            backend=head.backend,
            gpu=gpu,
            reserved=self._reserved,
            reserved_at=self._reserved_at,
            tally={what: count for what, count in sorted(self._tally.items()) if count},
            counters=self._counters.tracks(),
            collectives=list(self._collectives),
            operator_collectives=self._called,
            operator_inputs=as_numbers(self._inputs),
            **rows,
        )


def _or_unknown(values: Ints | None, length: int) -> Ints:
    return np.full(length, -1, dtype=np.int64) if values is None else values
