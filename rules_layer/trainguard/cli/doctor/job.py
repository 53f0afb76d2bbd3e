"""Checks of one job: known, profiled into the stack's bucket, with readable tags, and to be stopped or not."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from trainguard.cli.doctor.actions import stop_switches
from trainguard.cli.doctor.check import CheckResult, fail, ok, unless, warn
from trainguard.cli.doctor.job_case import JobCase
from trainguard.core.finding import Finding
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JOB_NODE, JobRecord, RuleRow, Status
from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_description import NAMESPACE, STOP_TAG
from trainguard.engine.settings.tag_names import PROFILE_TAG
from trainguard.stack.actions.request import StopCase, StopDecision
from trainguard.stack.actions.stop import decide_stop
from trainguard.stack.actions.stop_preconditions import StopPreconditions
from trainguard.stack.actions.stop_switch import StopSwitch

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import ProfilerConfigOutputTypeDef


_NEXT_JOB = "Tags are read once, when a job becomes known: set it right when you start the next one."
_START_WITH = "Start the job with ProfilerConfig S3OutputPath s3://{}/…, as docs/launching.md has it."


def grade_description(job: str, description: TrainingJobDescription | None) -> CheckResult:
    """Judge a job's description; None is a job that SageMaker does not know."""
    if description is None:
        return warn(
            f"SageMaker does not know a training job {job}",
            "Is its name right, and is it of this account and Region? A profile that was copied into the bucket is "
            "evaluated with default parameters, and its job can never be stopped.",
        )
    count = description.instance_count or 0
    instances = f"{counted(count, 'instance')} of {description.instance_type or 'several types'}"
    status = f"{description.status.value} ({description.secondary_status})"
    return ok(f"{status}, {instances}, {counted(len(description.tags), 'tag')}")


def check_profiler(case: JobCase) -> Iterable[CheckResult]:
    """Judge whether a job that SageMaker knows writes its profile to the stack's bucket."""
    if case.description is None:
        return ()
    return (grade_profiler(case.profiler, case.site.bucket, tagged=case.tags.get(PROFILE_TAG)),)


def grade_profiler(profiler: "ProfilerConfigOutputTypeDef", bucket: str, *, tagged: str | None = None) -> CheckResult:
    """Judge a job's ProfilerConfig; ``tagged`` is where its tag says that its profile lies."""
    start_with = _START_WITH.format(bucket)
    if profiler.get("DisableProfiler", False) and tagged is None:
        return fail("the job was started with DisableProfiler: it writes no profile", start_with)
    uri = profiler.get("S3OutputPath") or tagged
    if not uri:
        return fail("the job has no ProfilerConfig with an S3OutputPath: it writes no profile", start_with)
    if uri.removeprefix("s3://").partition("/")[0] != bucket:
        return fail(f"the job writes its profile to {uri}, the stack listens to {bucket}", start_with)
    interval = profiler.get("ProfilingIntervalInMilliseconds")
    return ok(f"{uri}, " + ("the usual interval" if interval is None else f"every {interval:,} ms"))


def grade_settings(record: JobRecord, tags: Mapping[str, str]) -> Iterator[CheckResult]:
    """Judge a job's rule settings, and tags that look like TrainGuard's and are not."""
    plan = FAMILIES.plan(record)
    faults = [fail(f"{fault}; the rule is in ERROR", _NEXT_JOB) for fault in plan.faults.values()]
    faults += [
        warn(f"tag {tag!r} is not read: it does not begin with {NAMESPACE}", _NEXT_JOB)
        for tag in tags
        if tag.lower().startswith(NAMESPACE) and not tag.startswith(NAMESPACE)
    ]
    faulty = {fault.field for fault in plan.faults.values()}
    faults += [
        fail(fault, _NEXT_JOB) for fault in record.faults if not any(f"{field} is " in fault for field in faulty)
    ]
    if not record.policy.evaluated:
        faults.append(warn(f"the job is not evaluated: {record.policy.why}", _NEXT_JOB))
    rules = f"{counted(len(plan.rules), 'rule')} run" + (" (rule_to_invoke)" if plan.disabled else "")
    yield from unless(faults, f"{counted(len(record.rule_settings), 'setting')}; {rules}")
    if record.rules_elsewhere:
        named = "; ".join(f"{rule}: {why}" for rule, why in sorted(record.rules_elsewhere.items()))
        yield ok(f"{counted(len(record.rules_elsewhere), 'configured rule')} not evaluated here: {named}")


def check_stop(case: JobCase) -> CheckResult:
    """Say whether a fire would stop the job."""
    now = case.site.now
    switches = stop_switches(case.site)
    fire = _fire_of(case.record, now)
    finding = Finding(fire.rule, None, "")
    row = RuleRow(fire.job, finding, Status.FIRED, evaluated_through=now, fire_id=fire.fire_id)
    known = StopPreconditions(job=case.record, row=row)
    decision = decide_stop(fire, case.description, switches, known=known, now=now)
    return grade_stop(decision, switches.in_force, opted_in=STOP_TAG in case.tags)


def _fire_of(record: JobRecord, now: float) -> StopCase:
    """Return a fire of now, of a rule that may stop the job if there is one."""
    policy, rules = record.policy, FAMILIES.plan(record).rules
    may = (rule for rule in rules if policy.stops.may_stop(rule) and not policy.alerts.is_staged(rule))
    rule = next(may, rules[0])
    return StopCase(
        job=record.job,
        job_arn=record.arn,
        rule=rule,
        episode=record.episodes.get(rule, 0),
        node=JOB_NODE,
        fire_id="",
        fired_at=iso_time(now),
        job_created_at=None if record.created_at is None else iso_time(record.created_at),
        policy=policy,
    )


def grade_stop(decision: StopDecision, switch: StopSwitch, *, opted_in: bool) -> CheckResult:
    """Judge the stop of a fire now; ``opted_in`` says that the job has the tag, whatever its value."""
    if decision.stop or decision.decision == "grace":
        return ok(f"a fire would stop the job: {decision.why}")
    found = f"a fire would not stop the job: {decision.why}"
    if not opted_in or (decision.decision == "dry-run" and switch == StopSwitch.ENABLED):
        return ok(found)
    if switch != StopSwitch.ENABLED:
        return warn(found, "See the stop switch above.")
    return warn(found, "Tags can be set while the job runs: the stop tag is read at each fire.")
