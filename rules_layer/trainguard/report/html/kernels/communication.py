"""Collectives: how long they take, how much of that computation overlaps, and what they move."""

from collections.abc import Sequence

from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import CollectiveEntry
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Block, Cell, Column, Figure, Figures, Table
from trainguard.report.html.kernels.text import nanos, size
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, count, number, share
from trainguard.report.html.plots.donut import Part, donut

MOST_ROWS = 30
LONGEST = 80


def communication_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the parts of the communication's time, and the collectives; nothing where no rank communicates."""
    total = sum(rank.communication_ns for rank in ranks)
    if not total:
        return []
    exposed = sum(rank.exposed_communication_ns for rank in ranks)
    parts = [
        Part("overlapped by computation", (total - exposed) / total, nanos(total - exposed), 1),
        Part("exposed", exposed / total, nanos(exposed), 2),
    ]
    figure = Figure(
        "Time in which a collective runs", donut(parts, said="Communication that computation overlaps, and exposed")
    )
    found = _collectives(ranks)
    if not found:
        return [Figures([figure])]
    return [Figures([figure]), _table(found, ranks)]


def _collectives(ranks: Sequence[RankProfile]) -> list[list[CollectiveEntry]]:
    """Return the collectives of all ranks, those of one name, group and type together, most time first."""
    found: dict[tuple[str, str, str], list[CollectiveEntry]] = {}
    for rank in ranks:
        for each in rank.collectives:
            found.setdefault((each.name, each.group, each.dtype), []).append(each)
    return sorted(found.values(), key=lambda entries: -sum(each.total_ns for each in entries))


def _table(found: Sequence[list[CollectiveEntry]], ranks: Sequence[RankProfile]) -> Table:
    titles = ("Runs", "Time", "Exposed", "Median", "Bytes", "Algorithm GB/s", "Bus GB/s")
    columns = [Column("Collective"), Column("Group"), Column("Type"), *(Column(each, "number") for each in titles)]
    shown = found[:MOST_ROWS]
    left = len(found) - len(shown) + sum(rank.collectives_left_out for rank in ranks)
    note = (
        "A run that waits for a late rank is longer, so its bandwidth looks lower. The bandwidth of the bus is what "
        "the links carry for the collective, so that collectives of different sorts and sizes of group compare."
    )
    if left:
        note += f" {counted(left, 'collective')} with less time left out."
    return Table("Collectives", columns, [_row(entries) for entries in shown], (), note)


def _row(entries: Sequence[CollectiveEntry]) -> list[Cell]:
    first = entries[0]
    total = sum(each.total_ns for each in entries)
    sizes = [each.bytes for each in entries if each.bytes is not None]
    group = first.group if first.group_size is None else f"{first.group} ({first.group_size:,} ranks)"
    return [
        shown_name(first.name, LONGEST),
        shown_name(group.strip(), LONGEST),
        shown_name(first.dtype),
        count(sum(each.count for each in entries)),
        nanos(total),
        share(sum(each.exposed_ns for each in entries) / total) if total else NOTHING,
        nanos(first.median_ns) if len(entries) == 1 else NOTHING,
        size(sum(sizes)) if sizes else NOTHING,
        _rates([each.algorithm_gb_per_s for each in entries]),
        _rates([each.bus_gb_per_s for each in entries]),
    ]


def _rates(values: Sequence[float | None]) -> str:
    """Write a bandwidth, of several ranks the range of theirs."""
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING
    low, high = number(min(known)), number(max(known))
    return low if low == high else f"{low} to {high}"
