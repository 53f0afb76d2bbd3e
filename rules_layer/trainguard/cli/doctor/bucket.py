"""The bucket: there, in the stack's Region, announcing its objects, and keeping them long enough."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from botocore.exceptions import ClientError

from trainguard.adapters.aws_errors import error_code
from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult, Level
from trainguard.cli.doctor.site import Site
from trainguard.rules.units import counted

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import LifecycleRuleOutputTypeDef

BUCKET = Check("bucket")
NOTIFICATIONS = Check("notifications")
LIFECYCLE = Check("lifecycle")

_NO_BUCKET = "NoSuchBucket"
_EVENT_BRIDGE = "EventBridgeConfiguration"
_QUEUES = "QueueConfigurations"
_NOTIFYING = (_EVENT_BRIDGE, "TopicConfigurations", _QUEUES, "LambdaFunctionConfigurations")
_CREATED = "s3:ObjectCreated:*"
_S3 = "s3.amazonaws.com"
_FEWEST_DAYS = 7
"""The report at a job's end reads its whole profile, and SageMaker lets a job run for days."""

_UNREADABLE = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes from which an object must be restored before it can be read."""


def check_bucket(site: Site) -> Iterator[CheckResult]:
    """Judge whether the bucket is there, and where."""
    bucket, region = site.bucket, site.deployment.region
    if bucket != site.own_bucket:
        yield BUCKET.fail(
            f"the stack listens to {site.own_bucket}, not to {bucket}",
            f"Deploy it with -c profile_bucket={shlex.quote(bucket)}, or let jobs write to s3://{site.own_bucket}/.",
        )
    with asking("s3:ListBucket"):
        try:
            lies_in = site.clients.s3.head_bucket(Bucket=bucket).get("BucketRegion", region)
        except ClientError as error:
            if error_code(error) not in {"404", _NO_BUCKET}:
                raise
            advice = "Is its name right? The stack's own bucket comes back with `make deploy`."
            yield BUCKET.fail(f"{bucket} does not exist", advice)
            return
    if lies_in != region:
        found = f"{bucket} lies in {lies_in}, the stack in {region}: its events do not arrive here"
        yield BUCKET.fail(found, f"Deploy a stack in {lies_in}, or use a bucket of {region}.")
    elif bucket == site.own_bucket:
        yield BUCKET.ok(f"{bucket} in {lies_in}")


def check_notifications(site: Site) -> Iterator[CheckResult]:
    """Judge whether the bucket's new objects send messages; that there is no bucket was said before."""
    with asking("s3:GetBucketNotification"):
        try:
            answer = dict(site.clients.s3.get_bucket_notification_configuration(Bucket=site.bucket))
        except ClientError as error:
            if error_code(error) != _NO_BUCKET:
                raise
            return
    configured = {name: answer[name] for name in _NOTIFYING if name in answer}
    result = grade_notifications(configured, site)
    if result.level is Level.OK and _EVENT_BRIDGE not in configured and not _lets_s3_send(site):
        found = "the queue's policy does not let S3 send: nothing is evaluated"
        result = NOTIFICATIONS.fail(found, "Deploy the stack again: `make deploy`.")
    yield result


def grade_notifications(configured: Mapping[str, Any], site: Site) -> CheckResult:
    """Judge a bucket's notifications; the command keeps those that it has, as the call replaces them all.

    The stack's own bucket notifies the queue, or EventBridge where its events wake a function, too. An existing one
    sends its events to EventBridge.
    """
    is_own = site.bucket in site.names("AWS::S3::Bucket")
    queues = configured.get(_QUEUES, [])
    to_queue = is_own and any(_takes_all(each, _queue(site)) for each in queues)
    if to_queue and _EVENT_BRIDGE in configured:
        advice = "Deploy the stack again, unless another program needs the bucket's events."
        return NOTIFICATIONS.warn(
            "the bucket notifies the queue and EventBridge: each object is paid for twice", advice
        )
    if to_queue:
        return NOTIFICATIONS.ok("the bucket notifies the queue of new objects")
    if _EVENT_BRIDGE in configured:
        return NOTIFICATIONS.ok("the bucket announces new objects to EventBridge")
    ours = {"QueueArn": _queue(site), "Events": [_CREATED]}
    missing: dict[str, Any] = {_QUEUES: [*queues, ours]} if is_own else {_EVENT_BRIDGE: {}}
    whole = msgspec.json.encode({**configured, **missing}).decode()
    words = ("--bucket", site.bucket, "--notification-configuration", whole)
    target = "the queue" if is_own else "EventBridge"
    return NOTIFICATIONS.fail(
        f"the bucket does not announce new objects to {target}: nothing is evaluated",
        "Switch it on; the command keeps the bucket's other notifications as they are now.",
        site.aws("s3api", "put-bucket-notification-configuration", *words),
    )


def _queue(site: Site) -> str:
    return site.arn("sqs", site.deployment.output("DoorbellQueueUrl").rpartition("/")[2])


def _takes_all(configuration: Mapping[str, Any], queue: str) -> bool:
    """Return whether notifications of all new objects go to a queue; filters leave some of them out."""
    rules = configuration.get("Filter", {}).get("Key", {}).get("FilterRules", [])
    return configuration["QueueArn"] == queue and _CREATED in configuration["Events"] and not rules


def _lets_s3_send(site: Site) -> bool:
    with asking("sqs:GetQueueAttributes"):
        answer = site.clients.sqs.get_queue_attributes(
            QueueUrl=site.deployment.output("DoorbellQueueUrl"), AttributeNames=["Policy"]
        )
    policy = msgspec.json.decode(answer.get("Attributes", {}).get("Policy", "{}"))
    return any(
        each["Effect"] == "Allow" and _S3 in (each["Principal"].get("Service") if each["Principal"] != "*" else ())
        for each in policy.get("Statement", [])
    )


def check_lifecycle(site: Site) -> Iterator[CheckResult]:
    """Judge for how long profiles and reports are kept; that there is no bucket was said before."""
    rules: Sequence[LifecycleRuleOutputTypeDef] = []
    with asking("s3:GetLifecycleConfiguration"):
        try:
            rules = site.clients.s3.get_bucket_lifecycle_configuration(Bucket=site.bucket)["Rules"]
        except ClientError as error:
            if error_code(error) == _NO_BUCKET:
                return
            if error_code(error) != "NoSuchLifecycleConfiguration":
                raise
    yield from grade_lifecycle(rules)


def grade_lifecycle(rules: "Sequence[LifecycleRuleOutputTypeDef]") -> Iterator[CheckResult]:
    """Judge a bucket's lifecycle rules, as far as they concern profiles and what lies under rule-output."""
    enabled = [rule for rule in rules if rule["Status"] == "Enabled"]
    whole = [rule for rule in enabled if _is_of_the_whole_bucket(rule)]
    faults: list[CheckResult] = []
    for rule in enabled:
        name = rule.get("ID", "without a name")
        days = rule.get("Expiration", {}).get("Days")
        if days is not None and days < _FEWEST_DAYS and rule in whole:
            found = f"rule {name} deletes profiles and reports after {counted(days, 'day')}"
            faults.append(
                LIFECYCLE.warn(found, "A long job's report cannot show its first days: keep them for longer.")
            )
        for kind in sorted({str(each.get("StorageClass")) for each in rule.get("Transitions", [])} & _UNREADABLE):
            found = f"rule {name} moves objects to {kind}, from where no report can read them"
            faults.append(LIFECYCLE.warn(found, "Use STANDARD_IA or GLACIER_IR, or spare profiler-output/."))
    yield from LIFECYCLE.unless(faults, _kept(whole, len(enabled) - len(whole)))


def _kept(whole: "Sequence[LifecycleRuleOutputTypeDef]", others: int) -> str:
    days = [rule["Expiration"]["Days"] for rule in whole if "Days" in rule.get("Expiration", {})]
    kept = f"profiles and reports are deleted after {counted(min(days), 'day')}" if days else "nothing is deleted"
    return f"{kept}; {counted(others, 'rule')} for a part of the bucket" if others else kept


def _is_of_the_whole_bucket(rule: "LifecycleRuleOutputTypeDef") -> bool:
    given = rule.get("Filter", {})
    return not rule.get("Prefix") and not any(value for value in given.values())
