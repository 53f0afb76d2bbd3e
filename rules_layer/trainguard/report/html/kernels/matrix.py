"""The ranks side by side: a row a rank, shaded where it is far from the ranks that are like it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from trainguard.kernels.document import RankProfile
from trainguard.kernels.ranks.entries import AcrossRanks, RankLine
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Block, Cell, Column, Note, Table, heat
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.kernels.text import nanos, size
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, count, number, share

MOST_RANKS = 64
MOST_STEPS = 20
LONGEST = 60
NO_BREAK = "\N{NO-BREAK SPACE}"
SHADES = (0.05, 0.1, 0.2, 0.4)
"""So far from the median of like ranks, as a share of it, a cell has the next darker shade."""

LEAST_SHARE = 0.1
LEAST_NS = 10_000.0
"""A smaller median is taken for that, so that small numbers are not far from each other."""

Row = tuple[RankProfile | None, RankLine]
"""A rank's profile, None where the document does not list it, and its line."""


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
    """Return the table of ranks, of very many those that are farthest from the others, and who waits in which step.

    Parameters
    ----------
    ranks : sequence of RankProfile
        Those that the document lists.
    across : AcrossRanks
        All ranks.
    """
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
    """Return how the page calls a rank, on one line: one of several traces of a rank by its file."""
    return rank_name(row[1] if row[0] is None else row[0]).replace(" ", NO_BREAK)


def _wait(wait_ns: int, step_ns: int, most_ns: int) -> Cell:
    """Write a wait; the rank that comes last waits for nobody, and is dark where others wait for it."""
    if wait_ns:
        return heat(0, nanos(wait_ns))
    away = most_ns / max(step_ns, LEAST_NS)
    return heat(sum(away >= shade for shade in SHADES), "last")


def _shade(share_of_steps: float) -> int:
    """Return a shade for how often a rank comes last: from half of the steps on it is the late one."""
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
    """Return the collectives with their time on the rank that comes last; nothing where none is compared."""
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
    """Return how far a value is from the median, as a share of it."""
    if value is None or median is None:
        return 0.0
    return abs(value - median) / max(median, measure.least)


def _cell(value: float | None, median: float | None, measure: Measure) -> Cell:
    if value is None:
        return NOTHING
    return heat(sum(_away(value, median, measure) >= shade for shade in SHADES), measure.shown(value))
