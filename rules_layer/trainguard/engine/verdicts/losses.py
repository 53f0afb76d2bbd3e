"""What findings lost: each claims its part of the ledger, and no second is claimed twice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainguard.core.finding import Episode, Severity
from trainguard.core.records import FIRST_FAMILY, Status
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.job import Claim, Claimed, Ledger
from trainguard.rules.registry import spec_of

# Just under a quarter: a risk that has cost nothing yet is medium at most, unless it comes true soon.
RISK_WEIGHT = 0.24

ONGOING_WEIGHT = 0.5
HOUR_S = 3_600.0
# From which score on a finding is of a level; below the last it is low.
LEVELS = ((50.0, Severity.CRITICAL), (25.0, Severity.HIGH), (10.0, Severity.MEDIUM))


def score_of(
    *,
    lost_share: float | None,
    affected_share: float | None,
    losing_share: float | None = None,
    lasted_s: float = 0.0,
    time_left_s: float | None = None,
) -> float:
    """Return the score, 0 to 100; shares are 0 to 1, of paid time, of judged time, and of the newest hour.

    A risk comes true in ``time_left_s`` seconds.
    """
    if lost_share is None:
        loss = RISK_WEIGHT * (1.0 if affected_share is None else affected_share)
    else:
        weight = ONGOING_WEIGHT * lasted_s / (lasted_s + HOUR_S)
        loss = lost_share + weight * max((losing_share or 0.0) - lost_share, 0.0)
    score = 100.0 * min(max(loss, 0.0), 1.0)
    return score if time_left_s is None else max(score, 100.0 * HOUR_S / (HOUR_S + max(time_left_s, 0.0)))


def severity_of(score: float) -> Severity:
    return next((level for least, level in LEVELS if score >= least), Severity.LOW)


# A finding that claims one of these first while it goes on is critical, however little was lost until now.
_RUINS = (Bucket.HANG, Bucket.BROKEN)

RUINED_SCORE = 100.0
# The family whose findings are of a few steps, and stand for the steps of the whole job.
TRACED = "kernels"


@dataclass(frozen=True, slots=True)
class Loss:
    """What a finding claims of the paid time of the job, or of the one node of its ledger.

    ``share`` is of all paid GPU-seconds, 0 to 1; ``rate`` of the newest hour, 0 for one that is over. ``usd`` is None
    where no price is known. ``buckets`` are GPU-seconds.
    """

    share: float
    gpu_seconds: float
    usd: float | None = None
    rate: float = 0.0
    buckets: Mapping[Bucket, float] = field(default_factory=dict)


def claimed_buckets(verdict: Verdict) -> tuple[Bucket, ...]:
    """Return the buckets from which a finding takes; none of a risk."""
    claims = spec_of(verdict.rule).claims
    return claims.get(verdict.result.kind, claims.get("", ()))


def claims_of(verdict: Verdict, ledger: Ledger, more: Sequence[Episode] = ()) -> list[Claim]:
    """Return a finding's claims, one an episode; a kernel trace's and a training finding's are of the whole job."""
    buckets, until, spec = claimed_buckets(verdict), ledger_end(ledger), spec_of(verdict.rule)
    if not buckets or until is None:
        return []
    family, wasted = spec.family, verdict.result.wasted_share
    if family == TRACED:
        begin = min(float(node.edges[0]) for node in ledger.nodes if node.edges.size)
        return [Claim(verdict.rule, buckets, ((begin, until),))]
    named = {node.node for node in ledger.nodes} if family == FIRST_FAMILY else set()
    claims = [_claim(verdict.rule, buckets, each, named, until) for each in (*_lasting(verdict, buckets), *more)]
    if not spec.measures_loss or wasted is None:
        return claims
    return [replace(claim, at_most=wasted * ledger.paid_gpu_seconds) for claim in claims]


def _claim(rule: str, buckets: tuple[Bucket, ...], episode: Episode, named: set[str], until: float) -> Claim:
    nodes = tuple(node for node in episode.nodes if node in named)
    # What ruins a job loses all of its GPUs' time, busy or not.
    alone = (nodes or len(named) == 1) and set(_RUINS).isdisjoint(buckets)
    gpus = episode.gpus if alone else ()
    return Claim(rule, buckets, (span_of(episode, until),), nodes, gpus)


def _lasting(verdict: Verdict, buckets: tuple[Bucket, ...]) -> tuple[Episode, ...]:
    """Return the episodes; what ruins a job goes on to its end where it held when the rule judged last."""
    episodes = verdict.episodes
    ruins = not set(_RUINS).isdisjoint(buckets) and verdict.result.status is Status.FIRED
    return (*episodes[:-1], replace(episodes[-1], end=None)) if ruins and episodes else episodes


def span_of(episode: Episode, until: float) -> tuple[float, float]:
    """Return when an episode lasted, epoch seconds; an open one lasts to ``until``."""
    return episode.start, max(until if episode.end is None else episode.end, episode.start)


def ledger_end(ledger: Ledger) -> float | None:
    return max((float(node.edges[-1]) for node in ledger.nodes if node.edges.size), default=None)


def mark_ruined(ledger: Ledger, verdicts: Iterable[Verdict]) -> None:
    """Give the time in which a job hung or computed garbage to those buckets; doing so again changes nothing."""
    claims = [claim for verdict in verdicts if verdict.history.times_fired for claim in claims_of(verdict, ledger)]
    for bucket in _RUINS:
        for claim in claims:
            if bucket in claim.buckets:
                ledger.mark(bucket, claim.spans, claim.nodes)


def losses_of(ledger: Ledger, claims: Sequence[tuple[str, Sequence[Claim]]]) -> dict[str, Loss]:
    """Return by rule what its claims get, in the order given: the first takes first."""
    claimed = ledger.claim([claim for _, of_rule in claims for claim in of_rule])
    losses, place = dict[str, Loss](), 0
    for rule, of_rule in claims:
        parts = claimed[place : place + len(of_rule)]
        place += len(of_rule)
        if (loss := loss_from(parts, ledger)) is not None:
            losses[rule] = loss
    return losses


def loss_from(parts: Sequence[Claimed], ledger: Ledger) -> Loss | None:
    """Return what claims got together; None of none."""
    if not parts:
        return None
    until, buckets = ledger_end(ledger), dict[Bucket, float]()
    for part in parts:
        for bucket, seconds in part.gpu_seconds.items():
            buckets[bucket] = buckets.get(bucket, 0.0) + seconds
    usd = [part.usd for part in parts if part.usd is not None]
    newest = parts[-1].claim
    goes_on = until is not None and newest.spans[-1][1] >= until
    return Loss(
        share=min(sum(part.share for part in parts), 1.0),
        gpu_seconds=sum(part.total for part in parts),
        usd=sum(usd) if usd else None,
        rate=ledger.rate(newest, until - HOUR_S) if goes_on and until is not None else 0.0,
        buckets=buckets,
    )


def score_of_verdict(verdict: Verdict, at: float | None, loss: Loss | None) -> float:
    """Return the score, 0 to 100, of a fired verdict at ``at``, epoch seconds; what ruins a job is critical."""
    result = verdict.result
    buckets = claimed_buckets(verdict)
    if buckets and buckets[0] in _RUINS and (result.status is Status.FIRED or verdict.ended):
        return RUINED_SCORE
    if result.score is not None and (loss is None or not loss.gpu_seconds):
        return min(max(result.score, 0.0), 100.0)
    newest = verdict.episodes[-1] if verdict.episodes else None
    goes_on = newest is not None and newest.end is None and at is not None
    return score_of(
        lost_share=None if loss is None else loss.share,
        affected_share=verdict.affected_share,
        losing_share=None if loss is None or not goes_on else loss.rate,
        lasted_s=max(at - newest.start, 0.0) if goes_on and newest is not None and at is not None else 0.0,
        time_left_s=result.time_left_s if verdict.history.is_open else None,
    )


# Rules look over windows: when a condition began and ended is known to within so many seconds.
SLACK_S = 300.0

SHOWN_SHARE = 0.5

# An episode of which less is left is explained: rules are late.
LEFT_SHARE = 0.25

Span = tuple[float, float]


def shared_share(symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float) -> float:
    """Return the share, 0 to 1, of a symptom's loss for which one of ``causes`` can be the reason.

    An episode counts as much as it wasted; as long as it lasted where that is not known of every one. ``symptom`` is
    not empty; open episodes end at ``until``, epoch seconds.
    """
    weights = _losses(symptom, until)
    shares = [_of_one(each, symptom, causes, until) for each in symptom]
    if not sum(weights):
        return max(shares)  # of episodes of one moment, which have no weights
    return min(sum(share * weight for share, weight in zip(shares, weights, strict=True)) / sum(weights), 1.0)


def loss_weights(episodes: Sequence[Episode], until: float) -> list[float]:
    """Return the parts, 0 to 1, that episodes have of their common loss; equal ones where nothing is known."""
    losses = _losses(episodes, until)
    total = sum(losses)
    return [each / total for each in losses] if total else [1.0 / len(losses)] * len(losses)


def _losses(episodes: Sequence[Episode], until: float) -> list[float]:
    """Return what each wasted; how long each lasted where that is not known of every one."""
    wasted = [each.wasted_s or 0.0 for each in episodes]
    return wasted if all(wasted) else [_length(span_of(each, until)) for each in episodes]


def left_of(
    symptom: Sequence[Episode], causes: Sequence[Sequence[Episode]], until: float
) -> tuple[tuple[Episode, float], ...]:
    """Return the episodes that no cause explains, each with the share, 0 to 1, that is left of it."""
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
    """Return the share, 0 to 1, of an episode's time on a node that each cause adds to those before it."""
    span = span_of(episode, until)
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
    span = span_of(episode, until)
    spans = [each for of in causes for each in _shared(episode, of, symptom, until)]
    return covered_s(span, spans) / _length(span) if _length(span) else float(bool(spans))


def covered_s(span: Span, by: Sequence[Span]) -> float:
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
    start, end = span_of(episode, until)
    spans = []
    for each in cause:
        begin, finish = span_of(each, until)
        common = max(start, begin - SLACK_S), min(end, finish + SLACK_S)
        if not on_same_nodes(episode, each) or common[1] < common[0]:
            continue
        held = min(begin, common[0]), common[1]
        shown = [(one - SLACK_S, other + SLACK_S) for one, other in (span_of(part, until) for part in symptom)]
        if covered_s(held, shown) >= SHOWN_SHARE * _length(held):
            spans.append(common)
    return spans


def _length(span: Span) -> float:
    return span[1] - span[0]
