"""A job that stands still, on the terminal."""

from collections.abc import Iterator

from trainguard.cli.output.rendering import Block, Column, Facts, Heading, Line, table
from trainguard.cli.output.result import CommandResult
from trainguard.hangs.text import said_ranks
from trainguard.hangs.verdict import Culprit, HangVerdict

_MOST_SHOWN = 16


def hang_result(place: str, verdict: HangVerdict) -> CommandResult:
    notes = [f"{name} was not read: {reason}" for name, reason in verdict.unread.items()]
    return CommandResult(
        document=verdict,
        blocks=list(_blocks(place, verdict)),
        notes=notes,
        fired=bool(verdict.culprits),
        evaluated=bool(verdict.culprits),
    )


def _blocks(place: str, verdict: HangVerdict) -> Iterator[Block]:
    yield Heading(place)
    yield Line(verdict.reason, style="bold red" if verdict.culprits else "bold")
    if verdict.advice:
        yield Line(verdict.advice)
    facts = [
        ("waiting", f"{len(verdict.victims):,} of {verdict.ranks:,} ranks" if verdict.victims else ""),
        ("in", f"{verdict.operation} {verdict.sequence} of group {verdict.group}" if verdict.operation else ""),
        ("at", verdict.waiting_line),
        ("without a dump", said_ranks(verdict.without_dump) if verdict.without_dump else ""),
    ]
    yield Facts([(label, text) for label, text in facts if text])
    columns = {
        Column("rank", right=True): lambda each: str(each.rank),
        Column("is"): lambda each: each.kind.replace("_", " "),
        Column("in", folds=True): _own,
        Column("line", folds=True): lambda each: each.line,
        Column("ranks that wait", right=True, drops=1): lambda each: f"{each.waiting:,}",
    }
    if verdict.details:
        yield table(verdict.details[:_MOST_SHOWN], columns)


def _own(culprit: Culprit) -> str:
    return f"{culprit.operation} {culprit.sequence} of {culprit.group}" if culprit.operation else ""
