"""What a person sees in each run: written down from plots of all columns and losses, before any rule had judged."""

import re
from functools import cache
from typing import Literal

import msgspec

from tests.verdicts.real_runs.recording import FOLDER

Outcome = Literal["wasted", "healthy", "too_short", "unclear"]

# A wasted run of 25 minutes or more is to be named.
LONG_S = 1_500.0


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stretch of wasted time, in seconds since the run's start, and the GPUs that it is of."""

    start_s: float
    end_s: float
    gpus: tuple[int, ...]
    what: str


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What can be false of a run, and how it is recognised.

    It was made when one of ``rules`` has fired, when ``pattern`` (any case) is found in what a finding or the verdict
    says, or, with ``healthy``, when the verdict is that the job is healthy.
    """

    name: str
    text: str
    rules: tuple[str, ...] = ()
    pattern: str | None = None
    healthy: bool = False


class Label(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A person's verdict on a run.

    Attributes
    ----------
    fire : {"yes", "no", "information"}
        Whether an engineer would want an alert; ``information`` where one does no harm.
    first : tuple of str
        The rules that may stand first in what the product says.
    unused_percent : float
        100 less the mean utilization of all GPUs over all samples: the share of the paid GPU time in which no kernel
        ran.
    waiting_percent : float
        Share of the samples of GPUs at 90 % or more in which memory is active for less than 2 % of the time: busy
        by name, as a process is that waits for another.
    wasted : tuple of Span
    sees, cause, unknown, says_first : str
        What happened when; the likely cause; what the data do not say; what an alert should say first.
    must_not : tuple of str
        Names of the statements that would be false.
    """

    run: str
    outcome: Outcome
    fire: Literal["yes", "no", "information"]
    first: tuple[str, ...]
    unused_percent: float
    waiting_percent: float
    wasted: tuple[Span, ...]
    sees: str
    cause: str
    unknown: str
    says_first: str
    must_not: tuple[str, ...]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    statements: tuple[Statement, ...]
    labels: tuple[Label, ...]


@cache
def _file() -> _File:
    return msgspec.json.decode((FOLDER / "labels.json").read_bytes(), type=_File)


def labels() -> dict[str, Label]:
    """Return the labels by run, in order."""
    return {label.run: label for label in _file().labels}


def statements() -> dict[str, Statement]:
    """Return what can be said falsely, by name."""
    return {statement.name: statement for statement in _file().statements}


def is_made(statement: Statement, *, fired: tuple[str, ...], texts: tuple[str, ...], healthy: bool) -> bool:
    """Whether the product has made a statement, by the rules that have fired and the texts that it has written."""
    if healthy and statement.healthy:
        return True
    pattern = statement.pattern
    return not set(fired).isdisjoint(statement.rules) or (
        pattern is not None and any(re.search(pattern, text, re.IGNORECASE) for text in texts)
    )
