"""Checks of the bucket: there, in the stack's Region, and keeping its objects long enough."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code
from trainguard.aws.aws_errors import unless as unless_refused
from trainguard.cli.doctor.site import (
    DEPLOY,
    CheckLevel,
    CheckResult,
    Site,
    allows,
    asking,
    fail,
    listed,
    ok,
    unless,
    warn,
)
from trainguard.cli.services.bucket_notifications import (
    EVENT_BRIDGE,
    S3,
    WantedNotifications,
    announced,
    read_configuration,
    s3_sends,
    services_of,
    with_messages,
)
from trainguard.core.units import counted

if TYPE_CHECKING:
    from mypy_boto3_events.type_defs import DescribeRuleResponseTypeDef
    from mypy_boto3_s3.type_defs import LifecycleRuleOutputTypeDef

_S3 = "aws.s3"
SAMPLE_KEYS = (
    "prefix/job/profiler-output/system/incremental/2026071410/1784024700.algo-1.json",
    "prefix/job/profiler-output/framework/pevents/2026071410/1784024759999999_7-algo-1_pythontimeline.json",
    (
        "prefix/job/profiler-output/framework/tensorflow/detailed_profiling/2026071410/1/"
        "algo-1_1784024700000000_1784024759999999.metadata"
    ),
    "prefix/job/profiler-output/system/training_job_end.ts",
    "prefix/job/profiler-output/framework/training_job_end.ts",
)
_NO_BUCKET = "NoSuchBucket"

# The report at a job's end reads its whole profile, and SageMaker lets a job run for days.
_FEWEST_DAYS = 7

# Storage classes from which an object must be restored before it can be read.
_DECODE_ERRORS = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_BY_QUEUE = "-c profile_notifications=queue"
_KEY_SECTION = "docs/deployment.md, section Your own key"
_NEEDED = ("kms:GenerateDataKey", "kms:Decrypt")


def check_rules(site: Site) -> Iterable[CheckResult]:
    """Judge every rule of the stack, and that none is missing."""
    faults: list[CheckResult] = []
    for rule in site.rules:
        name, purpose = rule["Name"], rule.get("Description")
        about = name if purpose is None else f"{name} ({purpose})"
        with asking("events:ListTargetsByRule"):
            targets = site.clients.events.list_targets_by_rule(Rule=name).get("Targets", [])
        if not rule["State"].startswith("ENABLED"):
            enable = site.aws("events", "enable-rule", "--name", name)
            faults.append(fail(f"{about} is {rule['State']}", "Enable it.", enable))
        if not targets:
            faults.append(fail(f"{about} has no target", DEPLOY))
    sources = {source for rule in site.rules for source in _sources(rule)}
    wanted = {"state changes of training jobs": "aws.sagemaker"}
    if site.names("AWS::S3::Bucket"):
        wanted = {"new objects": _S3, **wanted}
    missing = [what for what, source in wanted.items() if source not in sources]
    if not any(rule.get("ScheduleExpression") for rule in site.rules):
        missing.append("the scheduler every minute")
    faults += [fail(f"there is no rule for {what}", DEPLOY) for what in missing]
    return unless(faults, f"{counted(len(site.rules), 'rule')} enabled, each with a target")


def check_pattern(site: Site) -> Iterable[CheckResult]:
    """Check by EventBridge's own matching whether a profile's object in the stack's bucket would be evaluated."""
    if site.bucket != site.deployment.bucket:
        return ()
    patterns = [rule["EventPattern"] for rule in site.rules if _S3 in _sources(rule)]
    if not patterns and not site.names("AWS::S3::Bucket"):
        return ()
    silent = [key for key in SAMPLE_KEYS if not any(_matches(site, pattern, key) for pattern in patterns)]
    faults = [
        fail(f"no rule matches s3://{site.bucket}/{key}", f"Such objects send no message. {DEPLOY}") for key in silent
    ]
    return unless(faults, f"{counted(len(SAMPLE_KEYS), 'kind')} of objects in {site.bucket} would be evaluated")


def _matches(site: Site, pattern: str, key: str) -> bool:
    event = {
        "version": "0",
        "id": "00000000-0000-0000-0000-000000000000",
        "detail-type": "Object Created",
        "source": "aws.s3",
        "account": site.deployment.account,
        "time": datetime.fromtimestamp(site.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": site.deployment.region,
        "resources": [f"arn:{site.deployment.partition}:s3:::{site.bucket}"],
        "detail": {"bucket": {"name": site.bucket}, "object": {"key": key, "size": 1}, "reason": "PutObject"},
    }
    with asking("events:TestEventPattern"):
        answer = site.clients.events.test_event_pattern(EventPattern=pattern, Event=msgspec.json.encode(event).decode())
    return answer.get("Result", False)


def _sources(rule: "DescribeRuleResponseTypeDef") -> Sequence[str]:
    """Return whose events a rule's pattern matches; nobody's of a schedule."""
    sources: list[str] = msgspec.json.decode(rule.get("EventPattern") or "{}").get("source", [])
    return sources


def check_bucket(site: Site) -> Iterator[CheckResult]:
    bucket, region = site.bucket, site.deployment.region
    if bucket != site.deployment.bucket:
        yield fail(
            f"the stack listens to {site.deployment.bucket}, not to {bucket}",
            f"Deploy it with -c profile_bucket={shlex.quote(bucket)}, or let jobs write to s3://{site.deployment.bucket}/.",
        )
    with asking("s3:ListBucket"):
        found = unless_refused({"404", _NO_BUCKET}, lambda: site.clients.s3.head_bucket(Bucket=bucket))
    if found is None:
        advice = "Is its name right? The stack's own bucket comes back with `make deploy`."
        yield fail(f"{bucket} does not exist", advice)
        return
    lies_in = found.get("BucketRegion", region)
    if lies_in != region:
        yield fail(
            f"{bucket} lies in {lies_in}, the stack in {region}: its events do not arrive here",
            f"Deploy a stack in {lies_in}, or use a bucket of {region}.",
        )
    elif bucket == site.deployment.bucket:
        yield ok(f"{bucket} in {lies_in}")


def check_lifecycle(site: Site) -> Iterable[CheckResult]:
    """Judge for how long profiles and reports are kept; a missing bucket was reported before."""
    rules: Sequence[LifecycleRuleOutputTypeDef] = []
    with asking("s3:GetLifecycleConfiguration"):
        try:
            rules = site.clients.s3.get_bucket_lifecycle_configuration(Bucket=site.bucket)["Rules"]
        except ClientError as error:
            if error_code(error) == _NO_BUCKET:
                return ()
            if error_code(error) != "NoSuchLifecycleConfiguration":
                raise
    enabled = [rule for rule in rules if rule["Status"] == "Enabled"]
    whole = [rule for rule in enabled if not rule.get("Prefix") and not any(rule.get("Filter", {}).values())]
    faults: list[CheckResult] = []
    for rule in enabled:
        name = rule.get("ID", "without a name")
        days = rule.get("Expiration", {}).get("Days")
        if days is not None and days < _FEWEST_DAYS and rule in whole:
            found = f"rule {name} deletes profiles and reports after {counted(days, 'day')}"
            faults.append(warn(found, "A long job's report cannot show its first days: keep them for longer."))
        for kind in sorted({str(each.get("StorageClass")) for each in rule.get("Transitions", [])} & _DECODE_ERRORS):
            found = f"rule {name} moves objects to {kind}, from where no report can read them"
            faults.append(warn(found, "Use STANDARD_IA or GLACIER_IR, or spare profiler-output/."))
    least = min((rule["Expiration"]["Days"] for rule in whole if "Days" in rule.get("Expiration", {})), default=None)
    kept = "nothing is deleted" if least is None else f"profiles and reports are deleted after {counted(least, 'day')}"
    others = len(enabled) - len(whole)
    return unless(faults, f"{kept}; {counted(others, 'rule')} for a part of the bucket" if others else kept)


def check_notifications(site: Site) -> Iterator[CheckResult]:
    """Judge whether the bucket's new objects send messages; a missing bucket was reported before."""
    with asking("s3:GetBucketNotification"):
        configured = unless_refused(
            {_NO_BUCKET}, lambda: read_configuration(site.clients.s3, site.bucket, site.deployment.account)
        )
    if configured is None:
        return
    result = _grade_notifications(configured, site)
    if result.level is CheckLevel.OK and announced(configured, site.deployment.queue_arn) is not None:
        with asking("sqs:GetQueueAttributes"):
            sends = s3_sends(site.clients.sqs, site.queue_url)
        refused = "the queue's policy does not let S3 send: nothing is evaluated"
        faults = [fail(refused, DEPLOY)] if sends == "no bucket" else []
        yield from unless([*faults, *_faults_of_key(site)], result.found)
    else:
        yield result


def _grade_notifications(configured: Mapping[str, Any], site: Site) -> CheckResult:
    """Judge a bucket's notifications; the command keeps those that it has, as the call replaces them all.

    The stack's own bucket notifies the queue of all its objects, or EventBridge where its events start a function, too.
    An existing one does what the stack is deployed for: a stack that reads its events has rules for them.
    """
    is_own = site.bucket in site.names("AWS::S3::Bucket")
    prefixes = announced(configured, site.deployment.queue_arn)
    takes_events = not is_own and (
        site.bucket != site.deployment.bucket or any(_S3 in _sources(rule) for rule in site.rules)
    )
    if prefixes is not None and takes_events:
        if EVENT_BRIDGE not in configured:
            found = "the bucket notifies the queue, and the stack is deployed for its events: S3 may not send"
            return fail(found, f"Deploy it with {_BY_QUEUE}.")
        found = (
            "the bucket notifies the queue and EventBridge, and the stack takes both: each object sends two messages"
        )
        return warn(found, f"Deploy it with {_BY_QUEUE}, or take one off: `trainguard notifications --remove`.")
    if prefixes is not None and not (is_own and prefixes):
        return _announced_to_the_queue(configured, prefixes, is_own=is_own)
    if EVENT_BRIDGE in configured and (takes_events or is_own):
        return ok("the bucket announces new objects to EventBridge")
    return _unannounced(site, configured, to_queue=not takes_events, is_own=is_own)


def _announced_to_the_queue(configured: Mapping[str, Any], prefixes: list[str], *, is_own: bool) -> CheckResult:
    below = f" below {', '.join(prefixes)}; jobs elsewhere are not evaluated" if prefixes else ""
    if EVENT_BRIDGE not in configured:
        return ok(f"the bucket notifies the queue of new objects{below}")
    if is_own:
        advice = "Deploy the stack again, unless another program needs the bucket's events."
    else:
        advice = (
            "Unless another program needs its events: `trainguard notifications --without-eventbridge --apply`, "
            "with the --prefix that it has."
        )
    return warn("the bucket notifies the queue and EventBridge: each object is paid for twice", advice)


def _unannounced(site: Site, configured: Mapping[str, Any], *, to_queue: bool, is_own: bool) -> CheckResult:
    wanted = WantedNotifications(stack=site.deployment.stack, queue=site.deployment.queue_arn)
    missing = with_messages(configured, wanted) if to_queue else {**configured, EVENT_BRIDGE: {}}
    words = ("--bucket", site.bucket, "--notification-configuration", msgspec.json.encode(missing).decode())
    advice = "Switch it on; the command keeps the bucket's other notifications as they are now."
    if to_queue and not is_own:
        advice += f" So does `trainguard notifications --stack {shlex.quote(site.deployment.stack)} --apply`."
    return fail(
        f"the bucket does not announce new objects to {'the queue' if to_queue else 'EventBridge'}: nothing is "
        "evaluated",
        advice,
        site.aws("s3api", "put-bucket-notification-configuration", *words),
    )


def _faults_of_key(site: Site) -> Iterator[CheckResult]:
    """Judge whether the queue's own key lets S3 in: it encrypts the messages, by no role's rights."""
    with asking("sqs:GetQueueAttributes"):
        answer = site.clients.sqs.get_queue_attributes(QueueUrl=site.queue_url, AttributeNames=["KmsMasterKeyId"])
    key = answer.get("Attributes", {}).get("KmsMasterKeyId")
    if not key:
        return
    lets_in = [statement for statement in listed(site.key_policy(key).get("Statement")) if S3 in services_of(statement)]
    lacking = [action for action in _NEEDED if not any(allows(statement, action) for statement in lets_in)]
    if lacking:
        found = f"the policy of {key}, which encrypts the queue, does not let {S3} use {', '.join(lacking)}"
        yield fail(f"{found}: nothing is evaluated", f"Let it in: {_KEY_SECTION}.")
