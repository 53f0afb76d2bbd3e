"""The table of kernels, for the script and, its first rows, without one."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from markupsafe import Markup

from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import KernelEntry, MemoryEntry, OperatorEntry, PeaksEntry
from trainguard.kernels.words import counted
from trainguard.render.blocks import Block, Cell, Column, Figure, Figures, Note, Table
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, count, number, share
from trainguard.render.plots.charts import COLOURS, Part, donut
from trainguard.render.plots.strips import parts_of_whole
from trainguard.report.html.kernels.island import PageNames, nanos, rank_name, size


def kernel_totals(ranks: Iterable[RankProfile]) -> list[KernelEntry]:
    """Return the kernels of all ranks, those with the most time first."""
    found: dict[tuple[str, str], list[KernelEntry]] = {}
    for rank in ranks:
        for kernel in rank.kernels:
            found.setdefault((kernel.name, kernel.precision), []).append(kernel)
    totals = [_total(entries) for entries in found.values()]
    return sorted(totals, key=lambda each: (-each.total_ns, each.name))


def _total(entries: Sequence[KernelEntry]) -> KernelEntry:
    """Return all runs of a kernel on several ranks; ``p99_ns`` is the largest of a rank."""
    count, total_ns = (sum(getattr(each, field) for each in entries) for field in ("count", "total_ns"))
    return msgspec.structs.replace(
        entries[0],
        count=count,
        total_ns=total_ns,
        mean_ns=round(total_ns / count) if count else 0,
        min_ns=min(each.min_ns for each in entries),
        max_ns=max(each.max_ns for each in entries),
        p99_ns=max(each.p99_ns for each in entries),
        tensor_core=any(each.tensor_core for each in entries),
        communication=any(each.communication for each in entries),
        launch_calls=sum(each.launch_calls for each in entries),
        std_ns=_deviation(entries),
        short_count=sum(each.short_count for each in entries),
        occupancy=_weighted((each.occupancy, each.total_ns) for each in entries),
        blocks_per_sm=_weighted((each.blocks_per_sm, each.total_ns) for each in entries),
    )


def _deviation(entries: Sequence[KernelEntry]) -> int:
    if len(entries) == 1:
        return entries[0].std_ns
    runs = sum(each.count for each in entries)
    mean = sum(each.total_ns for each in entries) / max(runs, 1)
    squares = sum(each.count * (each.std_ns**2 + (each.total_ns / max(each.count, 1) - mean) ** 2) for each in entries)
    return round(math.sqrt(squares / max(runs, 1)))


def _weighted(values: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight]
    total = sum(weight for _, weight in known)
    return round(sum(value * weight for value, weight in known) / total, 4) if total else None


def precision_totals(ranks: Iterable[RankProfile]) -> dict[str, int]:
    """Return nanoseconds by precision, most first."""
    found: Counter[str] = Counter()
    for rank in ranks:
        found.update(rank.precision)
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def memory_totals(ranks: Iterable[RankProfile]) -> list[MemoryEntry]:
    """Return the operations on memory by kind, most time first; bytes only where every rank says them."""
    found: dict[str, list[MemoryEntry]] = {}
    for rank in ranks:
        for entry in rank.memory_operations:
            found.setdefault(entry.name, []).append(entry)
    totals = []
    for name, entries in found.items():
        sizes = [each.bytes for each in entries if each.bytes is not None]
        totals.append(
            MemoryEntry(
                name=name,
                count=sum(each.count for each in entries),
                total_ns=sum(each.total_ns for each in entries),
                bytes=sum(sizes) if len(sizes) == len(entries) else None,
            )
        )
    return sorted(totals, key=lambda each: (-each.total_ns, each.name))


TOP = 15
MOST_KERNELS = 1_000
MOST_OF_A_RANK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """Kernels of all ranks; ``others`` with the least time are in none of the page's tables."""

    kernels: Sequence[KernelEntry]
    others: int
    runs: int
    total_ns: int
    window_ns: int


def kernel_table(ranks: Sequence[RankProfile], totals: Sequence[KernelEntry]) -> KernelTable:
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

    def value(kernel: KernelEntry) -> int:
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
    bar = parts_of_whole([("", width, tone)], alt=f"{value}, {part} of all kernels")
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


def _row(kernel: KernelEntry, names: PageNames) -> list[Any]:
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


MOST_OPERATORS = 25
LONGEST_OPERATOR = 120
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
    shown = rank.operators[:MOST_OPERATORS]
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
    rows = [_operator_row(each, shaped=shaped) for each in shown]
    table = Table(f"Operators{where} by time on the GPU", columns, rows, (), note)
    return [table, Note(_peaks(rank.peaks) if shaped else NO_SHAPES)]


def _operator_row(operator: OperatorEntry, *, shaped: bool) -> list[Cell]:
    cells: list[Cell] = [
        shown_name(operator.name, LONGEST_OPERATOR),
        operator.precision,
        count(operator.count),
        nanos(operator.kernel_ns),
    ]
    if not shaped:
        return cells
    rates = [number(operator.tflops), number(operator.gb_per_s), _share(operator)]
    return [
        *cells,
        *rates,
        operator.bound or NOTHING,
        shown_name(_shapes(operator.shapes), LONGEST_OPERATOR) or NOTHING,
    ]


def _share(operator: OperatorEntry) -> str:
    return share(operator.roofline_share) if operator.unrated is None else UNRATED[operator.unrated]


def _shapes(text: str) -> str:
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


WORDS = {"integer": "integer, bool", "unknown": "not known"}
GREY = COLOURS
MOST_KINDS = 20


def share_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the parts of the GPU's time by precision, by activity and by operation on memory."""
    memory = memory_totals(ranks)
    figures = [figure for figure in (_precision(ranks), _activity(ranks), _memory(memory)) if figure is not None]
    if not figures:
        return [Note("The trace has no work of a GPU, so there is nothing to show of it.")]
    blocks: list[Block] = [Figures(figures)]
    if memory:
        blocks.append(_operations(memory))
    return blocks


def _precision(ranks: Sequence[RankProfile]) -> Figure | None:
    found = precision_totals(ranks)
    total = sum(found.values())
    if not total:
        return None
    parts = [
        Part(WORDS.get(name, name.upper()), part / total, nanos(part), GREY if name == "unknown" else place % 7 + 1)
        for place, (name, part) in enumerate(found.items())
        if part
    ]
    tensor = sum(rank.tensor_core_ns for rank in ranks)
    caption = f"Precision of the kernels that compute; {share(tensor / total)} of their time is on tensor cores"
    return Figure(caption, donut(parts, alt="Time of the kernels that compute, by precision"))


def _activity(ranks: Sequence[RankProfile]) -> Figure | None:
    found = [rank.activity for rank in ranks if rank.activity is not None]
    communication = sum(rank.communication_kernels_ns for rank in ranks)
    kernels, copies = sum(each.kernel_ns for each in found), sum(each.memory_ns for each in found)
    waits = sum(each.synchronization_ns for each in found)
    total = kernels + copies + waits
    if not kernels + copies:
        return None
    sources = {rank.synchronization_source for rank in ranks}
    side = (
        "as the GPU recorded it"
        if sources == {"gpu"}
        else "calls of the host"
        if sources == {"host"}
        else "of both sides"
    )
    parts = [
        Part("kernels that compute", (kernels - communication) / total, nanos(kernels - communication), 1),
        Part("kernels that communicate", communication / total, nanos(communication), 2),
        Part("memory", copies / total, nanos(copies), 3),
        Part(f"synchronization, {side}", waits / total, nanos(waits), GREY),
    ]
    return Figure("GPU activity", donut([part for part in parts if part.share], alt="Time of the GPU's activities"))


def _memory(memory: Sequence[MemoryEntry]) -> Figure | None:
    total = sum(each.total_ns for each in memory)
    if not total:
        return None
    shown = memory[: COLOURS - 1]
    parts = [
        Part(each.name.replace("->", "to"), each.total_ns / total, nanos(each.total_ns), place + 1)
        for place, each in enumerate(shown)
    ]
    rest = total - sum(each.total_ns for each in shown)
    if rest:
        parts.append(Part(f"{len(memory) - len(shown)} others", rest / total, nanos(rest), GREY))
    return Figure("GPU memory operations", donut(parts, alt="Time of the operations on memory, by kind"))


def _operations(memory: Sequence[MemoryEntry]) -> Table:
    columns = [
        Column("Operation"),
        *(Column(title, "number") for title in ("Calls", "Time", "Mean", "Bytes", "Bytes a second")),
    ]
    rows: list[list[Cell]] = [
        [
            shown_name(each.name, 80),
            count(each.count),
            nanos(each.total_ns),
            nanos(each.total_ns / each.count),
            size(each.bytes),
            NOTHING if each.bytes is None or not each.total_ns else f"{size(each.bytes * 1e9 / each.total_ns)}/s",
        ]
        for each in memory[:MOST_KINDS]
    ]
    left = len(memory) - len(rows)
    note = f"{left:,} kinds with less time are in kernels.json." if left else None
    return Table("Operations on memory", columns, rows, (), note)
