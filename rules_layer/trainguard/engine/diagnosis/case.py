"""A job as it was judged: all that its diagnosis is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from trainguard.core.records import FIRST_FAMILY, JobRecord, Status
from trainguard.engine.jobs.job_verdicts import account_of, job_verdicts, ledger_of
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobStreams, Look
from trainguard.engine.streams.session import Gap
from trainguard.engine.verdicts.findings import RankedFinding, rank_findings
from trainguard.engine.verdicts.verdict import Fire, Verdict, shown_status
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import Account
from trainguard.rules.registry import spec_of
from trainguard.rules.spec import LOW_GPUS


@dataclass(frozen=True)
class Case:
    """A job, its streams, its verdicts, and the paid time; ``ledger_once`` makes the ledger when first asked."""

    job: JobRecord
    plan: RulePlan
    streams: JobStreams
    verdicts: Sequence[Verdict]
    account: Account
    ledger_once: Callable[[], Ledger]

    @property
    def ledger(self) -> Ledger:
        """Where the paid time went."""
        return self.ledger_once()

    @cached_property
    def findings(self) -> Sequence[RankedFinding]:
        """The findings, the most severe first; marks in the ledger the time in which the job hung or was broken."""
        if not any(verdict.history.times_fired for verdict in self.verdicts):
            return ()
        return tuple(rank_findings(self.verdicts, self.account, self.ledger))

    @property
    def final(self) -> bool:
        """Whether the job has ended and all of it was judged."""
        return self.job.closing and self.streams.closed

    @property
    def ended(self) -> bool:
        """Whether the job runs no more."""
        return self.final or self.job.status.is_final

    def verdict_of(self, rule: str) -> Verdict | None:
        """Return the job's verdict of a rule."""
        return next((verdict for verdict in self.verdicts if verdict.rule == rule), None)


def case_of(
    job: JobRecord, plan: RulePlan, streams: JobStreams, *, now: float | None = None
) -> tuple[Case, list[Fire]]:
    """Judge a job at ``now``, epoch seconds or None; return its case and fires. Moves episodes in ``streams``."""
    ledger = cache(lambda: ledger_of(job, plan, streams))
    verdicts, fires = job_verdicts(job, plan, streams, look=Look(streams.closed, now, ledger))
    return Case(job, plan, streams, tuple(verdicts), account_of(job, plan, streams), ledger), fires


SIZEABLE_SHARE = 0.15
"""From this share of the paid time on, lost time is worth a reason."""

UNREAD_OBJECTS, UNREAD_PARTS = "bad_objects", "unread_parts"
"""Counters of what could not be read. A lost object of samples is known by their times, and is a gap."""

LEARNING = "training/NotLearning"
"""Must judge the losses of a job without a profile before the job is called healthy."""

_PENDING = frozenset({Status.WARMING_UP, Status.WAITING_FOR_DATA})


@dataclass(frozen=True, slots=True)
class Judged:
    """The rules of a job that can fire, by result; ``partly`` have judged some nodes.

    ``vetoes`` are those of ``pending``, ``disabled`` and ``partly`` that could have found something; all where none has
    judged. ``profiled`` says whether the use of the GPUs was judged.
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
    profiled: bool

    @property
    def complete(self) -> bool:
        """Whether enough was judged to call a job healthy on which nothing was found."""
        if self.failed or self.vetoes or self.gaps or self.unread or not self.judged:
            return False
        return self.profiled or LEARNING in self.judged


def judged_of(case: Case) -> Judged:
    """Sort the rules of a job by whether they could judge it; without those that only inform."""
    by_status: dict[Status, list[str]] = {status: [] for status in Status}
    for verdict in case.verdicts:
        if not spec_of(verdict.rule).informs_only or verdict.result.status is Status.ERROR:
            by_status[shown_status(verdict)].append(verdict.rule)
    decided = [*by_status[Status.FIRED], *by_status[Status.OK]]
    pending = [rule for status in Status if status in _PENDING for rule in by_status[status]]
    partly = [verdict.rule for verdict in case.verdicts if verdict.rule in decided and verdict.waiting_nodes]
    silent = [*pending, *by_status[Status.DISABLED], *partly]
    return Judged(
        judged=tuple(decided),
        failed=tuple(by_status[Status.ERROR]),
        pending=tuple(pending),
        disabled=tuple(by_status[Status.DISABLED]),
        not_applicable=tuple(by_status[Status.NOT_APPLICABLE]),
        partly=tuple(partly),
        vetoes=tuple(rule for rule in silent if not decided or _could_find(rule, case)),
        gaps=tuple(gap for family in case.streams.families.values() for gap in family.gaps(case.job)),
        unread=_unread(case),
        profiled=_profiled(case, decided),
    )


def _profiled(case: Case, decided: Sequence[str]) -> bool:
    if any(node.gpu_lost_s for node in case.ledger.nodes):
        return True
    return bool(case.ledger.left_out) and any(spec_of(rule).symptom == LOW_GPUS for rule in decided)


def _unread(case: Case) -> int:
    records = case.streams.records.items()
    parts = sum(record.counters.get(UNREAD_PARTS, 0) for _, record in records)
    return parts + sum(rec.counters.get(UNREAD_OBJECTS, 0) for key, rec in records if key.stream != "system")


def _could_find(rule: str, case: Case) -> bool:
    """Whether a rule that has not judged could have found something on this job."""
    verdict = case.verdict_of(rule)
    if verdict is not None and case.ended and verdict.result.needs_longer:
        return False
    spec = spec_of(rule)
    buckets = {bucket for of_kind in spec.claims.values() for bucket in of_kind} - {Bucket.BROKEN, Bucket.HANG}
    if spec.family != FIRST_FAMILY or not buckets or not case.ledger.nodes:
        return True
    return case.ledger.low_share() >= SIZEABLE_SHARE
