"""A job that stands still, on the terminal."""

from collections.abc import Iterator

from trainguard.cli.output.rendering import Block, Line, TerminalColumn, TerminalFacts, heading, table
from trainguard.cli.output.result import CommandResult
from trainguard.hangs.text import said_ranks
from trainguard.hangs.verdict import HangVerdict

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
    yield heading(place)
    yield Line(verdict.reason, style="bold red" if verdict.culprits else "bold")
    if verdict.advice:
        yield Line(verdict.advice)
    facts = [
        ("waiting", f"{len(verdict.victims):,} of {verdict.ranks:,} ranks" if verdict.victims else ""),
        ("in", f"{verdict.operation} {verdict.sequence} of group {verdict.group}" if verdict.operation else ""),
        ("at", verdict.waiting_line),
        ("without a dump", said_ranks(verdict.without_dump) if verdict.without_dump else ""),
    ]
    yield TerminalFacts([(label, text) for label, text in facts if text])
    columns = {
        TerminalColumn("rank", right=True): lambda each: str(each.rank),
        TerminalColumn("is"): lambda each: each.kind.replace("_", " "),
        TerminalColumn("in", folds=True): lambda each: (
            f"{each.operation} {each.sequence} of {each.group}" if each.operation else ""
        ),
        TerminalColumn("line", folds=True): lambda each: each.line,
        TerminalColumn("ranks that wait", right=True, drops=1): lambda each: f"{each.waiting:,}",
    }
    if verdict.details:
        yield table(verdict.details[:_MOST_SHOWN], columns)
