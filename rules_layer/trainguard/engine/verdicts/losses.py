"""What findings lost: each claims its part of the ledger, and no second is claimed twice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainguard.engine.verdicts.severity import HOUR_S, RUINED, score_of
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.finding import Episode
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.claims import Claim, Claimed
from trainguard.ledger.job import Ledger
from trainguard.records import FIRST_FAMILY, Status
from trainguard.rules.registry import spec_of

_MARKS = (Bucket.HANG, Bucket.BROKEN)
"""Buckets whose time a finding says, in the order of their precedence."""


RUINED_SCORE = 100.0
TRACED = "kernels"
"""The family whose findings are of a few steps, and stand for the steps of the whole job."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a finding claims of the paid time of the job, or of the one node that its ledger is of.

    Attributes
    ----------
    share : float
        Of all GPU-seconds that were paid for, 0 to 1.
    gpu_seconds : float
    usd : float or None
        None where no price is known.
    rate : float
        The share of the newest hour, 0 to 1, that it loses while it goes on; 0 of one that is over.
    buckets : mapping of Bucket to float
        GPU-seconds by bucket.
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
    """Return what a finding claims, one claim an episode; ``more`` are episodes of what it explains.

    A kernel trace speaks of the steps of the whole job. A finding of training is of all nodes.
    """
    buckets, until, spec = claimed_buckets(verdict), ledger_end(ledger), spec_of(verdict.rule)
    if not buckets or until is None:
        return []
    family, wasted = spec.family, verdict.result.wasted_share
    if family == TRACED:
        return [Claim(verdict.rule, buckets, ((_begin(ledger), until),))]
    named = {node.node for node in ledger.nodes} if family == FIRST_FAMILY else set()
    claims = [_claim(verdict.rule, buckets, each, named, until) for each in (*_lasting(verdict, buckets), *more)]
    if not spec.measures_loss or wasted is None:
        return claims
    return [replace(claim, at_most=wasted * ledger.paid_gpu_seconds) for claim in claims]


def _claim(rule: str, buckets: tuple[Bucket, ...], episode: Episode, named: set[str], until: float) -> Claim:
    nodes = tuple(node for node in episode.nodes if node in named)
    # What ruins a job loses all of its GPUs' time, busy or not.
    alone = (nodes or len(named) == 1) and set(_MARKS).isdisjoint(buckets)
    gpus = episode.gpus if alone else ()
    return Claim(rule, buckets, (span_of(episode, until),), nodes, gpus)


def _lasting(verdict: Verdict, buckets: tuple[Bucket, ...]) -> tuple[Episode, ...]:
    """Return the episodes; what ruins a job goes on to its end where it held when the rule judged last."""
    episodes = verdict.episodes
    ruins = not set(_MARKS).isdisjoint(buckets) and verdict.result.status is Status.FIRED
    return (*episodes[:-1], replace(episodes[-1], end=None)) if ruins and episodes else episodes


def span_of(episode: Episode, until: float) -> tuple[float, float]:
    """Return from when to when an episode lasted, epoch seconds; one that goes on lasts to ``until``."""
    return episode.start, max(until if episode.end is None else episode.end, episode.start)


def ledger_end(ledger: Ledger) -> float | None:
    """Return where the paid time ends, epoch seconds; None where nothing was paid."""
    return max((float(node.edges[-1]) for node in ledger.nodes if node.edges.size), default=None)


def _begin(ledger: Ledger) -> float:
    return min(float(node.edges[0]) for node in ledger.nodes if node.edges.size)


def mark_ruined(ledger: Ledger, verdicts: Iterable[Verdict]) -> None:
    """Give the time in which a job hung or computed garbage to those buckets; doing so again changes nothing."""
    claims = [claim for verdict in verdicts if verdict.history.times_fired for claim in claims_of(verdict, ledger)]
    for bucket in _MARKS:
        for claim in claims:
            if bucket in claim.buckets:
                ledger.mark(bucket, claim.spans, claim.nodes)


def losses_of(ledger: Ledger, claims: Sequence[tuple[str, Sequence[Claim]]]) -> dict[str, Loss]:
    """Return by rule what its claims get, in the order given: the first takes first."""
    claimed = ledger.claim([claim for _, of_rule in claims for claim in of_rule])
    until, losses, place = ledger_end(ledger), {}, 0
    for rule, of_rule in claims:
        parts = claimed[place : place + len(of_rule)]
        place += len(of_rule)
        if parts:
            losses[rule] = _loss(parts, ledger, until)
    return losses


def _loss(parts: Sequence[Claimed], ledger: Ledger, until: float | None) -> Loss:
    buckets: dict[Bucket, float] = {}
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


def loss_of(verdict: Verdict, ledger: Ledger | None) -> Loss | None:
    """Return what a finding claims by itself; None of a risk, and where nothing is known of the GPUs."""
    return None if ledger is None else loss_from(ledger.claim(claims_of(verdict, ledger)), ledger)


def loss_from(parts: Sequence[Claimed], ledger: Ledger) -> Loss | None:
    """Return what a finding loses by what its claims got; None of one without claims."""
    return _loss(parts, ledger, ledger_end(ledger)) if parts else None


def score_of_verdict(verdict: Verdict, at: float | None, loss: Loss | None) -> float:
    """Return the score, 0 to 100, of a verdict that has fired, at event time ``at``, epoch seconds.

    What a rule says itself counts where the ledger has nothing of the finding. What ruins a job is critical.
    """
    result = verdict.result
    buckets = claimed_buckets(verdict)
    if buckets and buckets[0] in RUINED and (result.status is Status.FIRED or verdict.ended):
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
