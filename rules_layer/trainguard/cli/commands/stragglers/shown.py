"""What stragglers cost, on the terminal."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from trainguard.cli.output.rendering import Block, Line, TerminalColumn, TerminalFacts, heading, table
from trainguard.cli.output.result import CommandResult
from trainguard.core.units import counted, listed, show_share, show_step
from trainguard.stragglers.text import said_cause
from trainguard.stragglers.verdict import StragglerShare, StragglerVerdict

_MOST_SHOWN = 8

T = TypeVar("T", bound=StragglerShare)


def straggler_result(place: str, verdict: StragglerVerdict, instance_type: str | None) -> CommandResult:
    return CommandResult(
        document=verdict,
        blocks=list(_blocks(place, verdict)),
        notes=list(_notes(verdict, instance_type)),
        fired=bool(verdict.causes),
        evaluated=True,
    )


def _notes(verdict: StragglerVerdict, instance_type: str | None) -> Iterator[str]:
    for name, reason in verdict.unread.items():
        yield f"{name} was not read: {reason}"
    for fault, count in verdict.faults.items():
        yield f"The table has {fault} ({count:,}); their steps are left out."
    if verdict.unknown_kinds:
        yield f"{listed(verdict.unknown_kinds)}: replayed as work of the rank alone, as no kind of this name is known."
    if instance_type is not None and verdict.price is None:
        yield f"No price of {instance_type} is known."


def _blocks(place: str, verdict: StragglerVerdict) -> Iterator[Block]:
    yield heading(place)
    yield Line(verdict.reason, style="bold red" if verdict.causes else "bold")
    if verdict.advice:
        yield Line(verdict.advice)
    for cause in verdict.causes[1:]:
        yield Line(f"Also: {said_cause(cause, verdict.price)}")
    steps = counted(verdict.steps, "step")
    yield TerminalFacts(
        [
            ("slowdown", f"{verdict.slowdown:.3f} times an even job, {steps} of {counted(verdict.rank_count, 'rank')}"),
            ("step", f"{_seconds(verdict.recorded_s)} recorded, {_seconds(verdict.even_s)} even"),
            ("not explained", f"{show_share(max(verdict.left_out, 0.0))} of a step, as time between operations"),
        ]
    )
    yield from _table("rank", verdict.ranks, lambda each: str(each.rank))
    yield from _table("stage", verdict.stages, lambda each: str(each.stage))
    yield from _table("operation", verdict.operations, lambda each: each.operation)


def _table(name: str, shares: Sequence[T], named: Callable[[T], str]) -> Iterator[Block]:
    if len(shares) > 1:
        columns: dict[TerminalColumn, Callable[[T], str]] = {
            TerminalColumn(name, right=name != "operation"): named,
            TerminalColumn("slowdown alone", right=True): lambda share: f"{share.slowdown:.3f}",
            TerminalColumn("saved at peers' pace", right=True): lambda share: (
                "" if share.saves is None else show_share(max(share.saves, 0.0))
            ),
        }
        yield table(shares[:_MOST_SHOWN], columns)


def _seconds(seconds: float) -> str:
    return show_step(seconds * 1e6)
