"""Words that the engine adds to a rule's: of what is over, and of several nodes."""

from collections.abc import Sequence

from trainguard.finding import Fact
from trainguard.records import Status
from trainguard.rules.registry import spec_of
from trainguard.rules.units import show_percent
from trainguard.rules.words import FactSheet, Words

NODES_FIRED, NODES = "nodes_fired", "nodes_judged"
POINTS_SEEN, POINTS_JUDGED = "points_seen_on_nodes", "points_judged_on_nodes"
SHARE_OF_POINTS = "share_of_points_on_nodes"
WAITING, UNJUDGED = "nodes_without_verdict", "unjudged_"
"""How many nodes have no verdict; before the names of the facts that say why the first of them has none."""


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
