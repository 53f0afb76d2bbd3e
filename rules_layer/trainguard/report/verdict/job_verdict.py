"""The verdict on a job from its item and its rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.core.stores import Jobs, RuleStates
from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted, listed
from trainguard.pricing.table import PriceTable, packaged_prices
from trainguard.report.fleet.facts import JobFacts
from trainguard.report.verdict.job_verdict_document import Certainty, JobVerdict, Verdict, WouldDo
from trainguard.rules.low_gpu_utilization.node import HELD_TIME, IDLE_TIME, QUIET_MEAN
from trainguard.rules.low_gpu_utilization.rule import LOW_GPU
from trainguard.rules.registry import spec_of

STALE_S = 900.0
"""An active job of which nothing newer was judged may have changed since."""

SURE_AFTER_S = 1_800.0
MINUTES_AN_HOUR = 60.0
_IDLE = frozenset({IDLE_TIME.what, QUIET_MEAN.what, HELD_TIME.what})
UNKNOWN, ATTENTION = "unknown", "attention"

_PENDING = frozenset({Status.WARMING_UP, Status.WAITING_FOR_DATA})
_BLIND = _PENDING | {Status.DISABLED}
LACKING_SHARE = 0.05
"""A fault could hide in so much of the nodes' time without an object."""

_LOST_OBJECTS = ("bad_objects", "empty_objects", "gaps")
_LOST_LINES = ("bad_lines", "truncated_objects")


def job_verdict(jobs: Jobs, rows: RuleStates, job: str, *, now: float, prices: PriceTable | None = None) -> JobVerdict:
    """Return the verdict on a job; ``unknown`` of an unknown one. ``now`` is in epoch seconds.

    Rows of nodes are read only where GPUs are low: they say on which nodes none works. Raises PortUnavailableError or
    StateCodecError.
    """
    record = jobs.load(job)
    if record is None:
        return _unknown(job, now, f"TrainGuard does not know the job {job}.")
    known = rows.of_whole_job(job)
    if any(each.rule == LOW_GPU.name and each.status is Status.FIRED for each in known):
        known = rows.of_job(job)
    return verdict_of(record, known, now=now, prices=prices)


def verdict_of(
    record: JobRecord, rows: Sequence[RuleRow], *, now: float, prices: PriceTable | None = None
) -> JobVerdict:
    """Return the verdict from a job's item and its rows, with those of its nodes as far as they matter."""
    found = _Findings(record, rows, prices)
    doubt = found.why_unknown(now)
    if doubt is not None:
        return _unknown(record.job, now, doubt, record, found.facts.watermark_s)
    verdict, open_rows = found.verdict, found.open
    certainty = found.certainty(now)
    would_do, why_so = found.would_do(verdict)
    facts, first = found.facts, open_rows[0] if open_rows else None
    since = found.since
    return JobVerdict(
        generated_at=iso_time(now),
        job=record.job,
        verdict=verdict,
        why=first.finding.reason if first is not None else found.why_healthy,
        since=None if since is None else iso_time(since),
        certainty=certainty[0],
        certainty_why=certainty[1],
        status=record.status.value,
        active=record.active,
        evaluated_through=None if facts.watermark_s is None else iso_time(facts.watermark_s),
        rules=[row.rule for row in open_rows],
        wasted_share=facts.wasted_share,
        lost=_cents(facts.lost),
        spent=_cents(facts.spent),
        currency=None if facts.spent is None else (prices or packaged_prices()).currency,
        advice=None if first is None else first.finding.advice,
        would_do=would_do,
        would_do_why=why_so,
        idle_nodes=found.idle_nodes,
        memory_held_on=found.memory_held_on,
    )


@dataclass(frozen=True)
class _Findings:
    record: JobRecord
    rows: Sequence[RuleRow]
    prices: PriceTable | None

    @property
    def facts(self) -> JobFacts:
        return JobFacts.of(self.record, self.rows, self.prices)

    @property
    def open(self) -> list[RuleRow]:
        """Return the rules whose condition holds now; of a job that has ended, all that have fired."""
        return [row for row in self.facts.fired if row.status is Status.FIRED or not self.record.active]

    def why_unknown(self, now: float) -> str | None:
        facts = self.facts
        if not self.record.policy.evaluated:
            return f"TrainGuard does not evaluate the job: {self.record.policy.why}."
        if not facts.judged:
            return facts.report.finding.reason if facts.report is not None else "No rule has judged the job yet."
        through = facts.watermark_s
        if self.record.active and (through is None or abs(now - through) > STALE_S):
            newest = "has no time" if through is None else f"is of {iso_time(through)}"
            return f"The newest data of the job {newest}, and it is {iso_time(now)}: what it does now is not known."
        if not self.open and self._lacks_much:
            text = counted(self._lost_objects, "object")
            return f"{text} of the profile could not be read, or never came, and the others show nothing wrong."
        if self.open or self.level != UNKNOWN:
            return None if self.open else self._why_blind()
        return None if facts.report is None else facts.report.finding.reason

    @property
    def level(self) -> str:
        return "" if self.facts.report is None else self.facts.report.finding.finding_kind

    def _why_blind(self) -> str | None:
        """Say why it is unknown whether the GPUs work; None where that was judged, or there is nothing to judge."""
        row = self.facts.rules.get(LOW_GPU.name)
        if row is None or row.status not in _BLIND:
            return None
        if row.status is Status.DISABLED:
            return f"Nothing judges whether the GPUs work: {LOW_GPU.name} is disabled."
        return f"Whether the GPUs work is not judged: {row.finding.reason}"

    def _counted(self, names: Sequence[str]) -> int:
        """Return a count of the job, which the report's row has over all its streams."""
        return max((sum(each.counters.get(name, 0) for name in names) for each in self.rows), default=0)

    @property
    def _lost_objects(self) -> int:
        return self._counted(_LOST_OBJECTS)

    @property
    def _lacks_much(self) -> bool:
        """Return whether so many objects are lost that a fault could hide; a node writes one a minute."""
        hours = self.facts.hours
        return hours is not None and self._lost_objects >= LACKING_SHARE * hours * MINUTES_AN_HOUR > 0.0

    @property
    def verdict(self) -> Verdict:
        if not self.open:
            # Of a job with findings that are all over the level is about what was.
            lacks_reason = self.level == ATTENTION and not self.facts.fired
            return Verdict.WASTED if lacks_reason else Verdict.HEALTHY
        if self.record.active and self._all_idle:
            return Verdict.IDLE
        return Verdict.WASTED if any(row.wasted_percent for row in self.open) else Verdict.AT_RISK

    @property
    def _all_idle(self) -> bool:
        """Return whether no GPU of any node works: a job of whose nodes one works is ``wasted`` at most."""
        nodes = [each for each in self.rows if each.rule == LOW_GPU.name and each.node is not None]
        known = len(nodes) >= self.facts.nodes and not self.record.streams_left_out
        return known and bool(nodes) and all(map(_is_idle, nodes))

    @property
    def idle_nodes(self) -> list[str]:
        rows = self.rows if self.record.active else []
        return sorted(row.node for row in rows if row.node is not None and _is_idle(row))

    @property
    def memory_held_on(self) -> list[str]:
        holding = {each.node for each in self.rows if each.quantity == HELD_TIME.what}
        return [node for node in self.idle_nodes if node in holding]

    @property
    def since(self) -> float | None:
        """Return the latest beginning; of an idle job, that of the node which worked last."""
        if not self.open:
            return None
        if self.verdict is Verdict.IDLE:
            rows = [each for each in self.rows if each.rule == LOW_GPU.name and each.node is not None]
            return max((start for row in rows if (start := _began(row)) is not None), default=None)
        return _began(self.open[0])

    def certainty(self, now: float) -> tuple[Certainty, str | None]:
        why = self._why_incomplete() or (None if self.open else self._why_not_sure())
        since = self.since
        if why is None and self.open and self.record.active and (since is None or now - since < SURE_AFTER_S):
            why = "It has lasted for less than half an hour."
        return (Certainty.HIGH, None) if why is None else (Certainty.MEDIUM, why)

    def _why_incomplete(self) -> str | None:
        if self.record.streams_left_out:
            return "Some nodes are not evaluated: objects name more than are taken."
        if self._lost_objects:
            return f"{counted(self._lost_objects, 'object')} of the profile could not be read, or never came."
        if self._counted(_LOST_LINES):
            return "Some objects of the profile are damaged, and were read in part."
        unsure = [rule for rule, row in self.facts.rules.items() if row.status is Status.ERROR]
        return f"{listed(unsure)} could not judge." if unsure else None

    def _why_not_sure(self) -> str | None:
        """Say what no rule has judged; None where each rule that can fire has."""
        rows = {rule: row for rule, row in self.facts.rules.items() if not spec_of(rule).informs_only}
        low = rows.get(LOW_GPU.name)
        if low is None or low.status is Status.NOT_APPLICABLE:
            why = "" if low is None else f": {low.finding.reason}"
            return f"No rule has judged whether GPUs work{why or '.'}"
        if pending := [rule for rule, row in rows.items() if row.status in _PENDING]:
            return f"{listed(pending)} {'has' if len(pending) == 1 else 'have'} too little data for a verdict."
        disabled = [rule for rule, row in rows.items() if row.status is Status.DISABLED]
        return f"{listed(disabled)} {'is' if len(disabled) == 1 else 'are'} disabled." if disabled else None

    def would_do(self, verdict: Verdict) -> tuple[WouldDo, str]:
        policy = self.record.policy
        named = [row.rule for row in self.open]
        staged = all(policy.alerts.is_staged(rule) for rule in named)
        if verdict is Verdict.HEALTHY or not self.record.active or staged:
            why = "Nothing is wrong." if not named else f"{listed(named)} is staged: it is recorded alone."
            return WouldDo.NOTHING, why if self.record.active or not named else "The job has ended."
        stopping = [rule for rule in named if policy.stops.may_stop(rule) and not policy.alerts.is_staged(rule)]
        if not self.record.stop_allowed and not self.record.resources:
            return WouldDo.ALERT, "The job's owner has not allowed stops."
        if not stopping:
            return WouldDo.ALERT, f"The job's owner has not allowed a stop by {listed(named)}."
        if policy.stops.dry_run:
            return WouldDo.ALERT, "Stops of the job are a dry run."
        if not self.record.stop_allowed:
            runs_on = counted(len(self.record.resources), self.record.resources[0].partition("/")[0].replace("-", " "))
            return WouldDo.ALERT, f"A fire decides on a stop by the tags of the {runs_on} that the job runs on."
        return WouldDo.STOP, f"The job's owner has allowed a stop by {listed(stopping)}."

    @property
    def why_healthy(self) -> str:
        report = self.facts.report
        return "Rules have judged the job, and found nothing." if report is None else report.finding.reason


def _is_idle(row: RuleRow) -> bool:
    return row.rule == LOW_GPU.name and row.status is Status.FIRED and row.quantity in _IDLE


def _began(row: RuleRow) -> float | None:
    return row.finding.episodes[-1].start if row.finding.episodes else row.fired_at


def _unknown(
    job: str, now: float, why: str, record: JobRecord | None = None, through: float | None = None
) -> JobVerdict:
    return JobVerdict(
        generated_at=iso_time(now),
        job=job,
        verdict=Verdict.UNKNOWN,
        why=why,
        status=None if record is None else record.status.value,
        active=record is not None and record.active,
        evaluated_through=None if through is None else iso_time(through),
        would_do_why="What is not known is no reason to do anything.",
    )


def _cents(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 2)
