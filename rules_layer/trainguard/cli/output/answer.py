"""What a command has found out, and the one way in which it is printed: blocks or JSON, notes, an exit code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainguard.cli.output.blocks import Block
from trainguard.cli.output.faults import complain
from trainguard.cli.output.rendering import print_json, show
from trainguard.cli.output.terminal import say, stdout_console
from trainguard.errors import TrainGuardError

SCHEMA_VERSION = "1"
RAN, FIRED, REFUSED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command found out.

    Attributes
    ----------
    document : msgspec.Struct or mapping
        For machines; it begins with ``schema_version``.
    blocks : sequence
        For people.
    notes : sequence of str
        What is no part of the answer itself; goes to stderr.
    fired : bool
        Whether a rule has fired, for `--fail-on-fire`.
    final : bool
        Whether another look will find the same.
    """

    document: msgspec.Struct | Mapping[str, Any]
    blocks: Sequence[Block]
    notes: Sequence[str] = field(default=())
    fired: bool = False
    final: bool = False


def give(make: Callable[[], Answer], *, as_json: bool, fail_on_fire: bool = False) -> int:
    """Make an answer and print it; return the exit code."""
    try:
        answer = make()
    except TrainGuardError as fault:
        complain(fault)
        return REFUSED
    if as_json:
        print_json(answer.document)
    else:
        show(stdout_console(), answer.blocks)
    for note in answer.notes:
        say(note)
    return FIRED if fail_on_fire and answer.fired else RAN
