"""What the demonstration prints: bars on a terminal, plain lines where it is piped."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from demo.live.expect import Check
from demo.live.feed import JobFeed
from demo.live.feed import Progress as Evaluated
from demo.live.stage import StageError
from emulator.errors import EmulatorError

OUTPUT = Path(__file__).resolve().parents[2] / "demo-output"
PIPED_WIDTH = 240
PLAIN_EVERY_MINUTES = 5

_STYLES = {"FIRED": "bold red", "ERROR": "bold magenta", "OK": "green", "WARMING_UP": "yellow"}
# In the order in which they are shown, and from which width of the terminal on.
_COLUMNS = {
    "RuleTarget": 0,
    "Status": 0,
    "Severity": 110,
    "CostLost": 200,
    "Measured": 110,
    "Threshold": 110,
    "DataPoints": 140,
    "Patience": 140,
    "Worst": 170,
    "EvaluatedThrough": 200,
    "FiredAt": 200,
    "Action": 0,
    "Reason": 0,
}

# The columns that share what width the others leave, and in what proportion.
_SENTENCES = {"Action": 2, "Reason": 3}


class Screen:
    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._began_s = clock()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._plain_minutes = 0
        self._statuses: dict[tuple[str, str], str] = {}

    def say(self, text: str, style: str = "") -> None:
        """Print one line with the time since the beginning."""
        line = Text.assemble((f"{self._clock() - self._began_s:6.1f} s  ", "dim"), (text, style))
        self._console.print(line, soft_wrap=True)

    def phase(self, what: str, took_s: float) -> None:
        self.say(f"{what} ({took_s:.1f} s)")

    @contextmanager
    def bars(self, feeds: Sequence[JobFeed]) -> Iterator[None]:
        """Show a bar a job, on a terminal, for the time of a ``with`` block."""
        if not self._console.is_terminal:
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        with Progress(*columns, console=self._console, transient=True) as self._bars:
            for feed in feeds:
                self._tasks[feed.job] = self._bars.add_task(feed.job, total=feed.minutes, text="")
            yield
        self._bars = None

    def progress(self, feeds: Sequence[JobFeed], evaluated: Mapping[str, Evaluated]) -> None:
        """Show how many objects were uploaded and applied, and of which minute."""
        applied = {feed.job: evaluated.get(feed.job, Evaluated()).applied(feed.uploaded) for feed in feeds}
        if self._bars is not None:
            for feed in feeds:
                text = (
                    f"minute {feed.uploaded_minutes:4.1f}, {applied[feed.job]} of {len(feed.uploaded)} objects applied"
                )
                self._bars.update(self._tasks[feed.job], completed=feed.uploaded_minutes, text=text)
            return
        minute = max(feed.uploaded_minutes for feed in feeds)
        if minute < self._plain_minutes:
            return
        self._plain_minutes = int(minute // PLAIN_EVERY_MINUTES + 1) * PLAIN_EVERY_MINUTES
        uploaded = sum(len(feed.uploaded) for feed in feeds)
        self.say(f"minute {minute:.1f}: {uploaded} objects uploaded, {sum(applied.values())} applied")

    def rows(self, job: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
        for target, row in rows.items():
            before, status = self._statuses.get((job, target)), str(row.get("Status"))
            if "#" in target or before == status:
                continue
            self._statuses[job, target] = status
            came_from = "" if before is None else f"{before} -> "
            reason = f": {row.get('Reason')}" if status in {"FIRED", "ERROR"} else ""
            self.say(f"{job}  {target}  {came_from}{status}{reason}", _STYLES.get(status, ""))

    def alert(self, document: Mapping[str, Any]) -> None:
        self.say("alert received:", "bold red")
        for name, value in document.items():
            self._console.print(Text(f"            {name}: {value}"), soft_wrap=True)

    def table(self, job: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Show a job's rows of RuleState, cut as the console cuts them."""
        table = Table(
            box=SIMPLE_HEAD, expand=True, title=f"RuleState of {job}", title_justify="left", title_style="bold"
        )
        shown = [name for name, least in _COLUMNS.items() if self._console.width >= least]
        for name in shown:
            table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=_SENTENCES.get(name))
        for target in sorted(rows):
            row = {"RuleTarget": target, **rows[target]}
            style = "dim" if "#" in target else _STYLES.get(str(row.get("Status")), "")
            table.add_row(*(cell(row.get(name)) for name in shown), style=style)
        self._console.print(table)

    def checks(self, checks: Sequence[Check]) -> None:
        """Print what was expected: that which was seen first, then that which was not."""
        for check in sorted(checks, key=lambda each: not each.holds):
            mark, style = ("seen  ", "green") if check.holds else ("MISSED", "bold red")
            self._console.print(Text.assemble((mark, style), f"  {check}"), soft_wrap=True)

    def text(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def performed(run: Callable[..., bool]) -> int:
    """Run a demonstration, which gets ``folder`` and ``screen``; return the exit status, 0 when all was seen."""
    screen = Screen(Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH))
    try:
        return 0 if run(folder=OUTPUT, screen=screen) else 1
    except (EmulatorError, StageError) as error:
        screen.say(f"{error}\nLogs: {OUTPUT}", "bold red")
        return 1
    except KeyboardInterrupt:
        screen.say("interrupted")
        return 130


def cell(value: object) -> str:
    """Return a column's value as a person reads it: numbers in four digits, nothing for what is missing."""
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return str(int(value)) if value == value.to_integral_value() else f"{value:.4g}"
    return str(value)
