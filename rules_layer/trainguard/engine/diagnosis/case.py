"""Judges a whole job, without any store: its verdicts, its diagnosis, and what is due of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from trainguard.core.finding import Severity
from trainguard.core.job_policy import LAST_EPISODE
from trainguard.core.records import FIRST_FAMILY, JobRecord, OutboxEntry, Status
from trainguard.engine.outbox import due_notifications, notified_cleared
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobMoment, JobState, JobStreams, UnitVerdicts
from trainguard.engine.streams.rule_runner import gone_rules, is_near_threshold
from trainguard.engine.streams.session import Gap
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.findings import RankedFinding, severity_of
from trainguard.engine.verdicts.ranking import rank_findings
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome, ends_episode, final, shown_status
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.document import LedgerEntry
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.spec import LOW_GPUS


def unit_verdicts(streams: JobStreams) -> UnitVerdicts:
    return {rule: of_rule for family in streams.families.values() for rule, of_rule in family.unit_verdicts().items()}


def job_verdicts(
    job: JobRecord, plan: RulePlan, streams: JobStreams, *, moment: JobMoment
) -> tuple[list[RuleOutcome], list[Fire]]:
    """Return the job's verdict of every rule, and the job-wide fires; moves the episodes in ``streams.state``."""
    verdicts: list[RuleOutcome] = []
    fires: list[Fire] = []
    for family in streams.families.values():
        of_family, begun = family.judge(job, plan, streams.state, moment)
        verdicts.extend(of_family)
        fires.extend(begun)
    if job.closing and streams.closed:
        verdicts = [final(verdict, streams.watermark_s) for verdict in verdicts]
    known = {verdict.rule for verdict in verdicts} | {PROFILER_REPORT}
    verdicts.extend(
        RuleOutcome(name, RuleResult(Status.ERROR, str(fault)), FiringHistory())
        for name, fault in plan.faults.items()
        if name not in known
    )
    invoked = ", ".join(rule.name for rule in plan.rules_of(FIRST_FAMILY))
    verdicts.extend(
        RuleOutcome(name, RuleResult(Status.DISABLED, f"rule_to_invoke is {invoked}."), FiringHistory())
        for name in plan.disabled
        if name not in plan.faults
    )
    of_streams = [stored_rules for family in streams.families.values() for stored_rules in family.stored_rules]
    verdicts.extend(gone_rules([streams.state.stored_rules, *of_streams], plan))
    return verdicts, fires


def paid_time_of(job: JobRecord, plan: RulePlan, streams: JobStreams) -> PaidTime:
    """Return what the job has to pay for, up to the newest sample, once it is closed up to its end."""
    sampled = [family.watermark_s for family in streams.families.values() if family.first_at is not None]
    if streams.closed:
        sampled.append(job.ended_at)
    starts = (job.started_at, *(family.first_at for family in streams.families.values()))
    return PaidTime(
        instance_type=job.instance_type,
        started_at=min((at for at in starts if at is not None), default=None),
        watermark_s=max((at for at in sampled if at is not None), default=streams.watermark_s),
        nodes=max(len(streams.nodes), job.instance_count or 0),
        prices=plan.prices,
        unpaid_s=max((family.unpaid_s for family in streams.families.values()), default=0.0),
    )


def ledger_of(job: JobRecord, plan: RulePlan, streams: JobStreams) -> Ledger:
    """Return the ledger of a job from its streams' states; empty where nothing is known of GPUs."""
    paid_time, families = paid_time_of(job, plan, streams), streams.families.values()
    shares = next((each for family in families if (each := family.step_shares) is not None), None)
    ledgers = (family.ledger(paid_time, ended=streams.closed, shares=shares) for family in families)
    return next((ledger for ledger in ledgers if ledger is not None), Ledger([]))


@dataclass(frozen=True)
class DiagnosedJob:
    """A job, its streams, its rules' outcomes, and the paid time; ``ledger_once`` makes the ledger when first asked."""

    job: JobRecord
    plan: RulePlan
    streams: JobStreams
    verdicts: Sequence[RuleOutcome]
    paid_time: PaidTime
    ledger_once: Callable[[], Ledger]

    @property
    def ledger(self) -> Ledger:
        return self.ledger_once()

    @cached_property
    def findings(self) -> Sequence[RankedFinding]:
        """The findings, the most severe first; marks in the ledger the time in which the job hung or was broken."""
        if not any(verdict.history.times_fired for verdict in self.verdicts):
            return ()
        return tuple(rank_findings(self.verdicts, self.paid_time, self.ledger))

    @property
    def final(self) -> bool:
        return self.job.closing and self.streams.closed

    @property
    def ended(self) -> bool:
        return self.final or self.job.status.is_final

    def verdict_of(self, rule: str) -> RuleOutcome | None:
        return next((verdict for verdict in self.verdicts if verdict.rule == rule), None)


def case_of(
    job: JobRecord, plan: RulePlan, streams: JobStreams, *, now: float | None = None
) -> tuple[DiagnosedJob, list[Fire]]:
    """Judge a job at ``now``, epoch seconds or None; return its case and fires. Moves episodes in ``streams``."""
    ledger = cache(lambda: ledger_of(job, plan, streams))
    verdicts, fires = job_verdicts(job, plan, streams, moment=JobMoment(streams.closed, now, ledger))
    return DiagnosedJob(job, plan, streams, tuple(verdicts), paid_time_of(job, plan, streams), ledger), fires


# From this share of the paid time on, lost time is worth a reason.
SIZEABLE_SHARE = 0.15

UNREAD_OBJECTS = "bad_objects"
# Counters of what could not be read. A lost object of samples is known by their times, and is a gap.
UNREAD_PART_COUNTERS = ("unread_parts", "bad_rows", "bad_cells")

# The counter of accelerators whose metrics are recorded and not read.
NOT_JUDGED_DEVICES = "devices_not_judged"

# The counter of losses and scores whose curve may mix several writers, or lacks much.
UNCERTAIN_SERIES = "uncertain_series"

# The counter of runs that a job writes beside the one that is judged.
RUNS_NOT_JUDGED = "runs_not_judged"

# Must judge the losses of a job without a profile before the job is called healthy.
LEARNING = "training/NotLearning"

_PENDING = frozenset({Status.WARMING_UP, Status.WAITING_FOR_DATA})


@dataclass(frozen=True, slots=True)
class JudgedRules:
    """Rules by whether they judged; ``devices`` are accelerators of which no metric is read.

    ``uncertain`` counts losses and scores whose curve may mix several writers, ``runs`` those beside the one judged.
    """

    judged: tuple[str, ...]
    failed: tuple[str, ...]
    pending: tuple[str, ...]
    disabled: tuple[str, ...]
    not_applicable: tuple[str, ...]
    partly: tuple[str, ...]
    vetoes: tuple[str, ...]
    gaps: tuple[Gap, ...]
    unread: int
    unread_parts: int
    profiled: bool
    devices: int = 0
    uncertain: int = 0
    runs: int = 0

    @property
    def complete(self) -> bool:
        unread = self.unread or self.unread_parts or self.devices or self.uncertain or self.runs
        if self.failed or self.vetoes or self.gaps or unread or not self.judged:
            return False
        return self.profiled or LEARNING in self.judged


def judged_of(case: DiagnosedJob) -> JudgedRules:
    """Sort the rules of a job by whether they could judge it; without those that only inform."""
    by_status: dict[Status, list[str]] = {status: [] for status in Status}
    for verdict in case.verdicts:
        if not spec_of(verdict.rule).informs_only or verdict.result.status is Status.ERROR:
            by_status[shown_status(verdict)].append(verdict.rule)
    decided = [*by_status[Status.FIRED], *by_status[Status.OK]]
    pending = [rule for status in Status if status in _PENDING for rule in by_status[status]]
    partly = [verdict.rule for verdict in case.verdicts if verdict.rule in decided and verdict.waiting_nodes]
    silent = [*pending, *by_status[Status.DISABLED], *partly]
    return JudgedRules(
        judged=tuple(decided),
        failed=tuple(by_status[Status.ERROR]),
        pending=tuple(pending),
        disabled=tuple(by_status[Status.DISABLED]),
        not_applicable=tuple(by_status[Status.NOT_APPLICABLE]),
        partly=tuple(partly),
        vetoes=tuple(rule for rule in silent if not decided or _could_find(rule, case)),
        gaps=tuple(gap for family in case.streams.families.values() for gap in family.gaps(case.job)),
        unread=_counted(case, UNREAD_OBJECTS),
        unread_parts=sum(_counted(case, name) for name in UNREAD_PART_COUNTERS),
        profiled=_profiled(case, decided),
        devices=_counted(case, NOT_JUDGED_DEVICES),
        uncertain=_counted(case, UNCERTAIN_SERIES),
        runs=_counted(case, RUNS_NOT_JUDGED),
    )


def _profiled(case: DiagnosedJob, decided: Sequence[str]) -> bool:
    if any(node.gpu_lost_s for node in case.ledger.nodes):
        return True
    return bool(case.ledger.left_out) and any(spec_of(rule).symptom == LOW_GPUS for rule in decided)


def _counted(case: DiagnosedJob, name: str) -> int:
    records = case.streams.records.items()
    of_times = "system" if name == UNREAD_OBJECTS else None
    return sum(record.counters.get(name, 0) for key, record in records if key.stream != of_times)


def _could_find(rule: str, case: DiagnosedJob) -> bool:
    """Whether a rule that has not judged could have found something on this job."""
    verdict = case.verdict_of(rule)
    if verdict is not None and case.ended and verdict.result.needs_longer:
        return False
    spec = spec_of(rule)
    buckets = {bucket for of_kind in spec.claims.values() for bucket in of_kind} - {Bucket.BROKEN, Bucket.HANG}
    if spec.family != FIRST_FAMILY or not buckets or not case.ledger.nodes:
        return True
    return case.ledger.low_share() >= SIZEABLE_SHARE


Level = Literal["healthy", "attention", "unhealthy", "unknown"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a job; shares are 0 to 1 of the paid time, None where no GPU was sampled.

    ``level`` is ``healthy`` only where enough was judged, nothing was found and no sizeable time is lost without a
    reason, ``attention`` for what is small, over or a risk, ``unknown`` where too little was judged. ``causes`` are
    unexplained findings in the order of cost, ``root`` the first; ``unexplained_share`` is lost at low use and claimed
    by none.
    """

    level: Level
    root: RankedFinding | None
    causes: tuple[RankedFinding, ...]
    judged: JudgedRules
    ledger: tuple[LedgerEntry, ...]
    busy_share: float | None
    lost_share: float | None
    claimed_share: float
    unexplained_share: float

    @property
    def lacks_reason(self) -> bool:
        """Whether so much time is lost without a reason that somebody has to look."""
        return self.unexplained_share >= SIZEABLE_SHARE

    def share_of(self, bucket: Bucket) -> float:
        return next((entry.share for entry in self.ledger if entry.bucket is bucket), 0.0)


def diagnose(case: DiagnosedJob) -> Diagnosis:
    findings = case.findings
    root = findings[0] if findings else None
    by_rule: dict[str | None, RankedFinding] = {each.rule: each for each in findings}
    while root is not None and root.explained_by in by_rule:
        root = by_rule[root.explained_by]
    others = [each for each in findings if each.explained_by is None and each is not root]
    causes = () if root is None else (root, *others)
    judged = judged_of(case)
    entries = tuple(case.ledger.entries()) if case.ledger.nodes else ()
    busy = case.ledger.goodput
    claimed = min(sum(each.loss.share for each in findings if each.loss is not None), 1.0)
    unexplained = max(case.ledger.low_share() - claimed, 0.0)
    return Diagnosis(
        level=_level(case, judged, causes, unexplained),
        root=root,
        causes=causes,
        judged=judged,
        ledger=entries,
        busy_share=busy,
        lost_share=None if busy is None else max(1.0 - busy, 0.0),
        claimed_share=claimed,
        unexplained_share=unexplained,
    )


def _level(case: DiagnosedJob, judged: JudgedRules, causes: tuple[RankedFinding, ...], unexplained: float) -> Level:
    if not causes:
        if not judged.judged or not judged.complete:
            return "unknown"
        return "attention" if unexplained >= SIZEABLE_SHARE else "healthy"
    root = causes[0]
    if not (root.ongoing or case.ended):
        return "attention"
    if root.finding.severity is Severity.CRITICAL:
        return "unhealthy"
    # A risk has lost nothing.
    together = severity_of(sum(each.score for each in causes if each.loss is not None))
    return "attention" if together is Severity.LOW else "unhealthy"


@dataclass(frozen=True, slots=True)
class Assessment:
    """Job-wide ``fires``, ``follow_ups``, and the numbers of the episodes that ``ended``, by rule."""

    case: DiagnosedJob
    fires: tuple[Fire, ...]
    follow_ups: tuple[OutboxEntry, ...]
    ended: Mapping[str, int]
    near_threshold: bool


def assess(job: JobRecord, plan: RulePlan, streams: JobStreams, *, now: float | None = None) -> Assessment:
    """Judge the job at ``now``, epoch seconds; moves episodes and records notifications in ``streams.state``."""
    case, fires = case_of(job, plan, streams, now=now)
    verdicts = case.verdicts
    near_threshold = any(family.near_threshold for family in streams.families.values())
    follow_ups = due_notifications(job, plan, verdicts, case.paid_time, streams.state, case.ledger_once, now=now)
    return Assessment(
        case=case,
        fires=tuple(fires),
        follow_ups=tuple(follow_ups),
        ended=ended_episodes(verdicts, streams.state, job.episodes),
        near_threshold=near_threshold
        or any(is_near_threshold(verdict.result, verdict.history) for verdict in verdicts),
    )


def ended_episodes(verdicts: Sequence[RuleOutcome], state: JobState, episodes: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of the job's current episodes that have ended, by rule.

    An alerted episode also ends when a notification said that it is over and its condition is back: then a scheduler
    run died before it had raised the number. The last episode that may fire never ends. A rule missing in ``episodes``
    is in its episode 0.
    """
    ended = {}
    for verdict in verdicts:
        current = episodes.get(verdict.rule, 0)
        is_over = ends_episode(verdict) or notified_cleared(state, verdict.rule, current)
        if verdict.history.alerted == current and is_over and current < LAST_EPISODE:
            ended[verdict.rule] = current
    return ended
