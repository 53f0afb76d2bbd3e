"""What a command has found out, and the one way in which it is printed: blocks or JSON, notes, an exit code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainguard.cli.output.blocks import Block
from trainguard.cli.output.faults import print_fault
from trainguard.cli.output.rendering import print_json, show
from trainguard.cli.output.terminal import print_note, stdout_console
from trainguard.errors import TrainGuardError

SCHEMA_VERSION = "1"
RAN, FIRED, REFUSED, NO_VERDICT = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command found out.

    Attributes
    ----------
    document : msgspec.Struct or mapping
        For machines; it begins with ``schema_version``.
    blocks : sequence
        For people.
    notes : sequence of str
        What is no part of the result itself; goes to stderr.
    fired : bool
        Whether a rule has fired, for `--fail-on-fire`.
    final : bool
        Whether another look will find the same.
    evaluated : bool
        Whether any rule has judged; a job that no rule has judged exits with NO_VERDICT.
    """

    document: msgspec.Struct | Mapping[str, Any]
    blocks: Sequence[Block]
    notes: Sequence[str] = field(default=())
    fired: bool = False
    final: bool = False
    evaluated: bool = True


def print_result(make: Callable[[], CommandResult], *, as_json: bool, fail_on_fire: bool = False) -> int:
    """Make a result and print it; return the exit code."""
    try:
        result = make()
    except TrainGuardError as fault:
        print_fault(fault)
        return REFUSED
    if as_json:
        print_json(result.document)
    else:
        show(stdout_console(), result.blocks)
    for note in result.notes:
        print_note(note)
    if not result.evaluated:
        return NO_VERDICT
    return FIRED if fail_on_fire and result.fired else RAN
