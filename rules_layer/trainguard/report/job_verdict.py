"""The answer to "what of this job?", from its item and its rows."""

from collections.abc import Sequence
from functools import cached_property

from msgspec import structs

from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.core.stores import Jobs, RuleStates
from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted, listed
from trainguard.engine.diagnosis.case import (
    LEARNING,
    NOT_JUDGED_DEVICES,
    RUNS_NOT_JUDGED,
    UNCERTAIN_SERIES,
    UNREAD_PART_COUNTERS,
)
from trainguard.pricing.table import PriceTable, packaged_prices
from trainguard.report.fleet.facts import JobFacts
from trainguard.report.verdict_document import Certainty, JobVerdict, Missing, VerdictWord, WouldDo
from trainguard.rules.low_gpu_utilization.rule import LOW_GPU
from trainguard.rules.low_gpu_utilization.usage import HELD_TIME, IDLE_TIME, QUIET_MEAN
from trainguard.rules.registry import spec_of

# An active job of which nothing newer was judged may have changed since.
STALE_S = 900.0

SURE_AFTER_S = 1_800.0
MINUTES_AN_HOUR = 60.0
_IDLE = frozenset({IDLE_TIME.what, QUIET_MEAN.what, HELD_TIME.what})
UNKNOWN, ATTENTION = "unknown", "attention"

_PENDING = frozenset({Status.WARMING_UP, Status.WAITING_FOR_DATA})
_BLIND = _PENDING | {Status.DISABLED}
# A fault could hide in so much of the nodes' time without an object.
LACKING_SHARE = 0.05

_LOST_OBJECTS = ("bad_objects", "empty_objects", "gaps")
_LOST_LINES = ("bad_lines", "truncated_objects")


def job_verdict(jobs: Jobs, rows: RuleStates, job: str, *, now: float, prices: PriceTable | None = None) -> JobVerdict:
    """Return the verdict on a job; ``unknown`` of an unknown one. ``now`` is in epoch seconds.

    Rows of nodes are read only where GPUs are low: they say on which nodes none works. Raises PortUnavailableError or
    StateCodecError.
    """
    record = jobs.load(job)
    if record is None:
        return _unknown(job, now, f"TrainGuard does not know the job {job}.", missing=[Missing.JOB])
    return verdict_of(record, rows_that_matter(rows, job), now=now, prices=prices)


def rows_that_matter(rows: RuleStates, job: str) -> Sequence[RuleRow]:
    """Return the rows from which a verdict is made."""
    known = rows.of_whole_job(job)
    is_low = any(each.rule == LOW_GPU.name and each.status is Status.FIRED for each in known)
    return rows.of_job(job) if is_low else known


def verdict_of(
    record: JobRecord, rows: Sequence[RuleRow], *, now: float, prices: PriceTable | None = None
) -> JobVerdict:
    """Return the verdict from a job's item and its rows, with those of its nodes as far as they matter."""
    found = _Findings.of(record, rows, prices)
    doubt = found.why_unknown(now)
    first = found.open[0] if found.open else None
    if doubt is not None:
        unknown = _unknown(record.job, now, doubt, record, found.watermark_s, missing=found.missing(now))
        if first is None or not found.is_stale(now):
            return unknown
        rules, share = [row.rule for row in found.open], found.wasted_share
        until = f"{doubt} Until then: {first.finding.reason}"
        return structs.replace(unknown, why=until, rules=rules, wasted_share=share, advice=first.finding.advice)
    certainty, certainty_why = found.certainty(now)
    why = "Rules have judged the job, and found nothing." if found.report is None else found.report.finding.reason
    would_do, would_do_why = found.would_do
    return JobVerdict(
        generated_at=iso_time(now),
        job=record.job,
        verdict=found.verdict,
        why=why if first is None else first.finding.reason,
        since=None if found.since is None else iso_time(found.since),
        certainty=certainty,
        certainty_why=certainty_why,
        status=record.status.value,
        active=record.active,
        evaluated_through=None if found.watermark_s is None else iso_time(found.watermark_s),
        rules=[row.rule for row in found.open],
        wasted_share=found.wasted_share,
        lost=None if found.lost is None else round(found.lost, 2),
        spent=None if found.spent is None else round(found.spent, 2),
        currency=None if found.spent is None else (prices or packaged_prices()).currency,
        advice=None if first is None else first.finding.advice,
        would_do=would_do,
        would_do_why=would_do_why,
        idle_nodes=found.idle_nodes,
        memory_held_on=found.memory_held_on,
    )


class _Findings(JobFacts):
    @cached_property
    def open(self) -> list[RuleRow]:
        """Return the rules whose condition holds now; of a job that has ended, all that have fired."""
        return [row for row in self.fired if row.status is Status.FIRED or not self.job.active]

    def why_unknown(self, now: float) -> str | None:
        if not self.job.policy.evaluated or self.job.braked is not None:
            return self.job.braked or f"TrainGuard does not evaluate the job: {self.job.policy.why}."
        if not self.judged:
            return self.report.finding.reason if self.report is not None else "No rule has judged the job yet."
        through = self.watermark_s
        if self.is_stale(now):
            newest = "has no time" if through is None else f"is of {iso_time(through)}"
            return (
                f"The newest data of the job {newest}, and it is {iso_time(now)}: what the job does now is not known."
            )
        # A node writes one object a minute: where many are lost, a fault could hide.
        if not self.open and self._lost_objects >= LACKING_SHARE * (self.hours or 0.0) * MINUTES_AN_HOUR > 0.0:
            text = counted(self._lost_objects, "object")
            return f"{text} of the profile could not be read, or never came, and the others show nothing wrong."
        if self.open or self.level != UNKNOWN:
            return None if self.open else self._why_blind()
        return None if self.report is None else self.report.finding.reason

    def is_stale(self, now: float) -> bool:
        through = self.watermark_s
        return self.job.active and (through is None or abs(now - through) > STALE_S)

    def missing(self, now: float) -> list[Missing]:
        """Return what is missing to know how the job is: at least one."""
        if not self.job.policy.evaluated or self.job.braked is not None:
            return [Missing.EVALUATION]
        low, statuses = self.rules.get(LOW_GPU.name), {row.status for row in self.rules.values()}
        learning = self.rules.get(LEARNING)
        blind = low is None or low.status in {Status.NOT_APPLICABLE, Status.WAITING_FOR_DATA}
        holds = {
            Missing.NEWER_DATA: self.is_stale(now),
            Missing.GPU_SAMPLES: blind,
            Missing.LOSSES: blind and (learning is None or learning.status not in {Status.OK, Status.FIRED}),
            Missing.MORE_TIME: Status.WARMING_UP in statuses,
            Missing.OBJECTS: self._counted((*_LOST_OBJECTS, *_LOST_LINES, *UNREAD_PART_COUNTERS)) > 0,
            Missing.DEVICES: self._counted((NOT_JUDGED_DEVICES,)) > 0,
            Missing.ONE_WRITER: self._counted((UNCERTAIN_SERIES, RUNS_NOT_JUDGED)) > 0,
            Missing.ENABLED_RULES: Status.DISABLED in statuses,
            Missing.WORKING_RULES: Status.ERROR in statuses,
        }
        return [each for each, lacks in holds.items() if lacks] or [Missing.MORE_TIME]

    @property
    def level(self) -> str:
        return "" if self.report is None else self.report.finding.finding_kind

    def _why_blind(self) -> str | None:
        """Say why it is unknown whether the GPUs work; None where that was judged, or there is nothing to judge."""
        row = self.rules.get(LOW_GPU.name)
        if row is None or row.status not in _BLIND:
            return None
        if row.status is Status.DISABLED:
            return f"Nothing judges whether the GPUs work: {LOW_GPU.name} is disabled."
        return f"Whether the GPUs work is not judged: {row.finding.reason}"

    def _counted(self, names: Sequence[str]) -> int:
        """Return a count of the job, which the report's row has over all its streams."""
        rows = (*self.rows.values(), *self.of_nodes)
        return max((sum(each.counters.get(name, 0) for name in names) for each in rows), default=0)

    @property
    def _lost_objects(self) -> int:
        return self._counted(_LOST_OBJECTS)

    @property
    def verdict(self) -> VerdictWord:
        if not self.open:
            # Of a job with findings that are all over the level is about what was.
            lacks_reason = self.level == ATTENTION and not self.fired
            return VerdictWord.WASTED if lacks_reason else VerdictWord.HEALTHY
        if self.job.active and self._all_idle:
            return VerdictWord.IDLE
        return VerdictWord.WASTED if any(row.wasted_percent for row in self.open) else VerdictWord.AT_RISK

    @property
    def _all_idle(self) -> bool:
        """Return whether no GPU of any node works: a job of whose nodes one works is ``wasted`` at most."""
        nodes = [each for each in self.of_nodes if each.rule == LOW_GPU.name]
        known = len(nodes) >= self.nodes and not self.job.streams_left_out
        return known and bool(nodes) and all(map(_is_idle, nodes))

    @property
    def idle_nodes(self) -> list[str]:
        return sorted(row.node or "" for row in self.of_nodes if self.job.active and _is_idle(row))

    @property
    def memory_held_on(self) -> list[str]:
        holding = {each.node for each in self.of_nodes if each.quantity == HELD_TIME.what}
        return [node for node in self.idle_nodes if node in holding]

    @property
    def since(self) -> float | None:
        """Return the latest beginning; of an idle job, that of the node which worked last."""
        if not self.open:
            return None
        if self.verdict is VerdictWord.IDLE:
            begins = (_began(row) for row in self.of_nodes if row.rule == LOW_GPU.name)
            return max((start for start in begins if start is not None), default=None)
        return _began(self.open[0])

    def certainty(self, now: float) -> tuple[Certainty, str | None]:
        why = self._why_incomplete() or (None if self.open else self._why_not_sure())
        since = self.since
        if why is None and self.open and self.job.active and (since is None or now - since < SURE_AFTER_S):
            why = "It has lasted for less than half an hour."
        return (Certainty.HIGH, None) if why is None else (Certainty.MEDIUM, why)

    def _why_incomplete(self) -> str | None:
        if self.job.streams_left_out:
            return "Some nodes are not evaluated: objects name more than are taken."
        if self._lost_objects:
            return f"{counted(self._lost_objects, 'object')} of the profile could not be read, or never came."
        if self._counted(_LOST_LINES):
            return "Some objects of the profile are damaged, and were read in part."
        unsure = [rule for rule, row in self.rules.items() if row.status is Status.ERROR]
        return f"{listed(unsure)} could not judge." if unsure else None

    def _why_not_sure(self) -> str | None:
        """Say what no rule has judged; None where each rule that can fire has."""
        rows = {rule: row for rule, row in self.rules.items() if not spec_of(rule).informs_only}
        low = rows.get(LOW_GPU.name)
        if low is None or low.status is Status.NOT_APPLICABLE:
            why = "" if low is None else f": {low.finding.reason}"
            return f"No rule has judged whether GPUs work{why or '.'}"
        if pending := [rule for rule, row in rows.items() if row.status in _PENDING]:
            return f"{listed(pending)} {'has' if len(pending) == 1 else 'have'} too little data for a verdict."
        disabled = [rule for rule, row in rows.items() if row.status is Status.DISABLED]
        return f"{listed(disabled)} {'is' if len(disabled) == 1 else 'are'} disabled." if disabled else None

    @property
    def would_do(self) -> tuple[WouldDo, str]:
        policy = self.job.policy
        named = [row.rule for row in self.open]
        staged = all(policy.alerts.is_staged(rule) for rule in named)
        if self.verdict is VerdictWord.HEALTHY or not self.job.active or staged:
            why = "Nothing is wrong." if not named else f"{listed(named)} is staged: it is recorded alone."
            return WouldDo.NOTHING, why if self.job.active or not named else "The job has ended."
        stopping = [rule for rule in named if policy.stops.may_stop(rule) and not policy.alerts.is_staged(rule)]
        if not self.job.stop_allowed and not self.job.resources:
            return WouldDo.ALERT, "The job's owner has not allowed stops."
        if not stopping:
            return WouldDo.ALERT, f"The job's owner has not allowed a stop by {listed(named)}."
        if policy.stops.dry_run:
            return WouldDo.ALERT, "Stops of the job are a dry run."
        if not self.job.stop_allowed:
            runs_on = counted(len(self.job.resources), self.job.resources[0].partition("/")[0].replace("-", " "))
            return WouldDo.ALERT, f"A fire decides on a stop by the tags of the {runs_on} that the job runs on."
        return WouldDo.STOP, f"The job's owner has allowed a stop by {listed(stopping)}."


def _is_idle(row: RuleRow) -> bool:
    return row.rule == LOW_GPU.name and row.status is Status.FIRED and row.quantity in _IDLE


def _began(row: RuleRow) -> float | None:
    return row.finding.episodes[-1].start if row.finding.episodes else row.fired_at


def _unknown(
    job: str,
    now: float,
    why: str,
    record: JobRecord | None = None,
    through: float | None = None,
    *,
    missing: list[Missing],
) -> JobVerdict:
    return JobVerdict(
        generated_at=iso_time(now),
        job=job,
        verdict=VerdictWord.UNKNOWN,
        why=why,
        status=None if record is None else record.status.value,
        active=record is not None and record.active,
        evaluated_through=None if through is None else iso_time(through),
        would_do_why="What is not known is no reason to do anything.",
        missing=missing,
    )
