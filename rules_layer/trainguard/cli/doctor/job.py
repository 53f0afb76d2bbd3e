"""One job: known, profiled into our bucket, with tags that can be read, and to be stopped or not."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainguard.actions.request import StopCase, StopDecision
from trainguard.actions.stop import decide_stop
from trainguard.actions.stop_preconditions import StopPreconditions
from trainguard.actions.stop_switch import StopSwitch
from trainguard.cli.doctor.actions import stop_switches
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.job_case import JobCase
from trainguard.engine.jobs.job_description import NAMESPACE, STOP_TAG
from trainguard.families.installed import FAMILIES
from trainguard.finding import Finding
from trainguard.ports import TrainingJobDescription
from trainguard.records import JOB_NODE, JobRecord, RuleRow, Status
from trainguard.rules.units import counted
from trainguard.settings.tag_names import PROFILE_TAG
from trainguard.timestamps import iso_time

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import ProfilerConfigOutputTypeDef

TRAINING_JOB = Check("training job")
PROFILER = Check("profiler")
SETTINGS = Check("settings")
STOP = Check("stop")

_NEXT_JOB = "Tags are read once, when a job becomes known: set it right when you start the next one."
_START_WITH = "Start the job with ProfilerConfig S3OutputPath s3://{}/…, as docs/launching.md has it."


def check_training_job(case: JobCase) -> Iterator[CheckResult]:
    """Say what SageMaker knows of the job."""
    yield grade_description(case.job, case.description)


def grade_description(job: str, description: TrainingJobDescription | None) -> CheckResult:
    """Judge a job's description; None is a job that SageMaker does not know."""
    if description is None:
        return TRAINING_JOB.warn(
            f"SageMaker does not know a training job {job}",
            "Is its name right, and is it of this account and Region? A profile that was copied into the bucket is "
            "evaluated with default parameters, and its job can never be stopped.",
        )
    count = description.instance_count or 0
    instances = f"{counted(count, 'instance')} of {description.instance_type or 'several types'}"
    status = f"{description.status.value} ({description.secondary_status})"
    return TRAINING_JOB.ok(f"{status}, {instances}, {counted(len(description.tags), 'tag')}")


def check_profiler(case: JobCase) -> Iterator[CheckResult]:
    """Judge whether the job writes its profile to our bucket."""
    if case.description is not None:
        yield grade_profiler(case.profiler, case.site.bucket, tagged=case.description.tags.get(PROFILE_TAG))


def grade_profiler(profiler: "ProfilerConfigOutputTypeDef", bucket: str, *, tagged: str | None = None) -> CheckResult:
    """Judge a job's ProfilerConfig; ``tagged`` is where its tag says that its profile lies."""
    start_with = _START_WITH.format(bucket)
    if profiler.get("DisableProfiler", False) and tagged is None:
        return PROFILER.fail("the job was started with DisableProfiler: it writes no profile", start_with)
    uri = profiler.get("S3OutputPath") or tagged
    if not uri:
        return PROFILER.fail("the job has no ProfilerConfig with an S3OutputPath: it writes no profile", start_with)
    if uri.removeprefix("s3://").partition("/")[0] != bucket:
        return PROFILER.fail(f"the job writes its profile to {uri}, the stack listens to {bucket}", start_with)
    interval = profiler.get("ProfilingIntervalInMilliseconds")
    return PROFILER.ok(f"{uri}, " + ("the usual interval" if interval is None else f"every {interval:,} ms"))


def check_settings(case: JobCase) -> Iterator[CheckResult]:
    """Judge the rule settings in the job's tags."""
    tags = {} if case.description is None else case.description.tags
    yield from grade_settings(case.record, tags)


def grade_settings(record: JobRecord, tags: Mapping[str, str]) -> Iterator[CheckResult]:
    """Judge a job's rule settings, and tags that look like ours and are not."""
    plan = FAMILIES.plan(record)
    faults = [SETTINGS.fail(f"{fault}; the rule is in ERROR", _NEXT_JOB) for fault in plan.faults.values()]
    faults += [
        SETTINGS.warn(f"tag {tag!r} is not read: it does not begin with {NAMESPACE}", _NEXT_JOB)
        for tag in tags
        if tag.lower().startswith(NAMESPACE) and not tag.startswith(NAMESPACE)
    ]
    told = {fault.field for fault in plan.faults.values()}
    faults += [
        SETTINGS.fail(fault, _NEXT_JOB) for fault in record.faults if not any(f"{field} is " in fault for field in told)
    ]
    if not record.policy.evaluated:
        faults.append(SETTINGS.warn(f"the job is not evaluated: {record.policy.why}", _NEXT_JOB))
    rules = f"{counted(len(plan.rules), 'rule')} run" + (" (rule_to_invoke)" if plan.disabled else "")
    yield from SETTINGS.unless(faults, f"{counted(len(record.rule_settings), 'setting')}; {rules}")
    if record.rules_elsewhere:
        named = "; ".join(f"{rule}: {why}" for rule, why in sorted(record.rules_elsewhere.items()))
        yield SETTINGS.ok(f"{counted(len(record.rules_elsewhere), 'configured rule')} not evaluated here: {named}")


def check_stop(case: JobCase) -> Iterator[CheckResult]:
    """Say whether a fire would stop the job."""
    now = case.site.now
    switches = stop_switches(case.site)
    fire = _fire_of(case.record, now)
    finding = Finding(fire.rule, None, "")
    row = RuleRow(fire.job, finding, Status.FIRED, evaluated_through=now, fire_id=fire.fire_id)
    known = StopPreconditions(job=case.record, row=row)
    decision = decide_stop(fire, case.description, switches, known=known, now=now)
    tags: Mapping[str, Any] = {} if case.description is None else case.description.tags
    yield grade_stop(decision, switches.in_force, opted_in=STOP_TAG in tags)


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
    """Judge what would become of a fire now; ``opted_in`` says that the job has the tag, whatever its value."""
    if decision.stop or decision.decision == "grace":
        return STOP.ok(f"a fire would stop the job: {decision.why}")
    found = f"a fire would not stop the job: {decision.why}"
    if not opted_in or (decision.decision == "dry-run" and switch == StopSwitch.ENABLED):
        return STOP.ok(found)
    if switch != StopSwitch.ENABLED:
        return STOP.warn(found, "See the stop switch above.")
    return STOP.warn(found, "Tags can be set while the job runs: the stop tag is read at each fire.")
