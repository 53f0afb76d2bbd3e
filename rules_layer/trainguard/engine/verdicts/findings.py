"""What a rule that has fired found: what it claims of the ledger, what that cost, and how severe it is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainguard.core.finding import Episode, Finding, Severity
from trainguard.core.records import FIRST_FAMILY, Status
from trainguard.engine.verdicts.verdict import RuleOutcome, shown_status
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.job import Claim, Claimed, Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.rules.registry import spec_of
from trainguard.rules.spec import Symptom

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


def claimed_buckets(verdict: RuleOutcome) -> tuple[Bucket, ...]:
    """Return the buckets from which a finding takes; none of a risk."""
    claims = spec_of(verdict.rule).claims
    return claims.get(verdict.result.kind, claims.get("", ()))


def claims_of(verdict: RuleOutcome, ledger: Ledger, more: Sequence[Episode] = ()) -> list[Claim]:
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


def _lasting(verdict: RuleOutcome, buckets: tuple[Bucket, ...]) -> tuple[Episode, ...]:
    """Return the episodes; what ruins a job goes on to its end where it held when the rule judged last."""
    episodes = verdict.episodes
    ruins = not set(_RUINS).isdisjoint(buckets) and verdict.result.status is Status.FIRED
    return (*episodes[:-1], replace(episodes[-1], end=None)) if ruins and episodes else episodes


def span_of(episode: Episode, until: float) -> tuple[float, float]:
    """Return when an episode lasted, epoch seconds; an open one lasts to ``until``."""
    return episode.start, max(until if episode.end is None else episode.end, episode.start)


def ledger_end(ledger: Ledger) -> float | None:
    return max((float(node.edges[-1]) for node in ledger.nodes if node.edges.size), default=None)


def mark_ruined(ledger: Ledger, verdicts: Iterable[RuleOutcome]) -> None:
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


def score_of_verdict(verdict: RuleOutcome, at: float | None, loss: Loss | None) -> float:
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


# A rule that says how sure it is explains a symptom only from here on.
SURE_FROM = 1.0 / 3.0


@dataclass(frozen=True, slots=True)
class RankedFinding:
    """A rule that has fired, with its place among the others; ``score`` is 0 to 100.

    ``alone`` and ``loss`` are its claims alone and beside the others; None of a risk. ``explained_by`` is the rule that
    names the reason for ``explained_share`` of its time, ``reasons`` each rule's own part of that.
    """

    finding: Finding
    verdict: RuleOutcome
    score: float
    alone: Loss | None = None
    loss: Loss | None = None
    idle_node: str | None = None
    explained_by: str | None = None
    explained_share: float = 0.0
    unexplained: tuple[Episode, ...] = ()
    reasons: Mapping[str, float] = field(default_factory=dict)
    clause: str = ""

    @property
    def rule(self) -> str:
        return self.finding.rule

    @property
    def ongoing(self) -> bool:
        return shown_status(self.verdict) is Status.FIRED

    @property
    def episodes(self) -> tuple[Episode, ...]:
        return self.finding.episodes

    @property
    def symptom(self) -> Symptom | None:
        """The finding's look: its rule's, but for a node that does nothing at all."""
        spec = spec_of(self.rule)
        if self.idle_node is not None:
            return Symptom(self.idle_node)
        return spec.looks.get(self.finding.finding_kind, spec.symptom)

    @property
    def explains(self) -> tuple[Symptom, ...]:
        spec = spec_of(self.rule)
        return (*spec.explains, *spec.explains_as.get(self.finding.finding_kind, ()))

    @property
    def is_sure(self) -> bool:
        confidence = self.verdict.result.confidence
        return confidence is None or confidence >= SURE_FROM

    @property
    def affected_percent(self) -> float | None:
        """Share of the judged time, or of the evaluations, in which it was seen, in percent to one decimal."""
        share = self.verdict.affected_share
        return None if share is None else round(100.0 * share, 1)

    @property
    def wasted_share(self) -> float | None:
        """Share, 0 to 1, of the paid time that it claims beside the others."""
        return None if self.loss is None else self.loss.share

    @property
    def wasted_percent(self) -> float | None:
        return None if self.loss is None else round(100.0 * self.loss.share, 1)


LEAST_MONEY = 0.005


def finding_of(
    verdict: RuleOutcome, paid_time: PaidTime, node: str | None = None, *, ledger: Ledger | None = None
) -> RankedFinding:
    """Return a fired verdict's finding for ``node``; ``ledger`` is None where nothing is known of the GPUs."""
    result, words = verdict.result, verdict.result.found_words
    claimed = [] if ledger is None else ledger.claim(claims_of(verdict, ledger))
    alone = None if ledger is None else loss_from(claimed, ledger)
    score = score_of_verdict(verdict, paid_time.watermark_s, alone)
    finding = replace(
        verdict.finding_on(node, words.reason),
        severity=severity_of(score),
        advice=words.advice,
        cost=None if ledger is None else cost_of(alone, ledger, paid_time),
        episodes=_priced(verdict.episodes, claimed, ledger, paid_time),
    )
    return RankedFinding(
        finding=finding,
        verdict=verdict,
        score=score,
        alone=alone,
        loss=alone,
        idle_node=result.idle_node,
        clause=words.clause,
    )


def cost_of(loss: Loss | None, ledger: Ledger, paid_time: PaidTime) -> str | None:
    """Say what a finding cost in money; None where no price is known, and where it claims less than a cent."""
    if loss is None or loss.usd is None or loss.usd < LEAST_MONEY:
        return None
    spent, currency = ledger.spent or 0.0, paid_time.table.currency
    return f"about {currency} {min(loss.usd, spent):,.2f} of the {currency} {spent:,.2f} spent"


def _priced(
    episodes: Sequence[Episode], claimed: Sequence[Claimed], ledger: Ledger | None, paid_time: PaidTime
) -> tuple[Episode, ...]:
    """Return episodes with what each claims of the ledger, where each has a claim of its own."""
    if ledger is None or len(claimed) != len(episodes):
        return tuple(episodes)
    gpus = max((node.gpus for node in ledger.nodes), default=1)
    currency = paid_time.table.currency
    return tuple(
        replace(episode, wasted_s=each.total / gpus, cost=each.usd, currency=None if each.usd is None else currency)
        for episode, each in zip(episodes, claimed, strict=True)
    )
