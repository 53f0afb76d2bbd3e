"""Two profiles side by side: how the mean step changed, in parts that add up, and what kernels and operators did."""

from collections.abc import Sequence

from trainguard.kernels.inputs import short_shapes
from trainguard.kernels.ranks.entries import ChangedEntry, Comparison, RankComparison
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Block, Cell, Column, Folded, Note, Table
from trainguard.report.html.kernels.steps import PARTS
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import number, share

MOST_RANKS = 16
MOST_ROWS = 20
LONGEST = 120
_LABELS = {key: label for key, label, _ in PARTS}


def comparison_blocks(comparison: Comparison) -> list[Block]:
    """Return each rank beside itself in the other profile, the largest change of a step first and unfolded."""
    ranks = sorted(comparison.ranks, key=lambda each: -abs(_delta(each)))
    blocks: list[Block] = [Note(f"The other profile is {shown_name(comparison.before, LONGEST)}.")]
    for place, rank in enumerate(ranks[:MOST_RANKS]):
        blocks += _rank(rank) if not place else [Folded(_title(rank), _rank(rank))]
    if len(ranks) > MOST_RANKS:
        blocks.append(Note(f"{counted(len(ranks) - MOST_RANKS, 'rank')} with less change are in kernels.json."))
    return [*blocks, *(Note(note) for note in comparison.notes)]


def signed(ns: float) -> str:
    """Write a change of time with its sign."""
    return f"+{nanos(ns)}" if ns > 0 else nanos(ns)


def _delta(rank: RankComparison) -> int:
    return 0 if rank.step is None else rank.step.after_ns - rank.step.before_ns


def _title(rank: RankComparison) -> str:
    name = shown_name(rank.after_trace, LONGEST) if rank.rank is None else f"rank {rank.rank}"
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
    blocks += _table("Kernels", changed, rank, rank.kernels_left_out)
    changed = [each for each in rank.operators if each.change != "same"]
    return [*blocks, *_table("Operators", changed, rank, rank.operators_left_out)]


def _table(what: str, changed: Sequence[ChangedEntry], rank: RankComparison, left_out: int) -> list[Block]:
    if not changed:
        return [Note(f"{what}: none changed by 1 % of a {rank.per} or more.")]
    times = ("Change", "Before", "Now", "Runs before", "Runs now")
    columns = [Column(what[:-1]), Column("What"), *(Column(title, "number") for title in times)]
    rows = [_row(each) for each in changed[:MOST_ROWS]]
    left = len(changed) - len(rows) + left_out
    note = f"Times and runs are those of a mean {rank.per}." if rank.per == "step" else "Times are those of the window."
    if left:
        note += f" {left:,} with less change are not shown."
    return [Table(f"{what} that changed", columns, rows, (), note)]


def _row(entry: ChangedEntry) -> list[Cell]:
    name = f"{entry.name} {short_shapes(entry.shapes)}" if entry.shapes else entry.name
    return [
        shown_name(name, LONGEST),
        entry.change,
        signed(entry.delta_ns),
        nanos(entry.before_ns),
        nanos(entry.after_ns),
        number(entry.before_runs),
        number(entry.after_runs),
    ]
