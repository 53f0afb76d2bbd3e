"""How kernels are launched: how many calls, how long until they start, and how many are slow or short."""

from collections.abc import Sequence

from trainguard.kernels.document import Distribution, RankProfile
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Block, Cell, Column, Table
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.numbers import NOTHING, count, share

MOST_ROWS = 16


def launch_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the table of launches, a row a rank; nothing where no trace has kernels."""
    found = [(rank, rank.launches) for rank in ranks if rank.launches is not None and rank.launches.kernels]
    if not found:
        return []
    rows: list[list[Cell]] = [
        [
            rank_name(rank) if len(ranks) > 1 else "all kernels",
            count(launches.kernels),
            count(launches.calls),
            _times(rank.launch_to_start_ns),
            _times(rank.launch_delay_ns),
            share(launches.short_kernels / launches.kernels),
            count(launches.slow_calls),
            count(launches.slow_starts),
        ]
        for rank, launches in found[:MOST_ROWS]
    ]
    titles = (
        "Kernels",
        "Calls",
        "Call to start",
        "End of call to start",
        "Shorter than their call",
        "Calls over 50 µs",
        "Starts over 100 µs",
    )
    note = "From a call to its kernel: median, and 90th percentile. A kernel that waits in a full queue starts late."
    if len(found) > MOST_ROWS:
        note += f" {counted(len(found) - MOST_ROWS, 'rank')} more are in kernels.json."
    columns = [Column("Launches"), *(Column(title, "number") for title in titles)]
    return [Table("From launches to kernels", columns, rows, (), note)]


def _times(found: Distribution | None) -> str:
    return NOTHING if found is None else f"{nanos(found.median)}, {nanos(found.p90)}"
