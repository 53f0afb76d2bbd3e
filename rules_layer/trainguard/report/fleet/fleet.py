"""All jobs of a deployment summed up."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from trainguard.core.brakes import BrakeList
from trainguard.core.canary_name import is_canary
from trainguard.core.finding import severity_rank
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.core.stores import Jobs
from trainguard.core.timestamps import iso_time
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.pricing.table import PriceTable, packaged_prices
from trainguard.report.fleet.document import (
    FleetBrake,
    FleetGroup,
    FleetJob,
    FleetReport,
    FleetRule,
    FleetTotals,
    Heat,
    StopMade,
)
from trainguard.report.fleet.facts import (
    JobFacts,
    by_week,
    fleet_job,
    group_of,
    has_fired,
    kernels_of_jobs,
    money_of,
    owner_notes,
    owners_by_kind,
    shortened,
    shown_owners,
    sums_of,
)
from trainguard.rules.registry import RULE_NAMES

JOBS_SHOWN = 250
HEAT_ROWS = 100
UNJUDGED_SHOWN = 100
STOPS_SHOWN = 100
_NAMED = 20
OVER = "over"
_STOPPED_BEGINS, _STOPPED_ENDS = "Training job stopped: ", ("; training job stopped", "training job stopped: yes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Whose jobs they are: ``since`` is in epoch seconds, ``prices`` None stands for the packaged table."""

    stack: str
    region: str
    since: float | None = None
    prices: PriceTable | None = None

    def wants(self, job: JobRecord) -> bool:
        """Whether a job is one of the fleet's, before its rows are read: no replay, no canary, and not too old."""
        if replayed_job(job.job) is not None or is_canary(job.job, job.arn, job.canary):
            return False
        return self.since is None or job.active or (JobFacts.of(job, ()).last_at or 0.0) >= self.since


def build_fleet(fleet: Fleet, jobs: Iterable[tuple[JobRecord, Sequence[RuleRow]]], *, now: float) -> FleetReport:
    """Return the fleet's report; jobs that the fleet does not want are passed over, ``now`` is in epoch seconds."""
    facts = [JobFacts.of(job, rows, fleet.prices) for job, rows in jobs if fleet.wants(job)]
    ranked = sorted(facts, key=_waste)
    shown, rest = ranked[:JOBS_SHOWN], ranked[JOBS_SHOWN:]
    stops = sorted((stop for each in facts for stop in _stops(each)), key=lambda stop: stop.at or "", reverse=True)
    unjudged = [each for each in facts if not each.judged]
    prices = packaged_prices() if fleet.prices is None else fleet.prices
    totals = FleetTotals(
        **sums_of(facts),
        active=sum(each.job.active for each in facts),
        fires=sum(row.times_fired for each in facts for row in each.fired),
        stops=len(stops),
        currency=prices.currency,
    )
    owners = owners_by_kind(facts)
    return FleetReport(
        generated_at=iso_time(now),
        since=None if fleet.since is None else iso_time(fleet.since),
        stack=fleet.stack,
        region=fleet.region,
        totals=totals,
        jobs=[fleet_job(each) for each in shown],
        rest=group_of(rest),
        rules=_rules(facts),
        heat=_heat(ranked),
        weeks=_weeks(facts),
        instance_types=_instance_types(facts),
        owners=shown_owners(owners),
        unjudged=[fleet_job(each) for each in unjudged[:UNJUDGED_SHOWN]],
        stops=stops[:STOPS_SHOWN],
        kernel_profiles=kernels_of_jobs(facts),
        notes=[
            *_notes(totals, rest=len(rest), unjudged=len(unjudged), prices=prices),
            *owner_notes(owners, prices.currency),
        ],
    )


@dataclass(frozen=True, slots=True)
class JudgedJob:
    """A job of this machine with its rows; it lies at ``place``, below the fleet's folder.

    ``unread`` counts parts and objects, ``report`` is its page, below the folder of the fleet's page.
    """

    place: str
    job: JobRecord
    rows: tuple[RuleRow, ...]
    link: str | None = None
    unread: int = 0
    report: str | None = None


def with_places(report: FleetReport, folder: str, places: Mapping[str, JudgedJob]) -> FleetReport:
    jobs, unjudged = ([_placed(each, places[each.job]) for each in of] for of in (report.jobs, report.unjudged))
    damaged = [name for name, each in places.items() if each.unread]
    notes = report.notes
    if damaged:
        more = f" and {len(damaged) - _NAMED:,} more" if len(damaged) > _NAMED else ""
        notes = [*notes, f"Not read in full, so no finding is no all-clear: {', '.join(damaged[:_NAMED])}{more}."]
    return msgspec.structs.replace(report, folder=folder, jobs=jobs, unjudged=unjudged, notes=notes)


def with_brakes(report: FleetReport, found: BrakeList, *, now: float) -> FleetReport:
    """Return the report with the brakes in force, each in a note too: what they silence looks like peace."""
    shown = [
        FleetBrake(**{name: getattr(each, name) for name in FleetBrake.__struct_fields__})
        for each in found.in_force(now)
    ]
    notes = [f"An operator holds back {each.scope}: {each.words}." for each in found.in_force(now)]
    return msgspec.structs.replace(report, brakes=shown, notes=[*notes, *found.faults, *report.notes])


def _placed(job: FleetJob, place: JudgedJob) -> FleetJob:
    return msgspec.structs.replace(job, place=place.place, link=place.link, report=place.report)


def stop_was_made(action: str | None) -> bool:
    """Whether the sentence that the fire path left in a row says that the training job was stopped."""
    return action is not None and (action.startswith(_STOPPED_BEGINS) or action.endswith(_STOPPED_ENDS))


def _waste(facts: JobFacts) -> tuple[float, float, float, int, str]:
    """Order jobs by money lost, without a price by instance hours and share wasted, then by severity."""
    return (
        -(facts.lost or 0.0),
        -(facts.wasted_hours or 0.0),
        -(facts.wasted_share or 0.0),
        -max(severity_rank(facts.severity), bool(facts.fired) - 1),
        facts.job.job,
    )


def _rules(facts: Sequence[JobFacts]) -> list[FleetRule]:
    rows: defaultdict[str, list[tuple[JobFacts, RuleRow]]] = defaultdict(list)
    for each in facts:
        for rule, row in each.rules.items():
            rows[rule].append((each, row))
    known = (*RULE_NAMES, *sorted(set(rows) - set(RULE_NAMES)))
    rules = [_rule(rule, rows[rule]) for rule in known if rule in rows]
    return sorted(rules, key=lambda rule: (-rule.jobs_fired, -rule.times_fired, known.index(rule.rule)))


def _rule(name: str, rows: Sequence[tuple[JobFacts, RuleRow]]) -> FleetRule:
    fired = [(facts, row) for facts, row in rows if has_fired(row)]

    def waste(pair: tuple[JobFacts, RuleRow]) -> tuple[float, float, int, str]:
        facts, row = pair
        hours = (row.wasted_percent or 0.0) * (facts.hours or 0.0)
        return -(facts.lost_by(row) or 0.0), -hours, -row.times_fired, facts.job.job

    worst = min(fired, key=waste, default=None)
    return FleetRule(
        rule=name,
        jobs_judged=sum(row.status is Status.OK or has_fired(row) for _, row in rows),
        jobs_fired=len(fired),
        jobs_in_error=sum(row.status is Status.ERROR for _, row in rows),
        times_fired=sum(row.times_fired for _, row in fired),
        lost=money_of(facts.lost_by(row) for facts, row in fired),
        worst=None if worst is None else worst[0].job.job,
    )


def _heat(ranked: Sequence[JobFacts]) -> Heat:
    with_findings = [each for each in ranked if each.fired]
    fires = Counter(row.rule for each in with_findings for row in each.fired)
    rules = [rule for rule, _ in fires.most_common()]
    rows = {each.job.job: [_cell(each.rules, rule) for rule in rules] for each in with_findings[:HEAT_ROWS]}
    return Heat(rules=rules, rows=rows, left_out=max(len(with_findings) - HEAT_ROWS, 0))


def _cell(rows: Mapping[str, RuleRow], rule: str) -> str:
    if rule not in rows:
        return ""
    row = rows[rule]
    if not has_fired(row):
        return row.status.value
    return OVER if row.finding.severity is None else row.finding.severity.value


def _weeks(facts: Sequence[JobFacts]) -> list[FleetGroup]:
    """Sum up by the weeks in which jobs began; weeks in between without any are included."""
    weeks = by_week(facts)
    if not weeks:
        return []
    first, last = (datetime.fromisoformat(monday) for monday in (min(weeks), max(weeks)))
    count = (last - first).days // 7 + 1
    mondays = [(first + timedelta(weeks=week)).date().isoformat() for week in range(count)]
    return [group_of(weeks.get(monday, []), "week", monday) for monday in mondays]


def _instance_types(facts: Sequence[JobFacts]) -> list[FleetGroup]:
    groups: defaultdict[str | None, list[JobFacts]] = defaultdict(list)
    for each in facts:
        groups[each.job.instance_type].append(each)
    types = [group_of(group, "instance type", name) for name, group in groups.items()]
    return sorted(types, key=lambda each: (-(each.lost or 0.0), -each.jobs, each.name or ""))


def _stops(facts: JobFacts) -> list[StopMade]:
    return [
        StopMade(
            job=facts.job.job,
            rule=rule,
            at=None if row.action_at is None else iso_time(row.action_at),
            action=shortened(row.action or ""),
        )
        for rule, row in facts.rows.items()
        if stop_was_made(row.action)
    ]


def _notes(totals: FleetTotals, *, rest: int, unjudged: int, prices: PriceTable) -> list[str]:
    notes = [
        f"Prices: {prices.origin}.",
        "Findings of one job overlap, so what a job has lost is what the one has cost that wasted most: at least that.",
        "A finding of a rule that cannot say what it wastes costs nothing here.",
        "The table of rules counts each rule by itself: its losses overlap with those of other rules.",
    ]
    if totals.unpriced:
        notes.append(
            f"No cost for {totals.unpriced} of {totals.jobs} jobs: their instance type, its price, or "
            "since when they were paid for is not known."
        )
    if rest:
        notes.append(f"{rest} jobs that wasted less than those shown are summed up in one line.")
    if unjudged > UNJUDGED_SHOWN:
        notes.append(f"{unjudged - UNJUDGED_SHOWN} more jobs without a verdict are not listed.")
    if totals.stops > STOPS_SHOWN:
        notes.append(f"{totals.stops - STOPS_SHOWN} older stops are not listed.")
    return notes


_READERS = 10


def read_fleet(
    fleet: Fleet, jobs: Jobs, rows_of: Callable[[JobRecord], Sequence[RuleRow]]
) -> Iterator[tuple[JobRecord, Sequence[RuleRow]]]:
    """Yield the jobs that the fleet wants with their rows; raises PortUnavailableError, StateCodecError."""
    wanted = [job for job in jobs.all() if fleet.wants(job)]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="rows") as readers:
        yield from zip(wanted, readers.map(rows_of, wanted), strict=True)
