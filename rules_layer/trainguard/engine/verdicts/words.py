"""The words of a finding that was stored: made anew of its facts."""

from trainguard.finding import Fact
from trainguard.records import Status
from trainguard.rules.registry import spec_of
from trainguard.rules.words import FactSheet, Words


def past_words(rule: str, kind: str, facts: tuple[Fact, ...], *, reason: str, advice: str | None) -> Words:
    """Return what to say of a finding once its condition holds no more.

    ``reason`` and ``advice`` are of a custom rule, which has written them itself.
    """
    text = spec_of(rule).text
    if text is None or not kind:
        return Words(reason, advice)
    return text(FactSheet(Status.FIRED, kind, facts, past=True))


def kept_words(rule: str, kind: str, reason: str, advice: str | None, *, longest: int) -> tuple[str, str | None]:
    """Return what of a finding's words is stored beside its facts: nothing, where these make them anew."""
    if kind and spec_of(rule).text is not None:
        return "", None
    return reason[:longest], None if advice is None else advice[:longest]
