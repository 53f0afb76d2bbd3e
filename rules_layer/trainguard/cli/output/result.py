"""The result of a command, printed as blocks or JSON, or redrawn until a person interrupts it."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from trainguard.cli.output.rendering import Block, Line, print_json, print_note, rendered, show, stdout_console
from trainguard.core.errors import PortUnavailableError, RequestError, TrainGuardError

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION = "1"
RAN, FIRED, REFUSED, NO_VERDICT = 0, 1, 2, 3
_CLOCK = "%Y-%m-%d %H:%M:%SZ"


def print_fault(fault: TrainGuardError) -> None:
    """Print a fault to stderr, with advice where AWS's answer has caused it."""
    print_note(f"trainguard: {advised_fault(fault)}")


def advised_fault(fault: TrainGuardError) -> TrainGuardError:
    """Return the fault, or one with advice where AWS's answer has caused it."""
    behind: BaseException | None = fault
    while behind is not None and not isinstance(behind, PortUnavailableError):
        behind = behind.__cause__
    if behind is None:
        return fault
    # The AWS client library is slow to import, and imported already where such a fault comes from.
    from trainguard.cli.output.aws_advice import advised

    with_advice = advised(behind)
    return fault if with_advice is behind else with_advice


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a command; ``document`` is for `--json`, ``notes`` go to stderr.

    ``fired`` is for `--fail-on-fire`; ``final``: later results will be the same; without ``evaluated`` the exit code
    is NO_VERDICT, with ``failed`` it is 1.
    """

    document: msgspec.Struct | Mapping[str, Any]
    blocks: Sequence[Block]
    notes: Sequence[str] = field(default=())
    fired: bool = False
    final: bool = False
    evaluated: bool = True
    failed: bool = False


def print_result(make: Callable[[], CommandResult | int], *, as_json: bool, fail_on_fire: bool = False) -> int:
    """Make a result and print it; return the exit code, which ``make`` may return itself."""
    try:
        result = make()
    except TrainGuardError as fault:
        print_fault(fault)
        return REFUSED
    if isinstance(result, int):
        return result
    if as_json:
        document = result.document
        print_json({"schema_version": SCHEMA_VERSION, **document} if isinstance(document, Mapping) else document)
    else:
        show(stdout_console(), result.blocks)
    for note in result.notes:
        print_note(note)
    if result.failed or (fail_on_fire and result.fired):
        return FIRED
    return RAN if result.evaluated else NO_VERDICT


def watch(
    read: Callable[[], CommandResult],
    *,
    console: "Console",
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
    from rich.live import Live

    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while not result.final:
            head = f"{time.strftime(_CLOCK, time.gmtime())}, every {every_s:g} s; Ctrl-C ends"
            stale = [Line(f"Not brought up to date: {fault}", style="bold magenta")] if fault else []
            page = [Line(head, style="dim"), *stale, *result.blocks, *(Line(note) for note in result.notes)]
            live.update(rendered(page), refresh=True)
            pause(every_s)
            try:
                result, fault = read(), ""
            except TrainGuardError as failed:
                fault = str(advised_fault(failed))
    console.print(rendered(result.blocks))
    return FIRED if fail_on_fire and result.fired else RAN
