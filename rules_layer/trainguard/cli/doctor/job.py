"""Checks of one job: its description and settings, its objects in the bucket, and how far they are evaluated."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from trainguard.cli.doctor.actions import stop_switches
from trainguard.cli.doctor.job_case import JobCase, SeenProfile
from trainguard.cli.doctor.site import CheckResult, fail, ok, span, unless, warn
from trainguard.core.finding import Finding
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, OutboxEntry, RuleRow, Status, StreamRecord
from trainguard.core.text import one_line
from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted
from trainguard.engine.installed import FAMILIES
from trainguard.engine.settings.tag_names import NAMESPACE, PROFILE_TAG, STOP_TAG
from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.stack.actions.request import StopCase, StopDecision
from trainguard.stack.actions.stop import StopPreconditions, decide_stop
from trainguard.stack.actions.stop_switch import StopSwitch
from trainguard.stack.polling.delivery import FOLDER, PollStatus, read_status
from trainguard.stack.polling.poll import NAME

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import ProfilerConfigOutputTypeDef

_NEXT_JOB = "Tags are read once, when a job becomes known: set it right when you start the next one."
_START_WITH = "Start the job with ProfilerConfig S3OutputPath s3://{}/…, as docs/launching.md has it."
MINUTE_S = 60.0

# Objects come once a minute, and may take minutes: after ten, something is wrong.
OBJECTS_SILENT_S = 600.0
BEHIND_S = 900.0
_MESSAGES = "See the lines on notifications, event pattern, queue and functions above."
MOST_FILES = 64
_LONGEST = 300
_SUFFIX = ".json"
_ADVICE = "May the function reach the service, and does the job's setting `source` name it as live_sources does?"


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
    now = case.site.now
    switches = stop_switches(case.site)
    fire = _fire_of(case.record, now)
    row = RuleRow(fire.job, fire.entry.finding, Status.FIRED, evaluated_through=now, fire_id=fire.fire_id)
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
        entry=OutboxEntry("", record.episodes.get(rule, 0), now, Finding(rule, None, "")),
        report_uri="",
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


def grade_objects(profile: SeenProfile, record: JobRecord, place: str, now: float) -> Iterator[CheckResult]:
    """Judge a profile's objects, by their keys and their times."""
    if profile.first_minute is None or profile.last_minute is None or profile.last_modified is None:
        yield from _grade_nothing(profile, record, place)
        return
    silence = now - profile.last_modified
    late = profile.last_modified - profile.last_minute - MINUTE_S
    found = (
        f"system metrics from {_time(profile.first_minute)} to {_time(profile.last_minute)}; "
        f"the last came {span(silence)} ago, {span(late)} after its minute"
    )
    if silence > OBJECTS_SILENT_S and not record.status.is_final:
        yield warn(found, "Nothing comes any more: has the job ended, or does its profiler hang?")
    else:
        yield ok(found)
    if profile.foreign:
        others = f"{len(profile.foreign):,} of the first {profile.looked_at:,} keys are of other kinds and not read"
        yield ok(f"{others}, the first {profile.foreign[0]!r}")


def _grade_nothing(profile: SeenProfile, record: JobRecord, place: str) -> Iterator[CheckResult]:
    if profile.foreign:
        yield fail(
            f"no key below {place} is of system metrics; the first foreign one is {profile.foreign[0]!r}",
            "Expected …/profiler-output/system/incremental/<YYYYMMDDHH>/<epoch s>.<node>.json.",
        )
    elif profile.looked_at:
        found = f"{counted(profile.looked_at, 'object')} below {place}, and none of system metrics"
        yield fail(found, "Only the rules on framework metrics can judge: does the system profiler run?")
    elif record.status.is_final:
        yield fail(f"nothing lies below {place}", "The job wrote no profile, or it has expired.")
    else:
        yield warn(f"nothing lies below {place} yet", "The first objects come a minute after training begins.")


def grade_nodes(nodes: frozenset[str], expected: int | None) -> Iterator[CheckResult]:
    """Judge which nodes have written; ``expected`` is how many the job has, None when unknown."""
    if expected is None or len(nodes) >= expected or not nodes:
        yield ok(f"{counted(len(nodes), 'node')} with system metrics" + ("" if expected is None else f" of {expected}"))
        return
    missing = [name for name in (f"algo-{number}" for number in range(1, expected + 1)) if name not in nodes]
    found = f"{len(nodes)} of {counted(expected, 'node')} with system metrics, missing: {', '.join(missing)}"
    yield warn(found, "Is the node's container running? See its log stream in /aws/sagemaker/TrainingJobs.")


def grade_evaluation(
    job: JobRecord | None, nodes: Sequence[StreamRecord], profile: SeenProfile
) -> Iterator[CheckResult]:
    """Judge the items of a job's nodes against the objects that are there."""
    system = {record.key.node: record for record in nodes if record.key.stream == "system"}
    if profile.last_minute is None:
        if not system:
            yield ok("there is nothing to evaluate yet")
        return
    if job is None or not system:
        lacks = "Jobs has no item of it" if job is None else "no node of it has state"
        yield fail(f"objects are there and not evaluated: {lacks}", f"Their messages did not arrive. {_MESSAGES}")
        return
    unknown = sorted(profile.nodes - system.keys())
    if unknown:
        found = f"{counted(len(unknown), 'node')} not evaluated: {', '.join(unknown)}"
        yield fail(found, f"Their messages did not arrive, or are dead letters. {_MESSAGES}")
    newest = profile.last_minute + MINUTE_S
    behind = {node: newest - record.watermark_s for node, record in system.items() if record.watermark_s is not None}
    furthest = max(behind, key=behind.__getitem__, default=None)
    if furthest is not None and behind[furthest] > BEHIND_S and not system[furthest].closed:
        found = f"{furthest} is evaluated until {span(behind[furthest])} before the newest object"
        yield fail(found, f"Messages wait or were lost. {_MESSAGES}")
    elif not unknown:
        worst = max(behind.values(), default=0.0)
        yield ok(f"{counted(len(system), 'node')} evaluated, {span(worst)} before the newest object")
    tally: Counter[str] = Counter()
    for record in nodes:
        tally.update({name: amount for name, amount in record.counters.items() if name not in HARMLESS_COUNTERS})
    if tally:
        named = ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in sorted(tally.items()))
        yield warn(f"not used: {named}", "`trainguard report` names the node, and what was wrong.")


def grade_rows(rows: Sequence[RuleRow]) -> Iterable[CheckResult]:
    """Judge the rules' rows of a job: a rule in ERROR gives no verdict."""
    faults = [
        fail(
            f"{row.rule} is in ERROR: {row.finding.reason}", "Its setting is at fault, or the rule raised: report that."
        )
        for row in rows
        if row.status is Status.ERROR
    ]
    tally = Counter(row.status.value for row in rows)
    text = ", ".join(f"{amount} {status}" for status, amount in sorted(tally.items()))
    return unless(faults, text or "no rule has a result yet")


def _time(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def check_source(case: JobCase) -> Iterator[CheckResult]:
    record = case.record
    prefix = f"{case.root.folder}{FOLDER}/"
    statuses: dict[str, PollStatus | None] = {}
    for each in islice(case.objects.list(record.bucket, prefix, ""), MOST_FILES):
        name = each.key.removeprefix(prefix).removesuffix(_SUFFIX)
        statuses[name] = read_status(case.objects, record.bucket, each.key)
    if record.policy.source and NAME not in statuses:
        yield fail(
            f"{record.policy.source} is not polled",
            "Deploy with -c live_sources, which lists the services that may be read: see docs/sources.md.",
        )
    if not statuses and not record.policy.source:
        yield ok("the job names no source, and no run file lies in its folder")
    for name, status in statuses.items():
        yield from grade_source(name, status, now=case.site.now, final=record.status.is_final)


def grade_source(name: str, status: PollStatus | None, *, now: float, final: bool) -> Iterator[CheckResult]:
    """Judge one status; ``final`` says that the job has ended."""
    if status is None:
        yield warn(f"{FOLDER}/{name}{_SUFFIX} is no status object", "Did something else write it?")
        return
    what = one_line(status.source, _LONGEST)
    if status.fault:
        since = "" if status.failed_since is None else f" for {span(now - status.failed_since)}"
        yield fail(f"{what} is not read{since}: {one_line(status.fault, _LONGEST)}", _ADVICE)
    elif not final and not status.ended and now - status.through > BEHIND_S:
        yield warn(f"{what} is read up to {span(now - status.through)} ago", "Does the source still have data?")
    else:
        wrote = f"{counted(status.minutes, 'minute')} of metrics, {counted(status.scalars, 'row')} of scalars"
        yield ok(f"{what}: {wrote}")
    if status.not_judged:
        devices = ", ".join(one_line(each, _LONGEST) for each in status.not_judged[:3])
        yield warn(
            f"{what}: {counted(len(status.not_judged), 'accelerator')} whose metrics are not read: {devices}",
            "What they do is not known, and the job is not called healthy.",
        )
    if status.bad:
        listed = "; ".join(f"{one_line(why, _LONGEST)} ({count:,})" for why, count in islice(status.bad.items(), 3))
        yield warn(f"{what}: not read: {listed}", "See docs/sources.md for what each source has.")
