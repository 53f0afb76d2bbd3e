"""The kernel profiles of a fleet: of the stack's jobs by their rows, of a folder by what lies in it."""

from collections.abc import Sequence

from msgspec.structs import replace

from trainguard.finding import severity_rank
from trainguard.kernels.findings.finding import FAMILY
from trainguard.kernels.listing.entries import KernelList, ListedProfile
from trainguard.links import kernel_page_link
from trainguard.records import RuleRow, Status
from trainguard.report.fleet_document import FleetKernels, FleetReport
from trainguard.report.fleet_facts import JobFacts, has_fired
from trainguard.rules.kernels.capture_rule import FRAMEWORK, GAIN_SHARE, TRACES
from trainguard.timestamps import iso_time

PROFILES_SHOWN = 250


def kernels_of_jobs(facts: Sequence[JobFacts]) -> list[FleetKernels]:
    """Return the jobs of which a kernel profile was judged, the newest first."""
    judged = [each for each in facts if any(_judged(each, rule) for rule in each.rules)]
    return [_of_job(each) for each in sorted(judged, key=lambda each: -(each.last_at or 0.0))[:PROFILES_SHOWN]]


def with_kernels(report: FleetReport, found: KernelList) -> FleetReport:
    """Return the report of a folder with the kernel profiles below it."""
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
