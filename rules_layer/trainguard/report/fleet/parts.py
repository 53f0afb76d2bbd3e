"""What jobs ran and lost by their owners: users, teams and projects, in all and by the week in which jobs began."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from trainguard.core.finding import severity_rank
from trainguard.core.links import kernel_page_link
from trainguard.core.records import RuleRow, Status
from trainguard.core.timestamps import iso_time
from trainguard.engine.settings.tag_names import OWNER_KINDS
from trainguard.kernels.listing import KernelList, ListedProfile
from trainguard.kernels.rules.finding import FAMILY
from trainguard.kernels.rules.rule import FRAMEWORK, GAIN_SHARE, TRACES
from trainguard.report.fleet.document import FleetGroup, FleetKernels, FleetReport
from trainguard.report.fleet.facts import JobFacts, by_week, group_of, has_fired, money_of

OWNERS_SHOWN = 30

WEEKS_SHOWN = 8


def owners_by_kind(facts: Sequence[JobFacts]) -> dict[str, list[FleetGroup]]:
    """Return the owners by kind, those that lost most first; an entry without a name, the last, has the other jobs."""
    found = {}
    for kind in OWNER_KINDS:
        groups: defaultdict[str | None, list[JobFacts]] = defaultdict(list)
        for each in facts:
            groups[each.job.owners.get(kind)].append(each)
        unnamed = groups.pop(None, [])
        if groups:
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
    fired = [row for row in facts.fired if row.rule.startswith(FAMILY)]
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
        page=kernel_page_link(job=job.job, arn=job.arn, bucket=job.bucket, prefix=job.prefix),
    )


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
