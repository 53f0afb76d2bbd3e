"""The kernels of a rank by name: how often, how long, in which precision, and whether on tensor cores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.kernels.columns import Ints, Kind, Trace
from trainguard.kernels.kernel_names import KernelName, Precision, classify
from trainguard.kernels.metrics import RankMetrics

_MOVES_BYTES = KernelName(Precision.UNKNOWN, tensor_core=False, eligible=False)
"""A collective's name gives the type of the bytes that it moves: ``int8_t`` is a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """All runs of one kernel in the window; times in nanoseconds, ``underfilled_ns`` with under one block per SM."""

    name: str
    says: KernelName
    communication: bool
    count: int
    total_ns: int
    mean_ns: int
    min_ns: int
    max_ns: int
    p99_ns: int
    underfilled_ns: int


@dataclass(frozen=True, slots=True)
class KernelTable:
    """The lines, most time first."""

    lines: Sequence[KernelLine]

    @property
    def compute(self) -> list[KernelLine]:
        """The lines without communication."""
        return [line for line in self.lines if not line.communication]

    @property
    def compute_ns(self) -> int:
        """Time of all kernels that compute, overlapping ones counted each."""
        return sum(line.total_ns for line in self.compute)

    def by_precision(self) -> dict[Precision, int]:
        """Return the time of what computes by precision, most first."""
        sums: dict[Precision, int] = {}
        for line in self.compute:
            sums[line.says.precision] = sums.get(line.says.precision, 0) + line.total_ns
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @property
    def tensor_core_ns(self) -> int:
        """Time of kernels that use tensor cores."""
        return sum(line.total_ns for line in self.compute if line.says.tensor_core)

    @property
    def eligible_ns(self) -> int:
        """Time of kernels that use tensor cores or could."""
        return sum(line.total_ns for line in self.compute if line.says.eligible)


def kernel_table(metrics: RankMetrics) -> KernelTable:
    """Return the kernels of a rank's window."""
    trace = metrics.trace
    chosen = np.flatnonzero(metrics.in_window & (trace.gpu.kind <= Kind.COMMUNICATION))
    chosen = chosen[np.argsort(trace.gpu.rows.name[chosen], kind="stable")]
    names, first = np.unique(trace.gpu.rows.name[chosen], return_index=True)
    operands = _operands(trace)
    lines = [
        _line(trace, trace.names[int(name)], rows, operands)
        for name, rows in zip(names, np.split(chosen, first[1:])[: len(names)], strict=True)
    ]
    return KernelTable(sorted(lines, key=lambda line: (-line.total_ns, line.name)))


def _operands(trace: Trace) -> dict[int, int]:
    """Return the number of the first floating input type by operator."""
    empty = trace.names.index("") if "" in trace.names else -1
    typed = trace.operators.correlation != empty
    typed &= trace.operators.operator >= 0
    return dict(zip(trace.operators.operator[typed].tolist(), trace.operators.correlation[typed].tolist(), strict=True))


def _line(trace: Trace, name: str, rows: Ints, operands: dict[int, int]) -> KernelLine:
    lasted = trace.gpu.rows.end[rows] - trace.gpu.rows.start[rows]
    communication = bool(trace.gpu.kind[rows[0]] == Kind.COMMUNICATION)
    says = _MOVES_BYTES if communication else classify(name)
    if not communication and says.precision is Precision.UNKNOWN:
        typed = (operands[each] for each in trace.gpu.rows.operator[rows].tolist() if each in operands)
        says = classify(name, trace.names[number] if (number := next(typed, None)) is not None else "")
    return KernelLine(
        name=name,
        says=says,
        communication=communication,
        count=len(rows),
        total_ns=int(lasted.sum()),
        mean_ns=round(float(lasted.mean())),
        min_ns=int(lasted.min()),
        max_ns=int(lasted.max()),
        p99_ns=round(float(np.percentile(lasted, 99))),
        underfilled_ns=int(lasted[trace.gpu.blocks_per_sm[rows] < 1].sum()),
    )
