"""Plots 10 to 12 of the dashboard: precision, what the GPU does, and its operations on memory."""

from collections.abc import Sequence

from trainguard.kernels.document import MemoryEntry, RankProfile
from trainguard.report.html.blocks import Block, Cell, Column, Figure, Figures, Note, Table
from trainguard.report.html.kernels.text import nanos, size
from trainguard.report.html.kernels.totals import memory_totals, precision_totals
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, count, share
from trainguard.report.html.plots.donut import COLOURS, Part, donut

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
    return Figure(caption, donut(parts, said="Time of the kernels that compute, by precision"))


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
    return Figure("GPU activity", donut([part for part in parts if part.share], said="Time of the GPU's activities"))


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
    return Figure("GPU memory operations", donut(parts, said="Time of the operations on memory, by kind"))


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
