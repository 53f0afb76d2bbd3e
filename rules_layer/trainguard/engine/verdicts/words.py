"""Words that the engine adds to a rule's: of what is over, of several nodes, of nodes that fell silent or ended."""

from collections.abc import Sequence

from trainguard.finding import Fact, clock_times
from trainguard.records import Status
from trainguard.rules.registry import spec_of
from trainguard.rules.units import show_duration, show_percent
from trainguard.rules.words import FactSheet, Words
from trainguard.timestamps import iso_time

NODES_FIRED, NODES = "nodes_fired", "nodes_judged"
SILENT = "silent"
POINTS_SEEN, POINTS_JUDGED = "points_seen_on_nodes", "points_judged_on_nodes"
SHARE_OF_POINTS = "share_of_points_on_nodes"
WAITING, UNJUDGED, NOW = "nodes_without_verdict", "unjudged_", "now_"
"""How many nodes have no verdict; before the names of the facts that say why the first of them has none, and, where
these are of what was found earlier, after that before the names of those of now."""


def past_words(rule: str, kind: str, facts: tuple[Fact, ...], *, reason: str, advice: str | None) -> Words:
    """Return what to say of a finding once its condition holds no more.

    ``reason`` and ``advice`` are of a custom rule, which has written them itself.
    """
    text = spec_of(rule).text
    if text is None or not kind:
        return Words(reason, advice)
    try:
        return text(FactSheet(Status.FIRED, kind, facts, past=True))
    except (LookupError, TypeError, ValueError):
        # What is stored may be of a version of the rule that gave other facts; the job's other rules go on.
        return Words(f"{rule} found {kind.replace('_', ' ')}, as an earlier version of it says.")


def kept_words(rule: str, kind: str, reason: str, advice: str | None, *, longest: int) -> tuple[str, str | None]:
    """Return what of a finding's words is stored beside its facts: nothing, where these make them anew."""
    if kind and spec_of(rule).text is not None:
        return "", None
    return reason[:longest], None if advice is None else advice[:longest]


def over_nodes(reason: str, facts: Sequence[Fact], worst: str | None, waiting: int, unjudged: str | None) -> str:
    """Return what is said of several nodes, of which the worst speaks.

    Parameters
    ----------
    reason : str
        The worst node's.
    facts : sequence of Fact
        Those over all nodes.
    worst : str or None
        Its name; None where the job as a whole speaks.
    waiting : int
        How many nodes have no verdict.
    unjudged : str or None
        Why the first of them has none, where that is to be said.
    """
    numbers = {fact.name: float(fact.value) for fact in facts}
    nodes, fired = numbers.get(NODES, 1.0), numbers.get(NODES_FIRED, 0.0)
    if fired and worst is not None:
        reason = f"{fired:.0f} of {nodes:.0f} nodes fire; worst {worst}: {reason}"
    judged = numbers.get(POINTS_JUDGED)
    if judged:
        seen = numbers[POINTS_SEEN]
        share = show_percent(100.0 * numbers[SHARE_OF_POINTS])
        reason += f" Over {nodes:.0f} nodes: {seen:,.0f} of {judged:,.0f} points ({share})."
    if unjudged is not None:
        reason += f" {waiting} of {max(nodes, waiting):.0f} nodes without a verdict: {unjudged}"
    return reason


def since_silent(reason: str, silent: Fact) -> str:
    """Return what was found on a node that has fallen silent, and for how long it has been."""
    return f"{reason} The node has written nothing for the last {show_duration(float(silent.value))}."


def never_judged(reason: str, *, read: bool) -> str:
    """Return why a rule that waited until the end does not apply; ``read`` says whether any object could be read."""
    if not read:
        return "Ended without a profile: no object of it could be read."
    first, second = reason[:1], reason[1:2]
    # A name such as GPU keeps its capitals.
    begin = first.lower() if second.islower() else first
    return f"Ended without what the rule needs: {begin}{reason[1:]}"


def once_found(found: str, now: str, *, held: tuple[float, float], at: float | None) -> str:
    """Return what was found in ``held`` and what is said of now, ``at``, epoch seconds; None where the stream ended.

    Clock times stay true however late they are read.
    """
    since, until = held
    then = "At the end" if at is None else f"By {clock_times(iso_time(at), iso_time(at))}"
    return f"{clock_times(iso_time(since), iso_time(until))}: {found} {then}: {now}"
