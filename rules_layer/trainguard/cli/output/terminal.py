"""The rules' verdicts for a person: a table on a terminal, a line each elsewhere."""

import os
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from trainguard.cli.commands.analyze.outcome import Outcome, RuleLine
from trainguard.plain_text import one_line
from trainguard.records import Status

_STYLES = {
    Status.FIRED: "bold red",
    Status.ERROR: "bold magenta",
    Status.OK: "green",
    Status.WARMING_UP: "yellow",
    Status.WAITING_FOR_DATA: "yellow",
}

_NARROW = 72
"""On fewer columns the reasons would be cut to nothing."""


class _Piped(Console):
    """A console whose reader may go away: what is left to say is then not said."""

    def on_broken_pipe(self) -> None:
        """Go on without output."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


def stdout_console() -> Console:
    """Return the console of the results; colours obey NO_COLOR and are for terminals only."""
    return _Piped(highlight=False)


def print_tabbed(console: Console, columns: Sequence[str]) -> None:
    """Print one line with tabs between its columns; `Console.print` and `Console.out` would make spaces of them."""
    console.print(Segments([Segment("\t".join(columns) + "\n")]), end="", soft_wrap=True)


def show(console: Console, outcome: Outcome) -> None:
    """Print the verdicts, what was not read, and what the job has cost."""
    if console.is_terminal and console.width < _NARROW:
        for line in outcome.rules:
            console.print(*_below_each_other(line))
    elif console.is_terminal:
        console.print(_table(outcome.rules))
    else:
        for line in outcome.rules:
            print_tabbed(console, (line.status, line.rule, line.severity or "-", sentences(line)))
    verdict = outcome.verdict
    whole = [] if verdict is None else [verdict.health, verdict.change, verdict.cost]
    for text in (*whole, *([] if outcome.cost is None else [outcome.cost])):
        console.print(one_line(text), markup=False, soft_wrap=True)
    if outcome.unread:
        counted = ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in outcome.unread.items())
        console.print(f"Not used: {counted}.", markup=False, soft_wrap=True)


def sentences(line: RuleLine) -> str:
    """Return the reason, the advice and the cost of one rule's verdict, on one line."""
    cost = None if line.cost is None else f"It has cost {line.cost}."
    return one_line(" ".join(part for part in (line.reason, line.advice, cost) if part))


def _below_each_other(line: RuleLine) -> tuple[Text, Padding]:
    """Return a rule's verdict where there is no room for columns: what it is, and the reason below it."""
    style = _STYLES.get(Status(line.status), "dim")
    heading = Text.assemble((line.status, style), f" {line.rule} {line.severity or ''}".rstrip())
    return heading, Padding(Text(sentences(line)), (0, 0, 0, 2))


def _table(lines: Sequence[RuleLine]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("status", no_wrap=True)
    table.add_column("rule", no_wrap=True)
    table.add_column("severity", no_wrap=True)
    table.add_column("reason and advice", overflow="fold")
    for line in lines:
        style = _STYLES.get(Status(line.status), "dim")
        status = f"[{style}]{line.status}[/]"
        table.add_row(status, line.rule, line.severity or "", escape(sentences(line)))
    return table
