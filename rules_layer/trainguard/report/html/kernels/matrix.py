"""The ranks side by side: a row a rank, shaded where it is far from like ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from trainguard.kernels.costs import short_shapes
from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import CollectiveEntry
from trainguard.kernels.ranks.entries import AcrossRanks, ChangedEntry, Comparison, RankComparison, RankLine
from trainguard.kernels.words import counted
from trainguard.render.blocks import Block, Cell, Column, Figure, Figures, Folded, Note, Table, heat
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, count, number, share
from trainguard.render.plots.charts import Part, donut
from trainguard.report.html.kernels.island import NO_BREAK, nanos, rank_name, size
from trainguard.report.html.kernels.steps import PARTS

MOST_RANKS = 64
MOST_STEPS = 20
LONGEST = 60
SHADES = (0.05, 0.1, 0.2, 0.4)
"""Distances from the median of like ranks, as shares of it, from which the next darker shade begins."""

LEAST_SHARE = 0.1
LEAST_NS = 10_000.0
"""A smaller median is taken for that."""

Row = tuple[RankProfile | None, RankLine]


@dataclass(frozen=True, slots=True)
class Measure:
    """A column: its title, its value of a rank, how it is written, and the least median that it is compared with."""

    title: str
    value: Callable[[Row], float | None]
    shown: Callable[[float | None], str]
    least: float = LEAST_SHARE


def _part(field: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row[0], field) / row[0].window_ns if row[0] and row[0].window_ns else None


def _delay(row: Row) -> float | None:
    return None if row[0] is None or row[0].launch_delay_ns is None else row[0].launch_delay_ns.median


MEASURES = (
    Measure("Mean step", lambda row: row[1].step_ns, nanos, LEAST_NS),
    Measure("Computes", lambda row: row[1].compute_ns, nanos, LEAST_NS),
    Measure("Communicates", lambda row: row[1].communication_ns, nanos, LEAST_NS),
    Measure("of it exposed", lambda row: row[1].exposed_communication_ns, nanos, LEAST_NS),
    Measure("GPU busy", _part("busy_ns"), share),
    Measure("Copies, exposed", _part("exposed_memory_ns"), share),
    Measure("Synchronization", _part("synchronization_ns"), share),
    Measure("Launch delay", _delay, nanos, LEAST_NS),
)


def matrix_blocks(ranks: Sequence[RankProfile], across: AcrossRanks) -> list[Block]:
    """Return the table of ranks, of very many the farthest from the others, and who waits in which step."""
    rows = _joined(ranks, across.lines)
    values = [[measure.value(row) for measure in MEASURES] for row in rows]
    likes = sorted({line.like for line in across.lines})
    medians = {
        like: _medians([each for each, row in zip(values, rows, strict=True) if row[1].like == like]) for like in likes
    }
    far = [_farthest(row, medians[line.like]) + line.last_steps for row, (_, line) in zip(values, rows, strict=True)]
    chosen = sorted(sorted(range(len(rows)), key=lambda place: -far[place])[:MOST_RANKS])
    several = len(likes) > 1
    cells = [_row(rows[at], values[at], medians[rows[at][1].like], across, several=several) for at in chosen]
    for like in likes:
        title = f"Median of set {like + 1}" if several else "Median"
        shown = [each.shown(medians[like][place]) for place, each in enumerate(MEASURES)]
        cells.append([Markup("<b>{}</b>").format(title), *([""] if several else []), *shown, "", "", ""])
    table = Table(f"{len(rows):,} ranks", _columns(several=several), cells, (), _note(len(rows) - len(chosen)))
    waits = _waits([rows[at] for at in chosen], across)
    return [table, *waits, *_transfers(across), *(Note(note) for note in across.notes)]


def _joined(ranks: Sequence[RankProfile], lines: Sequence[RankLine]) -> list[Row]:
    """Return the lines with the profiles; a document that lists all ranks has both in one order."""
    if len(ranks) == len(lines):
        return list(zip(ranks, lines, strict=True))
    listed = {(rank.trace, rank.rank): rank for rank in ranks}
    # A rank that several traces are of is called by its file, and listed without its number.
    return [(listed.get((line.trace, line.rank)) or listed.get((line.trace, None)), line) for line in lines]


def _columns(*, several: bool) -> list[Column]:
    titles = (*(each.title for each in MEASURES), "Waits", "Last in", "Findings")
    return [Column("Rank"), *([Column("Kernels")] if several else []), *(Column(each, "number") for each in titles)]


def _row(
    row: Row, values: Sequence[float | None], medians: Sequence[float | None], across: AcrossRanks, *, several: bool
) -> list[Cell]:
    rank, line = row
    cells = [_cell(value, medians[place], MEASURES[place]) for place, value in enumerate(values)]
    steps = across.compared_steps
    last = heat(_shade(line.last_steps / steps), f"{line.last_steps} of {counted(steps, 'step')}") if steps else NOTHING
    return [
        _name(row),
        *([f"set {line.like + 1}"] if several else []),
        *cells,
        nanos(line.wait_ns),
        NOTHING if line.wait_ns is None else last,
        NOTHING if rank is None else count(len(rank.findings)),
    ]


def _name(row: Row) -> str:
    return rank_name(row[1] if row[0] is None else row[0]).replace(" ", NO_BREAK)


def _wait(wait_ns: int, step_ns: int, most_ns: int) -> Cell:
    if wait_ns:
        return heat(0, nanos(wait_ns))
    away = most_ns / max(step_ns, LEAST_NS)
    return heat(sum(away >= shade for shade in SHADES), "last")


def _shade(share_of_steps: float) -> int:
    return 4 if share_of_steps >= 0.5 else 2 if share_of_steps >= 0.25 else 0


def _waits(rows: Sequence[Row], across: AcrossRanks) -> list[Block]:
    """Return how long each rank waits in each step; nothing where no collective is compared."""
    steps = across.steps[:MOST_STEPS]
    known = [row for row in rows if row[1].waits_ns]
    if not known or not steps:
        return []
    most = [max(line.waits_ns[place] for line in across.lines if line.waits_ns) for place in range(len(steps))]
    cells: list[list[Cell]] = [
        [_name(row), *(_wait(wait, row[1].step_ns, top) for wait, top in zip(row[1].waits_ns, most, strict=False))]
        for row in known
    ]
    left = across.compared_steps - len(steps)
    note = (
        "How long the rank waits in the collective for the one that comes last into it. No clocks are compared. The "
        "last one is darker the longer others wait for it, from 5 % of a step on."
    )
    if left > 0:
        note += f" {counted(left, 'step')} more are compared."
    columns = [Column("Rank"), *(Column(f"step {step}", "number") for step in steps)]
    return [Table(f"Waits in {across.collective}", columns, cells, (), note)]


def _transfers(across: AcrossRanks) -> list[Block]:
    if not across.transfers:
        return []
    titles = ("Ranks", "Steps", "Transfer", "Wait", "Bytes", "Algorithm GB/s", "Bus GB/s")
    rows: list[list[Cell]] = [
        [
            " ".join(shown_name(part, LONGEST) for part in (each.name, each.group, each.dtype) if part),
            count(each.ranks),
            count(each.steps),
            nanos(each.transfer_ns),
            nanos(each.wait_ns),
            size(each.bytes),
            number(each.algorithm_gb_per_s),
            number(each.bus_gb_per_s),
        ]
        for each in across.transfers[:MOST_STEPS]
    ]
    note = (
        "The transfer is the time on the rank that comes last, which waits for nobody: it takes at most so long, and "
        "is at least so fast. The wait is that of the mean rank beyond it."
    )
    left = len(across.transfers) - len(rows)
    note += f" {left:,} with less time are not shown." if left else ""
    columns = [Column("Collective"), *(Column(title, "number") for title in titles)]
    return [Table("Transfer and wait of collectives", columns, rows, (), note)]


def _note(left: int) -> str:
    note = (
        "Times are means of a step. A cell is darker the farther it is from the median of the ranks that run the same "
        "kernels, from 5 % of it on."
    )
    if left:
        note += f" The {MOST_RANKS} ranks that are farthest from it are shown, {left:,} are not; kernels.json has them."
    return note


def _medians(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    return [_median(column) for column in zip(*rows, strict=True)]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _farthest(row: Sequence[float | None], medians: Sequence[float | None]) -> float:
    return max(_away(value, medians[place], MEASURES[place]) for place, value in enumerate(row))


def _away(value: float | None, median: float | None, measure: Measure) -> float:
    if value is None or median is None:
        return 0.0
    return abs(value - median) / max(median, measure.least)


def _cell(value: float | None, median: float | None, measure: Measure) -> Cell:
    if value is None:
        return NOTHING
    return heat(sum(_away(value, median, measure) >= shade for shade in SHADES), measure.shown(value))


MOST_COLLECTIVES = 30
LONGEST_COLLECTIVE = 80


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
        "Time in which a collective runs", donut(parts, alt="Communication that computation overlaps, and exposed")
    )
    found = _collectives(ranks)
    if not found:
        return [Figures([figure])]
    return [Figures([figure]), _table(found, ranks)]


def _collectives(ranks: Sequence[RankProfile]) -> list[list[CollectiveEntry]]:
    found: dict[tuple[str, str, str], list[CollectiveEntry]] = {}
    for rank in ranks:
        for each in rank.collectives:
            found.setdefault((each.name, each.group, each.dtype), []).append(each)
    return sorted(found.values(), key=lambda entries: -sum(each.total_ns for each in entries))


def _table(found: Sequence[list[CollectiveEntry]], ranks: Sequence[RankProfile]) -> Table:
    titles = ("Runs", "Time", "Exposed", "Median", "Bytes", "Algorithm GB/s", "Bus GB/s")
    columns = [Column("Collective"), Column("Group"), Column("Type"), *(Column(each, "number") for each in titles)]
    shown = found[:MOST_COLLECTIVES]
    left = len(found) - len(shown) + sum(rank.collectives_left_out for rank in ranks)
    note = (
        "A run that waits for a late rank is longer, so its bandwidth looks lower. The bandwidth of the bus is what "
        "the links carry for the collective, so that collectives of different sorts and sizes of group compare."
    )
    if left:
        note += f" {counted(left, 'collective')} with less time left out."
    return Table("Collectives", columns, [_collective_row(entries) for entries in shown], (), note)


def _collective_row(entries: Sequence[CollectiveEntry]) -> list[Cell]:
    first = entries[0]
    total = sum(each.total_ns for each in entries)
    sizes = [each.bytes for each in entries if each.bytes is not None]
    group = first.group if first.group_size is None else f"{first.group} ({first.group_size:,} ranks)"
    return [
        shown_name(first.name, LONGEST_COLLECTIVE),
        shown_name(group.strip(), LONGEST_COLLECTIVE),
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
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING
    low, high = number(min(known)), number(max(known))
    return low if low == high else f"{low} to {high}"


MOST_COMPARED = 16
MOST_CHANGES = 20
LONGEST_CHANGE = 120
_LABELS = {key: label for key, label, _ in PARTS}


def comparison_blocks(comparison: Comparison) -> list[Block]:
    """Return each rank beside itself in the other profile, the largest change of a step first and unfolded."""
    ranks = sorted(comparison.ranks, key=lambda each: -abs(_delta(each)))
    blocks: list[Block] = [Note(f"The other profile is {shown_name(comparison.before, LONGEST)}.")]
    for place, rank in enumerate(ranks[:MOST_COMPARED]):
        blocks += _rank(rank) if not place else [Folded(_title(rank), _rank(rank))]
    if len(ranks) > MOST_COMPARED:
        blocks.append(Note(f"{counted(len(ranks) - MOST_RANKS, 'rank')} with less change are in kernels.json."))
    return [*blocks, *(Note(note) for note in comparison.notes)]


def signed(ns: float) -> str:
    """Write a change of time with its sign."""
    return f"+{nanos(ns)}" if ns > 0 else nanos(ns)


def _delta(rank: RankComparison) -> int:
    return 0 if rank.step is None else rank.step.after_ns - rank.step.before_ns


def _title(rank: RankComparison) -> str:
    name = shown_name(rank.after_trace, LONGEST_CHANGE) if rank.rank is None else f"rank {rank.rank}"
    if rank.step is None:
        return f"{name}: without steps, so windows are compared"
    before, after = rank.step.before_ns, rank.step.after_ns
    more = f", {share(abs(after - before) / before)} {'more' if after > before else 'less'}" if before else ""
    return f"{name}: a step took {nanos(before)} and takes {nanos(after)}{more}"


def _rank(rank: RankComparison) -> list[Block]:
    blocks: list[Block] = [Note(f"{_title(rank)}.")]
    if rank.step is not None:
        parts = sorted(rank.step.parts.items(), key=lambda part: -abs(part[1]))
        rows: list[list[Cell]] = [[_LABELS.get(name, name), signed(change)] for name, change in parts if change]
        rows.append(["the step", signed(_delta(rank))])
        columns = [Column("Part of a step"), Column("Change", "number")]
        blocks.append(Table("Why the step changed", columns, rows, (), "The parts add up to the change of the step."))
    changed = [each for each in rank.kernels if each.change != "same"]
    blocks += _change_table("Kernels", changed, rank, rank.kernels_left_out)
    changed = [each for each in rank.operators if each.change != "same"]
    return [*blocks, *_change_table("Operators", changed, rank, rank.operators_left_out)]


def _change_table(what: str, changed: Sequence[ChangedEntry], rank: RankComparison, left_out: int) -> list[Block]:
    if not changed:
        return [Note(f"{what}: none changed by 1 % of a {rank.per} or more.")]
    times = ("Change", "Before", "Now", "Runs before", "Runs now")
    columns = [Column(what[:-1]), Column("What"), *(Column(title, "number") for title in times)]
    rows = [_change_row(each) for each in changed[:MOST_CHANGES]]
    left = len(changed) - len(rows) + left_out
    note = f"Times and runs are those of a mean {rank.per}." if rank.per == "step" else "Times are those of the window."
    if left:
        note += f" {left:,} with less change are not shown."
    return [Table(f"{what} that changed", columns, rows, (), note)]


def _change_row(entry: ChangedEntry) -> list[Cell]:
    name = f"{entry.name} {short_shapes(entry.shapes)}" if entry.shapes else entry.name
    return [
        shown_name(name, LONGEST_CHANGE),
        entry.change,
        signed(entry.delta_ns),
        nanos(entry.before_ns),
        nanos(entry.after_ns),
        number(entry.before_runs),
        number(entry.after_runs),
    ]
