"""A terminal's page that is redrawn until a person interrupts it."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from rich.console import Console
from rich.live import Live

from trainguard.cli.output.blocks import Block, Line
from trainguard.cli.output.rendering import rendered
from trainguard.cli.output.result import FIRED, RAN, REFUSED, CommandResult, advised_fault, print_fault
from trainguard.core.errors import RequestError, TrainGuardError

_CLOCK = "%Y-%m-%d %H:%M:%SZ"


def watch(
    read: Callable[[], CommandResult],
    *,
    console: Console,
    every_s: float,
    fail_on_fire: bool,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Redraw a result until it is final or interrupted; return the exit code. The first result must succeed."""
    try:
        if not console.is_terminal:
            raise RequestError("--watch needs a terminal", "Leave it out, and call the command again instead.")
        result, fault = read(), ""
    except TrainGuardError as refused:
        print_fault(refused)
        return REFUSED
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while not result.final:
            live.update(rendered(_page(result, fault, every_s)), refresh=True)
            pause(every_s)
            try:
                result, fault = read(), ""
            except TrainGuardError as failed:
                fault = str(advised_fault(failed))
    console.print(rendered(result.blocks))
    return FIRED if fail_on_fire and result.fired else RAN


def _page(result: CommandResult, fault: str, every_s: float) -> Sequence[Block]:
    head = f"{time.strftime(_CLOCK, time.gmtime())}, every {every_s:g} s; Ctrl-C ends"
    stale = [Line(f"Not brought up to date: {fault}", style="bold magenta")] if fault else []
    return [Line(head, style="dim"), *stale, *result.blocks, *(Line(note) for note in result.notes)]
