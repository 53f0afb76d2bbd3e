"""Which rules could judge a job, and whether that is enough to call it healthy.

A rule that could not judge matters where it could have found something. What looks for lost GPU time has nothing to
find where the ledger has lost none, and what needs a longer job than this one does not veto.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.engine.diagnosis.case import Case
from trainguard.engine.streams.gaps import Gap
from trainguard.engine.verdicts.verdict import shown_status
from trainguard.ledger.bucket import Bucket
from trainguard.records import FIRST_FAMILY, Status
from trainguard.rules.registry import spec_of
from trainguard.rules.symptoms import LOW_GPUS

SIZEABLE_SHARE = 0.15
"""From this share of the paid time on, lost time is worth a reason."""

UNREAD_OBJECTS, UNREAD_PARTS = "bad_objects", "unread_parts"
"""Counters of what could not be read. A lost object of samples is known by their times, and is a gap."""

LEARNING = "training/NotLearning"
"""The rule that has to judge the losses of a job without a profile before the job is called healthy."""

_PENDING = frozenset({Status.WARMING_UP, Status.WAITING_FOR_DATA})


@dataclass(frozen=True, slots=True)
class Judged:
    """The rules of a job that can fire, by what became of them.

    Attributes
    ----------
    judged, failed, pending, disabled, not_applicable : tuple of str
    partly : tuple of str
        Those that have judged some nodes and not all.
    vetoes : tuple of str
        Those of ``pending``, ``disabled`` and ``partly`` that could have found something.
    gaps : tuple of Gap
    unread : int
        Objects that could not be read.
    profiled : bool
        Whether the use of the GPUs was judged.
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
    """Sort the rules of a job by whether they could judge it; one that only informs says nothing about its health."""
    by_status: dict[Status, list[str]] = {status: [] for status in Status}
    for verdict in case.verdicts:
        if not spec_of(verdict.rule).informs_only or verdict.result.status is Status.ERROR:
            by_status[shown_status(verdict)].append(verdict.rule)
    told = [*by_status[Status.FIRED], *by_status[Status.OK]]
    pending = [rule for status in Status if status in _PENDING for rule in by_status[status]]
    partly = [verdict.rule for verdict in case.verdicts if verdict.rule in told and verdict.waiting_nodes]
    silent = [*pending, *by_status[Status.DISABLED], *partly]
    return Judged(
        judged=tuple(told),
        failed=tuple(by_status[Status.ERROR]),
        pending=tuple(pending),
        disabled=tuple(by_status[Status.DISABLED]),
        not_applicable=tuple(by_status[Status.NOT_APPLICABLE]),
        partly=tuple(partly),
        vetoes=tuple(rule for rule in silent if _could_find(rule, case)),
        gaps=tuple(gap for family in case.streams.families.values() for gap in family.gaps(case.job)),
        unread=_unread(case),
        profiled=_profiled(case, told),
    )


def _profiled(case: Case, told: Sequence[str]) -> bool:
    """Whether the use of GPUs is known: they were sampled, or a rule has judged instances of partitioned ones."""
    if any(node.gpu_lost_s for node in case.ledger.nodes):
        return True
    return bool(case.ledger.left_out) and any(spec_of(rule).symptom == LOW_GPUS for rule in told)


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
