"""What one job's item and rows say for the fleet, and jobs by week and by owner: users, teams and projects."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Self

from msgspec.structs import replace

from trainguard.core.finding import Severity, severity_rank
from trainguard.core.layout import kernel_page_link, plain_links, report_links
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.core.timestamps import iso_time
from trainguard.engine.settings.tag_names import OWNER_KINDS
from trainguard.kernels.listing import KernelList, ListedProfile
from trainguard.kernels.ranking import place_of
from trainguard.kernels.rules.finding import FAMILY
from trainguard.kernels.rules.rule import FRAMEWORK, GAIN_SHARE, TRACES
from trainguard.ledger.document import lost_share_of
from trainguard.pricing.cost import HOUR_S, CostEstimate, PaidTime
from trainguard.pricing.table import PriceTable
from trainguard.report.fleet.document import FleetGroup, FleetJob, FleetKernels, FleetReport
from trainguard.rules.profiler_report import PROFILER_REPORT

_TEXT_SHOWN = 600


@dataclass(frozen=True)
class JobFacts:
    """One job with its rows of the whole job and of its nodes; ``prices`` None stands for the packaged table."""

    job: JobRecord
    rows: Mapping[str, RuleRow]
    prices: PriceTable | None = None
    of_nodes: Sequence[RuleRow] = ()

    @classmethod
    def of(cls, job: JobRecord, rows: Sequence[RuleRow], prices: PriceTable | None = None) -> Self:
        of_job = {each.rule: each for each in rows if each.node is None}
        return cls(job, of_job, prices, [each for each in rows if each.node is not None])

    @cached_property
    def rules(self) -> Mapping[str, RuleRow]:
        return {rule: each for rule, each in self.rows.items() if rule != PROFILER_REPORT}

    @property
    def report(self) -> RuleRow | None:
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
        return self.job.created_at if self.job.started_at is None else self.job.started_at

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
        estimate = PaidTime(
            self.job.instance_type, self.job.started_at, self.watermark_s, self.nodes, self.prices
        ).estimate()
        return estimate.spent if isinstance(estimate, CostEstimate) else None

    def lost_by(self, row: RuleRow) -> float | None:
        """Return what a finding has cost; None where it or the price is not known."""
        if self.spent is None or row.wasted_percent is None:
            return None
        return self.spent * row.wasted_percent / 100.0

    @property
    def lost(self) -> float | None:
        return None if self.spent is None or self.wasted_share is None else self.spent * self.wasted_share

    @property
    def severity(self) -> Severity | None:
        known = (row.finding.severity for row in self.fired if row.finding.severity is not None)
        return max(known, key=severity_rank, default=None)

    @property
    def wasted_hours(self) -> float | None:
        return None if self.hours is None or self.wasted_share is None else self.hours * self.wasted_share


def has_fired(row: RuleRow) -> bool:
    """Whether a rule has fired, be it on one node and not alerted yet, or over by now."""
    return row.times_fired > 0 or row.status is Status.FIRED


def group_of(facts: Sequence[JobFacts], kind: str = "", name: str | None = None) -> FleetGroup:
    return FleetGroup(kind=kind, name=name, **sums_of(facts))


def sums_of(facts: Sequence[JobFacts]) -> dict[str, Any]:
    known = [(each.wasted_hours, each.hours or 0.0) for each in facts if each.wasted_hours is not None]
    hours = sum(all_hours for _, all_hours in known)
    return {
        "jobs": len(facts),
        "judged": sum(each.judged for each in facts),
        "with_findings": sum(bool(each.fired) for each in facts),
        "instance_hours": round(sum(each.hours or 0.0 for each in facts), 2),
        "wasted_share": round(sum(wasted or 0.0 for wasted, _ in known) / hours, 4) if hours else None,
        "spent": money_of(each.spent for each in facts),
        "lost": money_of(each.lost for each in facts),
        "unpriced": sum(each.spent is None for each in facts),
    }


def money_of(amounts: Iterable[float | None]) -> float | None:
    """Add up what is known; None when nothing is."""
    known = [amount for amount in amounts if amount is not None]
    return round(sum(known), 2) if known else None


def by_week(facts: Sequence[JobFacts]) -> dict[str, list[JobFacts]]:
    """Return the jobs by the Monday of the week in which they began, in order of time."""
    weeks: dict[str, list[JobFacts]] = {}
    for each in facts:
        began = each.began_at if each.began_at is not None else each.last_at
        if began is not None:
            weeks.setdefault(monday_of(began).date().isoformat(), []).append(each)
    return dict(sorted(weeks.items()))


def fleet_job(facts: JobFacts) -> FleetJob:
    job, report = facts.job, facts.report
    has_report = any(each.report_uri for each in facts.rows.values()) or (bool(facts.rows) and not job.active)
    links = None
    if job.bucket and has_report:
        links = report_links(job=_name_in_account(job), arn=job.arn, bucket=job.bucket, prefix=job.prefix)
    why = "No row of it is there: none was written yet, or they have expired."
    return FleetJob(
        job=job.job,
        status=job.status.value,
        active=job.active,
        instance_type=job.instance_type,
        instance_count=job.instance_count,
        started_at=None if facts.began_at is None else iso_time(facts.began_at),
        instance_hours=money_of([facts.hours]),
        wasted_share=facts.wasted_share,
        lost=money_of([facts.lost]),
        spent=money_of([facts.spent]),
        severity=None if facts.severity is None else facts.severity.value,
        fired=[row.rule for row in facts.fired],
        summary=why if report is None else shortened(report.finding.reason),
        report=None if links is None else links.page,
        console=None if links is None else links.console,
        link=next(iter(plain_links(job.run_links).values()), None),
        owners=dict(job.owners),
        platform=job.platform,
        queue=job.queue,
    )


def _name_in_account(job: JobRecord) -> str:
    """Return the name that a job has where its report lies: account and Region stand before it in central tables."""
    return job.job.split("/", 2)[-1] if ACCOUNT in job.owners else job.job


def shortened(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN else text[: _TEXT_SHOWN - 1] + "…"


def monday_of(epoch_s: float) -> datetime:
    """Return the start of the week, Monday 00:00 UTC, of a time in epoch seconds."""
    day = datetime.fromtimestamp(epoch_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


OWNERS_SHOWN = 30

# An owner of jobs in the tables of a central account alone.
ACCOUNT = "account"

WEEKS_SHOWN = 8

_PLACES = ("platform", "queue")


def owners_by_kind(facts: Sequence[JobFacts]) -> dict[str, list[FleetGroup]]:
    """Return the owners by kind, those that lost most first; an entry without a name, the last, has the other jobs.

    Platforms and queues are kinds too, where there are several.
    """
    found = {}
    for kind in (*OWNER_KINDS, ACCOUNT, *_PLACES):
        groups: defaultdict[str | None, list[JobFacts]] = defaultdict(list)
        for each in facts:
            groups[getattr(each.job, kind) if kind in _PLACES else each.job.owners.get(kind)].append(each)
        unnamed = groups.pop(None, [])
        if len(groups) > (kind in _PLACES):
            named = sorted(groups, key=lambda name: _waste(name, groups[name]))
            found[kind] = [_owner(kind, name, groups[name]) for name in named]
            found[kind] += [_owner(kind, None, unnamed)] if unnamed else []
    return found


def shown_owners(by_kind: dict[str, list[FleetGroup]]) -> list[FleetGroup]:
    """Return the owners that the document lists; the entry without a name is one of them."""
    shown: list[FleetGroup] = []
    for owners in by_kind.values():
        named = [each for each in owners if each.name is not None]
        shown += named[:OWNERS_SHOWN] + owners[len(named) :]
    return shown


def owner_notes(by_kind: dict[str, list[FleetGroup]], currency: str) -> list[str]:
    notes = []
    for kind, owners in by_kind.items():
        rest = [each for each in owners if each.name is not None][OWNERS_SHOWN:]
        if rest:
            lost = money_of(each.lost for each in rest)
            money = "" if lost is None else f" They lost {currency} {lost:,.2f}."
            notes.append(f"{len(rest):,} more {kind}s that lost less than those shown are not listed.{money}")
    return notes


def _waste(name: str | None, facts: Sequence[JobFacts]) -> tuple[float, float, str]:
    lost = sum(each.lost or 0.0 for each in facts)
    return -lost, -sum(each.wasted_hours or 0.0 for each in facts), name or ""


def _owner(kind: str, name: str | None, facts: Sequence[JobFacts]) -> FleetGroup:
    weeks = [group_of(held, "week", monday) for monday, held in by_week(facts).items()]
    return replace(group_of(facts, kind, name), weeks=weeks[-WEEKS_SHOWN:])


PROFILES_SHOWN = 250


def kernels_of_jobs(facts: Sequence[JobFacts]) -> list[FleetKernels]:
    judged = [each for each in facts if any(_judged(each, rule) for rule in each.rules)]
    return [_of_job(each) for each in sorted(judged, key=lambda each: -(each.last_at or 0.0))[:PROFILES_SHOWN]]


def with_kernels(report: FleetReport, found: KernelList) -> FleetReport:
    shown = [_of_folder(each) for each in found.profiles[:PROFILES_SHOWN]]
    left = len(found.profiles) - len(shown) + found.left_out
    notes = [*report.notes, f"{left:,} older kernel profiles are not listed."] if left else report.notes
    return replace(report, kernel_profiles=shown, notes=notes)


def _judged(facts: JobFacts, rule: str) -> bool:
    row = facts.rules[rule]
    return rule.startswith(FAMILY) and (row.status is Status.OK or row.data_points > 0 or has_fired(row))


def _of_job(facts: JobFacts) -> FleetKernels:
    job = facts.job
    fired = sorted((row for row in facts.fired if row.rule.startswith(FAMILY)), key=_place)
    known = [row.finding.severity for row in fired if row.finding.severity is not None]
    rows = [row for rule, row in facts.rules.items() if _judged(facts, rule)]
    newest = max(rows, key=lambda row: row.evaluated_through or 0.0)
    framework, traces = _fact(newest, FRAMEWORK), _fact(newest, TRACES)
    gains = [gain for row in rows if isinstance(gain := _fact(row, GAIN_SHARE), int | float)]
    return FleetKernels(
        job=job.job,
        status=job.status.value,
        recorded_at=iso_time(newest.evaluated_through) if newest.evaluated_through else None,
        severity=max(known, key=severity_rank).value if known else None,
        findings=[row.rule.removeprefix(FAMILY) for row in fired],
        framework=framework if isinstance(framework, str) else None,
        traces=traces if isinstance(traces, int) else None,
        gain_share=max(gains, default=None),
        page=kernel_page_link(job=_name_in_account(job), arn=job.arn, bucket=job.bucket, prefix=job.prefix),
    )


def _place(row: RuleRow) -> tuple[Any, ...]:
    gain = _fact(row, GAIN_SHARE)
    share = gain if isinstance(gain, int | float) else 0.0
    return place_of(row.rule, sure=True, gain_share=share, severity=row.finding.severity)


def _fact(row: RuleRow, name: str) -> float | int | str | None:
    return next((fact.value for fact in row.finding.facts if fact.name == name), None)


def _of_folder(profile: ListedProfile) -> FleetKernels:
    return FleetKernels(
        job=profile.name,
        status=profile.status,
        recorded_at=profile.recorded_at or profile.changed_at,
        severity=None if profile.severity is None else profile.severity.value,
        findings=profile.findings,
        framework=profile.framework,
        traces=profile.traces,
        gain_share=profile.gain_share,
        why=profile.why,
        place=profile.place,
        page=profile.page,
    )
