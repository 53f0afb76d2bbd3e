"""The table of kernels, for the script and, its first rows, without one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from trainguard.kernels.document import KernelEntry, RankProfile
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.kernels.names import PageNames
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.kernels.totals import KernelTotal
from trainguard.report.html.numbers import count, share
from trainguard.report.html.plots.strips import parts_of_whole

TOP = 15
MOST_KERNELS = 1_000
MOST_OF_A_RANK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """Kernels of all ranks; ``others`` with the least time are in none of the page's tables."""

    kernels: Sequence[KernelTotal]
    others: int
    runs: int
    total_ns: int
    window_ns: int


def kernel_table(ranks: Sequence[RankProfile], totals: Sequence[KernelTotal]) -> KernelTable:
    """Return the table; its totals are of every kernel, also of those that it leaves out."""
    return KernelTable(
        kernels=totals[:MOST_KERNELS],
        others=max(len(totals) - MOST_KERNELS, 0) + sum(rank.kernels_left_out for rank in ranks),
        runs=sum(each.count for each in totals) + sum(rank.kernels_left_out_count for rank in ranks),
        total_ns=sum(each.total_ns for each in totals) + sum(rank.kernels_left_out_ns for rank in ranks),
        window_ns=sum(rank.window_ns for rank in ranks),
    )


@dataclass(frozen=True, slots=True)
class TopRow:
    """A row of a chart of kernels: name, bar, value and share of all."""

    name: str
    bar: Markup
    value: str
    share: str


def top_rows(table: KernelTable, *, by_time: bool) -> list[TopRow]:
    """Return the first kernels by time or by runs, and all others as one row."""

    def value(kernel: KernelTotal) -> int:
        return kernel.total_ns if by_time else kernel.count

    whole = table.total_ns if by_time else table.runs
    shown = nanos if by_time else count
    kernels = sorted(table.kernels, key=lambda each: -value(each))[:TOP]
    rest = whole - sum(value(each) for each in kernels)
    values = [(each.name, value(each), "s2" if each.communication else "s1") for each in kernels]
    if len(table.kernels) > TOP:
        values.append((f"{len(table.kernels) - TOP:,} others", rest, "s8"))
    most = max((each for _, each, _ in values), default=0) or 1
    return [_top_row(name, shown(each), share(each / (whole or 1)), each / most, tone) for name, each, tone in values]


def _top_row(name: str, value: str, part: str, width: float, tone: str) -> TopRow:
    bar = parts_of_whole([("", width, tone)], said=f"{value}, {part} of all kernels")
    return TopRow(name, bar, value, part)


def kernels_document(table: KernelTable, drawn: Sequence[RankProfile], ranks: int, names: PageNames) -> list[Any]:
    """Return the views of the table: all ranks, and each of those that are shown one by one."""
    whole = {
        "title": "all ranks" if ranks > 1 else "all kernels",
        "window": table.window_ns,
        "total": table.total_ns,
        "runs": table.runs,
        "rows": [_row(each, names) for each in table.kernels],
    }
    if ranks < 2:
        return [whole]
    return [whole, *(_view(rank, names) for rank in drawn)]


def _view(rank: RankProfile, names: PageNames) -> dict[str, Any]:
    return {
        "title": rank_name(rank),
        "window": rank.window_ns,
        "total": sum(each.total_ns for each in rank.kernels) + rank.kernels_left_out_ns,
        "runs": sum(each.count for each in rank.kernels) + rank.kernels_left_out_count,
        "rows": [_row(each, names) for each in rank.kernels[:MOST_OF_A_RANK]],
    }


def _row(kernel: KernelTotal | KernelEntry, names: PageNames) -> list[Any]:
    flags = int(kernel.tensor_core) + 2 * int(kernel.communication)
    return [
        names.number(kernel.name),
        kernel.count,
        kernel.total_ns,
        kernel.min_ns,
        kernel.max_ns,
        kernel.p99_ns,
        kernel.precision,
        flags,
        names.number(kernel.operator) if kernel.operator else -1,
        kernel.launch_calls,
        kernel.std_ns,
        kernel.short_count,
        kernel.occupancy,
        kernel.blocks_per_sm,
    ]
