"""The kernels of a rank by name: how often, how long, in which precision, and whether on tensor cores."""

import numpy as np

from trainguard.kernels.columns import Floats, Ints, Kind
from trainguard.kernels.durations import exact_sum
from trainguard.kernels.entries import KernelEntry
from trainguard.kernels.kernel_names import KernelName, Precision, classify
from trainguard.kernels.metrics import RankMetrics

_MOVES_BYTES = KernelName(Precision.UNKNOWN, tensor_core=False, eligible=False)
"""A collective's name gives the type of the bytes that it moves: ``int8_t`` is a copy."""


class KernelLine(KernelEntry, frozen=True, kw_only=True):
    """All runs of one kernel in the window; ``rows`` are the GPU's, ``eligible`` says that it could use tensor cores.

    ``underfilled_ns`` is the time of runs with less than one block per multiprocessor.
    """

    eligible: bool
    underfilled_ns: int
    rows: Ints

    def entry(self) -> KernelEntry:
        """Return the part of it that the document has."""
        return KernelEntry(**{name: getattr(self, name) for name in KernelEntry.__struct_fields__})


def kernel_lines(metrics: RankMetrics) -> list[KernelLine]:
    """Return the kernels of a rank's window, most time first."""
    trace = metrics.trace
    chosen = np.flatnonzero(metrics.in_window & (trace.gpu.kind <= Kind.COMMUNICATION))
    chosen = chosen[np.argsort(trace.gpu.rows.name[chosen], kind="stable")]
    names, first = np.unique(trace.gpu.rows.name[chosen], return_index=True)
    lines = [
        _line(metrics, trace.names[int(name)], rows)
        for name, rows in zip(names, np.split(chosen, first[1:])[: len(names)], strict=True)
    ]
    return sorted(lines, key=lambda line: (-line.total_ns, line.name))


def _line(metrics: RankMetrics, name: str, rows: Ints) -> KernelLine:
    gpu = metrics.trace.gpu
    lasted = gpu.rows.end[rows] - gpu.rows.start[rows]
    total = exact_sum(lasted)
    communication = bool(gpu.kind[rows[0]] == Kind.COMMUNICATION)
    occupied = weighted(gpu.occupancy[rows], lasted)
    blocks = weighted(gpu.blocks_per_sm[rows], lasted)
    says = _MOVES_BYTES if communication else _says(metrics, name, rows)
    return KernelLine(
        name=name,
        precision=says.precision.value,
        tensor_core=says.tensor_core,
        eligible=says.eligible,
        communication=communication,
        count=len(rows),
        total_ns=total,
        mean_ns=round(total / len(rows)),
        min_ns=int(lasted.min()),
        max_ns=int(lasted.max()),
        p99_ns=round(float(np.percentile(lasted, 99))),
        std_ns=round(float(lasted.std())),
        launch_calls=len(np.unique(_known(metrics.window.launch[rows]))),
        short_count=_short(metrics, rows, lasted),
        operator=_operator(metrics, rows, lasted),
        occupancy=None if occupied is None else round(occupied / 100, 4),
        blocks_per_sm=None if blocks is None else round(blocks, 4),
        underfilled_ns=exact_sum(lasted[gpu.blocks_per_sm[rows] < 1]),
        rows=rows,
    )


def _says(metrics: RankMetrics, name: str, rows: Ints) -> KernelName:
    """Return what the name says, else what the first operator with a floating input does."""
    says = classify(name)
    if says.precision is not Precision.UNKNOWN:
        return says
    trace = metrics.trace
    typed = trace.operators.correlation[_known(metrics.operator[rows])]
    return next((classify(name, text) for each in typed.tolist() if (text := trace.names[each])), says)


def _operator(metrics: RankMetrics, rows: Ints, lasted: Ints) -> str:
    launched = metrics.operator[rows] >= 0
    if not launched.any():
        return ""
    names, place = np.unique(metrics.trace.operators.name[metrics.operator[rows][launched]], return_inverse=True)
    most = np.bincount(place, weights=lasted[launched]).argmax()
    return metrics.trace.names[int(names[most])]


def _short(metrics: RankMetrics, rows: Ints, lasted: Ints) -> int:
    launch = metrics.window.launch[rows]
    calls = metrics.trace.launches
    called = calls.end[_known(launch)] - calls.start[_known(launch)]
    return int((lasted[launch >= 0] < called).sum())


def _known(places: Ints) -> Ints:
    return places[places >= 0]


def weighted(values: Floats, weights: Ints) -> float | None:
    """Return the mean of values that are known, weighted; None where none is or none has a weight."""
    known = ~np.isnan(values)
    total = int(weights[known].sum())
    return float((values[known] * weights[known]).sum()) / total if total else None
