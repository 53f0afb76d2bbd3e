"""What the terminal shows of several ranks, and of two profiles."""

from collections.abc import Iterator

from trainguard.cli.output.blocks import Block, Column, Facts, Grid, Heading, Item, Line, severity_cell
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.inputs import short_shapes
from trainguard.kernels.ranks.entries import AcrossRanks, ChangedEntry, RankComparison

_SHOWN = 15
_LONGEST_NAME = 100
_LABEL_WIDTH = 8


def rank_blocks(document: KernelProfiles) -> list[Block]:
    """Return the blocks of what is beyond single ranks; none of one trace that is compared with nothing."""
    blocks: list[Block] = []
    if document.across is not None:
        blocks += _across(document.across)
    if document.comparison is not None:
        blocks += [Line(note) for note in document.comparison.notes]
        for rank in document.comparison.ranks:
            blocks += _compared(rank)
    return blocks


def _across(across: AcrossRanks) -> Iterator[Block]:
    yield Heading(f"{len(across.lines)} traces beside each other")
    for finding in across.findings:
        labels = [(severity_cell(finding.severity), _LABEL_WIDTH)]
        yield Item(labels=labels, text=f"{finding.id}: {finding.summary}", advice=finding.recommendation)
    columns = (
        Column("rank"),
        Column("step", right=True),
        Column("computes", right=True),
        Column("communicates", right=True),
        Column("waits", right=True),
        Column("last in", right=True, drops=1),
    )
    rows = [
        (
            line.trace if line.rank is None else str(line.rank),
            _ms(line.step_ns),
            _ms(line.compute_ns),
            _ms(line.communication_ns),
            "-" if line.wait_ns is None else _ms(line.wait_ns),
            f"{line.last_steps} of {across.compared_steps}",
        )
        for line in sorted(across.lines, key=lambda line: (-line.last_steps, line.rank or 0))[:_SHOWN]
    ]
    yield Grid(columns, rows)
    yield from (Line(note) for note in across.notes)


def _compared(rank: RankComparison) -> Iterator[Block]:
    yield Heading(f"{rank.after_trace} beside {rank.before_trace}")
    if rank.step is not None:
        parts = sorted(rank.step.parts.items(), key=lambda part: -abs(part[1]))
        yield Facts(
            [
                ("step", f"{_ms(rank.step.before_ns)} before, {_ms(rank.step.after_ns)} now"),
                *((name.replace("_", " "), _signed(part)) for name, part in parts if part),
            ]
        )
    for title, entries in (("kernel", rank.kernels), ("operator", rank.operators)):
        changed = [each for each in entries if each.change != "same"][:_SHOWN]
        if changed:
            columns = (
                Column(title, folds=True),
                Column("change"),
                Column(f"of a {rank.per}", right=True),
                Column("runs"),
            )
            yield Grid(columns, [_row(each) for each in changed])


def _row(entry: ChangedEntry) -> tuple[str, str, str, str]:
    name = f"{entry.name} {short_shapes(entry.shapes)}" if entry.shapes else entry.name
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return name, entry.change, _signed(entry.delta_ns), f"{entry.before_runs:g} to {entry.after_runs:g}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f} ms"


def _signed(ns: int) -> str:
    return f"{ns / 1e6:+,.3f} ms"
