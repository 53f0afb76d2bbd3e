"""What one job's item and rows say for the fleet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from trainguard.core.finding import Severity, severity_rank
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.ledger.document import lost_share_of
from trainguard.pricing.cost import HOUR_S, Account, Bill
from trainguard.pricing.table import PriceTable
from trainguard.rules.profiler_report import PROFILER_REPORT


@dataclass(frozen=True)
class JobFacts:
    """One job with its rows of the whole job; ``prices`` None stands for the packaged table."""

    job: JobRecord
    rows: Mapping[str, RuleRow]
    prices: PriceTable | None = None

    @classmethod
    def of(cls, job: JobRecord, rows: Sequence[RuleRow], prices: PriceTable | None = None) -> "JobFacts":
        """Leave the rows of nodes aside."""
        return cls(job, {each.rule: each for each in rows if each.node is None}, prices)

    @cached_property
    def rules(self) -> Mapping[str, RuleRow]:
        """The rows of the rules, without the one that sums them up."""
        return {rule: each for rule, each in self.rows.items() if rule != PROFILER_REPORT}

    @property
    def report(self) -> RuleRow | None:
        """The row that sums the rules up."""
        return self.rows.get(PROFILER_REPORT)

    @cached_property
    def fired(self) -> list[RuleRow]:
        """The rows of rules that have fired, what wasted most first, then the most severe."""
        rows = (row for row in self.rules.values() if has_fired(row))
        return sorted(
            rows, key=lambda row: (-(row.wasted_percent or 0.0), -severity_rank(row.finding.severity), row.rule)
        )

    @property
    def judged(self) -> bool:
        """Whether at least one rule could say something."""
        return bool(self.fired) or (self.report is not None and self.report.data_points > 0)

    @property
    def began_at(self) -> float | None:
        """When the job began, as far as it is known: epoch seconds."""
        known = (self.job.started_at, self.job.created_at)
        return next((at for at in known if at is not None), None)

    @property
    def last_at(self) -> float | None:
        """When the job last did something that was noted: epoch seconds."""
        known = (self.job.ended_at, self.job.last_object_at, self.watermark_s, self.began_at)
        return max((at for at in known if at is not None), default=None)

    @property
    def watermark_s(self) -> float | None:
        """How far the rules have judged, epoch seconds."""
        row = self.report
        return self.job.last_object_at if row is None else row.evaluated_through

    @property
    def hours(self) -> float | None:
        """Instance hours that were judged: all nodes from the job's start on."""
        if self.job.started_at is None or self.watermark_s is None:
            return None
        return max(self.watermark_s - self.job.started_at, 0.0) / HOUR_S * self.nodes

    @property
    def nodes(self) -> int:
        """How many instances the job has; one where that is not known."""
        return self.job.instance_count or 1

    @cached_property
    def wasted_share(self) -> float | None:
        """The share, 0 to 1, of the paid GPU time that was no compute; None where the job's row has no ledger."""
        return None if self.report is None else lost_share_of(self.report.finding.facts)

    @cached_property
    def spent(self) -> float | None:
        """What the judged time has cost; None where no price is known."""
        bill = Account(self.job.instance_type, self.job.started_at, self.watermark_s, self.nodes, self.prices).bill()
        return bill.spent if isinstance(bill, Bill) else None

    def lost_by(self, row: RuleRow) -> float | None:
        """Return what a finding has cost; None where it or the price is not known."""
        if self.spent is None or row.wasted_percent is None:
            return None
        return self.spent * row.wasted_percent / 100.0

    @property
    def lost(self) -> float | None:
        """What the paid GPU time that was no compute has cost."""
        return None if self.spent is None or self.wasted_share is None else self.spent * self.wasted_share

    @property
    def severity(self) -> Severity | None:
        """The highest severity of open findings."""
        return max(
            (row.finding.severity for row in self.fired if row.finding.severity is not None),
            key=severity_rank,
            default=None,
        )

    @property
    def wasted_hours(self) -> float | None:
        """Instance hours that were no compute."""
        return None if self.hours is None or self.wasted_share is None else self.hours * self.wasted_share


def has_fired(row: RuleRow) -> bool:
    """Whether a rule has fired, be it on one node and not alerted yet, or over by now."""
    return row.times_fired > 0 or row.status is Status.FIRED


def with_findings(facts: Sequence[JobFacts]) -> int:
    """Return on how many of the jobs a rule has fired."""
    return sum(bool(each.fired) for each in facts)


def hours_of(facts: Sequence[JobFacts]) -> float:
    """Return the jobs' instance hours, as far as their times are known."""
    return round(sum(each.hours or 0.0 for each in facts), 2)


def wasted_share_of(facts: Sequence[JobFacts]) -> float | None:
    """Return the share of the instance hours that was wasted, over the jobs of which both are known."""
    known = [(each.wasted_hours, each.hours) for each in facts if each.wasted_hours is not None]
    hours = sum(all_hours or 0.0 for _, all_hours in known)
    return round(sum(wasted or 0.0 for wasted, _ in known) / hours, 4) if hours else None


def money_of(amounts: Iterable[float | None]) -> float | None:
    """Add up what is known; None when nothing is."""
    known = [amount for amount in amounts if amount is not None]
    return round(sum(known), 2) if known else None


def began_in(facts: JobFacts) -> datetime | None:
    """Return the Monday of the week in which a job began; None where no time of it is known."""
    began = facts.began_at if facts.began_at is not None else facts.last_at
    return None if began is None else monday_of(began)


def monday_of(epoch_s: float) -> datetime:
    """Return the start of the week, Monday 00:00 UTC, of a time in epoch seconds."""
    day = datetime.fromtimestamp(epoch_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())
