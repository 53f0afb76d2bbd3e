"""For which time one finding can be the reason for another: both were there, on the same nodes.

What holds for long before another thing begins, and goes on as it was when that is over, is not its reason. So of the
time from a cause's start to the end of what it has in common with a symptom, the symptom must fill half at least.
What a cause does after the symptom has ended says nothing: many rules look over windows, and are late to let go.
"""

from collections.abc import Sequence

from trainguard.finding import Episode

SLACK_S = 300.0
"""Rules look over windows: when a condition began and ended is known to within so many seconds."""

SHOWN_SHARE = 0.5

LEFT_SHARE = 0.25
"""An episode of which less is left is explained: rules are late."""

Span = tuple[float, float]


def shared_share(symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float) -> float:
    """Return the share, 0 to 1, of a symptom's loss for which one of ``causes`` can be the reason.

    An episode counts as much as it wasted; as long as it lasted where that is not known of every one.

    Parameters
    ----------
    symptom : sequence of Episode
        At least one.
    causes : sequence of sequence of Episode
        The episodes of each cause.
    until : float
        Where episodes end that go on, epoch seconds.
    """
    weights = _losses(symptom, until)
    shares = [_of_one(each, symptom, causes, until) for each in symptom]
    if not sum(weights):
        # Of what was seen but once, all or nothing is shared.
        return max(shares)
    return min(sum(share * weight for share, weight in zip(shares, weights, strict=True)) / sum(weights), 1.0)


def loss_weights(episodes: Sequence[Episode], until: float) -> list[float]:
    """Return the parts, 0 to 1, that episodes have of what all of them lost; equal ones where nothing is known."""
    losses = _losses(episodes, until)
    total = sum(losses)
    return [each / total for each in losses] if total else [1.0 / len(losses)] * len(losses)


def _losses(episodes: Sequence[Episode], until: float) -> list[float]:
    """Return what each wasted; how long each lasted where that is not known of every one."""
    wasted = [each.wasted_s or 0.0 for each in episodes]
    return wasted if all(wasted) else [_length(_span(each, until)) for each in episodes]


def left_of(
    symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float
) -> tuple[tuple[Episode, float], ...]:
    """Return the episodes of a symptom that no cause explains, each with the share, 0 to 1, that is left of it."""
    shares = [(each, 1.0 - _of_one(each, symptom, causes, until)) for each in symptom]
    return tuple((each, share) for each, share in shares if share > LEFT_SHARE)


def split_parts(symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float) -> list[float]:
    """Return the part, 0 to 1, of a symptom's loss that is each cause's own; together they are what is explained.

    Where several causes were there at once, on one node, the first of ``causes`` takes that time. A node of the symptom
    on which there was none waits for those on the others. Of an episode of which little is left nothing is.
    """
    parts = [0.0] * len(causes)
    for episode, weight in zip(symptom, loss_weights(symptom, until), strict=True):
        shares = [0.0] * len(causes)
        nodes = episode.nodes or (None,)
        for node in nodes:
            for number, gain in enumerate(_gains(episode, node, symptom, causes, until)):
                shares[number] += gain / len(nodes)
        explained = sum(shares)
        whole = explained if explained >= 1.0 - LEFT_SHARE else 1.0
        parts = [part + weight * share / whole for part, share in zip(parts, shares, strict=True)]
    return parts


def _gains(
    episode: Episode, node: str | None, symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float
) -> list[float]:
    """Return which share, 0 to 1, of an episode's time on a node each cause adds to those before it."""
    span = _span(episode, until)
    of_node = [[each for each in cause if node is None or not each.nodes or node in each.nodes] for cause in causes]
    spans = [_shared(episode, each, symptom, until) for each in of_node]
    if not any(spans):
        spans = [_shared(episode, each, symptom, until) for each in causes]
    gains, taken, reached = [], list[Span](), 0.0
    for each in spans:
        taken += each
        share = covered_s(span, taken) / _length(span) if _length(span) else float(bool(taken))
        gains.append(share - reached)
        reached = share
    return gains


def _of_one(episode: Episode, symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float) -> float:
    span = _span(episode, until)
    spans = [each for of in causes for each in _shared(episode, of, symptom, until)]
    return covered_s(span, spans) / _length(span) if _length(span) else float(bool(spans))


def covered_s(span: Span, by: Sequence[Span]) -> float:
    """Return how many seconds of a span lie in at least one of others."""
    total, reached = 0.0, span[0]
    for start, end in sorted(by):
        begin, finish = max(start, reached), min(end, span[1])
        if finish > begin:
            total += finish - begin
            reached = finish
    return total


def on_same_nodes(one: Episode, other: Episode) -> bool:
    """Whether two episodes have a node in common; one of the job as a whole has all."""
    return not one.nodes or not other.nodes or not set(one.nodes).isdisjoint(other.nodes)


def _shared(episode: Episode, cause: Sequence[Episode], symptom: Sequence[Episode], until: float) -> list[Span]:
    """Return the spans of a symptom's episode for which a cause can be the reason."""
    start, end = _span(episode, until)
    spans = []
    for each in cause:
        begin, finish = _span(each, until)
        common = max(start, begin - SLACK_S), min(end, finish + SLACK_S)
        if not on_same_nodes(episode, each) or common[1] < common[0]:
            continue
        held = min(begin, common[0]), common[1]
        shown = [(one - SLACK_S, other + SLACK_S) for one, other in (_span(part, until) for part in symptom)]
        if covered_s(held, shown) >= SHOWN_SHARE * _length(held):
            spans.append(common)
    return spans


def _span(episode: Episode, until: float) -> Span:
    return episode.start, max(until if episode.end is None else episode.end, episode.start)


def _length(span: Span) -> float:
    return span[1] - span[0]
