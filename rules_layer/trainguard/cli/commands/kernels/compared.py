"""Two profiles beside each other, on the terminal."""

from collections.abc import Iterator, Sequence

from trainguard.cli.output.rendering import Block, Column, Facts, Grid, Heading, Line
from trainguard.kernels.changes import ChangedEntry, Comparison, RankComparison
from trainguard.kernels.comparison.text import CHANGES, PARTS, causes, comparable, headline, signed
from trainguard.kernels.costs import short_shapes
from trainguard.render.names import shown_name
from trainguard.render.numbers import nanos, number

SHOWN = 15
SHOWN_RANKS = 8
# Of a kernel on a line; ``kernels.json`` has it whole.
LONGEST_NAME = 100


def comparison_blocks(comparison: Comparison) -> Iterator[Block]:
    yield from (Line(note) for note in comparison.notes)
    ranks = sorted(comparison.ranks, key=lambda rank: -abs(rank.worsened))
    for rank in ranks[:SHOWN_RANKS]:
        yield from _compared(rank)
    if left := len(ranks) - SHOWN_RANKS:
        yield from [Line(f"{left:,} ranks that changed less are in kernels.json.")] if left > 0 else []


def _compared(rank: RankComparison) -> Iterator[Block]:
    yield Heading(f"{rank.after_trace} compared with {rank.before_trace}")
    yield from (Line(text) for text in (comparable(rank.comparable), headline(rank), *causes(rank)))
    if rank.step is not None:
        parts = sorted(rank.step.parts.items(), key=lambda part: -abs(part[1]))
        yield Facts([(PARTS[name], signed(part)) for name, part in parts if part])
    for title, entries in (("kernel", rank.kernels), ("operator", rank.operators)):
        changed = [each for each in entries if each.change != "same"][:SHOWN]
        if changed:
            yield Grid(_columns(title, rank), [_row(each) for each in changed])


def _columns(title: str, rank: RankComparison) -> Sequence[Column]:
    whole = "of a step" if rank.per == "step" else "of this work"
    of_step = [] if rank.step is None else [Column(whole, right=True)]
    return (Column(title, folds=True), Column("change"), Column("a run"), *of_step, Column("runs"))


def _row(entry: ChangedEntry) -> list[str]:
    name = f"{entry.name} {short_shapes(entry.shapes)}" if entry.shapes else entry.name
    run = f"{nanos(entry.run_before_ns)} to {nanos(entry.run_after_ns)}"
    of_step = [] if entry.before_ns is None else [signed(entry.delta_ns)]
    runs = f"{number(entry.before_runs)} to {number(entry.after_runs)}"
    return [shown_name(name, LONGEST_NAME), CHANGES[entry.change], run, *of_step, runs]
