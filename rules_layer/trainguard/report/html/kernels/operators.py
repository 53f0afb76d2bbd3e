"""Operators with their shapes: what they achieve beside what the GPU can do."""

from collections.abc import Sequence

import msgspec

from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import OperatorEntry, PeaksEntry
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Block, Cell, Column, Note, Table
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, count, number, share

MOST_ROWS = 25
LONGEST = 120
RATES = ("TFLOP/s", "GB/s", "of the roofline")
UNRATED = {"cache": "in cache", "algorithm": "less arithmetic", "not_moved": "not all moved"}
NO_SHAPES = (
    "The trace has no shapes. With record_shapes=True, what operators achieve is compared with what the GPU can do."
)


def operator_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the operators with the most time on the GPU, of the first rank that has any."""
    rank = next((rank for rank in ranks if rank.operators), None)
    if rank is None:
        return []
    shown = rank.operators[:MOST_ROWS]
    shaped = any(each.shapes for each in shown)
    columns = [
        Column("Operator"),
        Column("Precision"),
        *(Column(title, "number") for title in ("Calls", "Time on the GPU", *(RATES if shaped else ()))),
        *([Column("Bound by"), Column("Shapes")] if shaped else []),
    ]
    left = len(rank.operators) - len(shown) + rank.operators_left_out
    note = f"{counted(left, 'operator')} with less time left out." if left else None
    where = "" if len(ranks) == 1 else f" of {rank_name(rank)}"
    rows = [_row(each, shaped=shaped) for each in shown]
    table = Table(f"Operators{where} by time on the GPU", columns, rows, (), note)
    return [table, Note(_peaks(rank.peaks) if shaped else NO_SHAPES)]


def _row(operator: OperatorEntry, *, shaped: bool) -> list[Cell]:
    cells: list[Cell] = [
        shown_name(operator.name, LONGEST),
        operator.precision,
        count(operator.count),
        nanos(operator.kernel_ns),
    ]
    if not shaped:
        return cells
    rates = [number(operator.tflops), number(operator.gb_per_s), _share(operator)]
    return [*cells, *rates, operator.bound or NOTHING, shown_name(_shapes(operator.shapes), LONGEST) or NOTHING]


def _share(operator: OperatorEntry) -> str:
    return share(operator.roofline_share) if operator.unrated is None else UNRATED[operator.unrated]


def _shapes(text: str) -> str:
    """Write the inputs' dimensions, without those of inputs that are no tensors: ``32x256x56x56, 256``."""
    try:
        shapes = msgspec.json.decode(text, type=list[list[int]])
    except (msgspec.DecodeError, ValueError):
        return text
    return ", ".join("x".join(map(str, shape)) for shape in shapes if shape)


def _peaks(peaks: PeaksEntry | None) -> str:
    if peaks is None:
        return "What this GPU can do at most is not known, so there is no roofline."
    most = ", ".join(f"{name} {number(value)}" for name, value in peaks.tflops.items())
    return (
        f"The roofline is that of {shown_name(peaks.gpu)}: TFLOP/s without sparsity {most}; "
        f"{number(peaks.memory_gb_per_s)} GB/s (data sheet, as of {peaks.as_of}). "
        "Arithmetic and bytes are computed from shapes, without caches. There is no share where the GPU's cache may "
        "serve half of the tensors (in cache), where an algorithm such as Winograd's needs less arithmetic, and where "
        "memory cannot move the bytes in this time, as of an expanded input (not all moved)."
    )
