"""Jobs of a made-up fleet, with rows as the stack leaves them."""

from dataclasses import replace

from trainguard.core.finding import Finding, Severity
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.document import LedgerEntry, ledger_facts
from trainguard.report.fleet.document import FleetReport
from trainguard.report.fleet.fleet import Fleet, build_fleet

HOUR_S = 3_600.0
# 2026-11-23, midnight UTC.
MONDAY = 1_795_392_000.0

# USD 3.825 an hour.
P3 = "ml.p3.2xlarge"

FLEET = Fleet(stack="TrainGuard", region="eu-west-1")
NOW = MONDAY + 100 * HOUR_S

HOSTILE = "</script></table><script>hacked()</script><img src=x onerror=hacked()>\"'&\u202e{{7*7}}"

Rows = list[RuleRow]


def fleet_of(*jobs: tuple[JobRecord, Rows], fleet: Fleet = FLEET) -> FleetReport:
    """Return the fleet's document of some jobs, as it is made a hundred hours after Monday."""
    return build_fleet(fleet, jobs, now=NOW)


def job(
    name: str = "bert",
    *,
    began: float | None = MONDAY,
    hours: float = 10.0,
    nodes: int | None = 1,
    instance_type: str | None = P3,
    status: JobStatus = JobStatus.COMPLETED,
    bucket: str = "profiles",
) -> JobRecord:
    """Return a job that ran for ten hours on one instance."""
    return JobRecord(
        job=name,
        arn=f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{name}",
        bucket=bucket,
        prefix="jobs/",
        status=status,
        instance_type=instance_type,
        instance_count=nodes,
        created_at=began,
        started_at=began,
        ended_at=None if began is None or not status.is_final else began + hours * HOUR_S,
        last_object_at=None if began is None else began + hours * HOUR_S,
        active=not status.is_final,
    )


def found(
    of: JobRecord,
    rule: str = "LowGPUUtilization",
    *,
    wasted: float | None = 60.0,
    severity: Severity | None = Severity.HIGH,
    times: int = 1,
    action: str | None = None,
    reason: str = "GPUs idle.",
) -> RuleRow:
    """Return the row of a rule that has fired; ``severity`` None for one that is over."""
    row = RuleRow(
        job=of.job,
        finding=Finding(rule=rule, node=None, reason=reason, severity=severity),
        status=Status.OK if severity is None else Status.FIRED,
        wasted_percent=wasted,
        times_fired=times,
        evaluated_through=of.last_object_at,
    )
    at = None if action is None else of.last_object_at
    return replace(row, action=action, action_at=at)


def quiet(of: JobRecord, rule: str, status: Status = Status.OK) -> RuleRow:
    """Return the row of a rule that has not fired."""
    return RuleRow(of.job, Finding(rule, None, "Fine."), status, evaluated_through=of.last_object_at)


def report_row(
    of: JobRecord, *, judged: int = 11, reason: str = "No rule has fired.", lost: float | None = None
) -> RuleRow:
    """Return the row that sums a job's rules up; ``lost`` percent of the paid GPU time was no compute."""
    compute = (
        [] if lost is None else [LedgerEntry(bucket=Bucket.COMPUTE, gpu_seconds=1, share=1 - lost / 100, usd=None)]
    )
    return RuleRow(
        job=of.job,
        finding=Finding(rule="ProfilerReport", node=None, reason=reason, facts=ledger_facts(compute)),
        status=Status.OK if judged else Status.WAITING_FOR_DATA,
        data_points=judged,
        evaluated_through=of.last_object_at,
    )


def with_rows(of: JobRecord, *rows: RuleRow, judged: int = 11) -> tuple[JobRecord, Rows]:
    """Return a job with its rows, a row of a node among them; the job has lost what the worst of them claims."""
    claims = [each.wasted_percent for each in rows if each.wasted_percent is not None]
    sampled = any(each.rule == "LowGPUUtilization" and each.status is Status.OK for each in rows)
    lost = max(claims, default=0.0 if sampled else None)
    node = RuleRow(of.job, Finding("LowGPUUtilization", "algo-1", "GPUs idle."), Status.FIRED, times_fired=9)
    return of, [*rows, report_row(of, judged=judged, lost=lost), node]


def hostile(text: str) -> tuple[JobRecord, Rows]:
    """Return a job of which every text is ``text``."""
    of = replace(job(text, instance_type=text, bucket=text), owners=dict.fromkeys(("user", "team", "project"), text))
    action = f"Training job stopped: {text}."
    return with_rows(of, found(of, text, reason=text, action=action), found(of, "StepOutlier", reason=text))


def many(count: int) -> list[tuple[JobRecord, Rows]]:
    """Return so many jobs over half a year, two of three with findings."""
    rules = ("LowGPUUtilization", "CPUBottleneck", "StepOutlier", "Dataloader")
    severities = list(Severity)
    jobs = []
    for number in range(count):
        of = job(f"train-{number:05d}", began=MONDAY - number * HOUR_S, hours=1.0 + number % 50, nodes=1 + number % 8)
        if number % 3:
            of = replace(of, owners={"user": f"user-{number % 45}", "team": f"team-{number % 5}"})
        fired = [
            found(of, rules[(number + each) % 4], wasted=float(number % 97), severity=severities[number % 4])
            for each in range(number % 3)
        ]
        others = [quiet(of, rule) for rule in rules if rule not in {row.rule for row in fired}]
        jobs.append(with_rows(of, *fired, *others))
    return jobs
