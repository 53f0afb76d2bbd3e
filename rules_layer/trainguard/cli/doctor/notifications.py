"""The bucket's notifications: new objects send messages, each one, by the way for which the stack is deployed."""

import json
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from trainguard.adapters.aws_errors import error_code
from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.check import Check, CheckResult, Level
from trainguard.cli.doctor.events import take_objects
from trainguard.cli.doctor.site import Site
from trainguard.cli.services.bucket_notifications import (
    EVENT_BRIDGE,
    Wanted,
    announced,
    read_configuration,
    with_messages,
)
from trainguard.cli.services.queue_policy import S3, S3Sends, s3_sends, services_of

NOTIFICATIONS = Check("notifications")

_DEPLOY = "Deploy the stack again: `make deploy`."
_BY_QUEUE = "-c profile_notifications=queue"
_KEY_SECTION = "docs/deployment.md, section Your own key"
_NEEDED = ("kms:GenerateDataKey", "kms:Decrypt")


def check_notifications(site: Site) -> Iterator[CheckResult]:
    """Judge whether the bucket's new objects send messages; that there is no bucket was said before."""
    with asking("s3:GetBucketNotification"):
        try:
            configured = read_configuration(site.clients.s3, site.bucket, site.deployment.account)
        except ClientError as error:
            if error_code(error) != "NoSuchBucket":
                raise
            return
    result = grade_notifications(configured, site)
    if result.level is Level.OK and announced(configured, queue_arn(site)) is not None:
        faults = [*_faults_of_queue(site), *_faults_of_key(site)]
        yield from NOTIFICATIONS.unless(faults, result.found)
    else:
        yield result


def grade_notifications(configured: Mapping[str, Any], site: Site) -> CheckResult:
    """Judge a bucket's notifications; the command keeps those that it has, as the call replaces them all.

    The stack's own bucket notifies the queue of all its objects, or EventBridge where its events wake a function, too.
    An existing one does what the stack is deployed for: a stack that takes its events has rules for them.
    """
    is_own = site.bucket in site.names("AWS::S3::Bucket")
    prefixes = announced(configured, queue_arn(site))
    takes_events = not is_own and (site.bucket != site.own_bucket or take_objects(site))
    if prefixes is not None and takes_events:
        return _announced_twice(configured)
    if prefixes is not None and not (is_own and prefixes):
        return _announced_to_the_queue(configured, prefixes, is_own=is_own)
    if EVENT_BRIDGE in configured and (takes_events or is_own):
        return NOTIFICATIONS.ok("the bucket announces new objects to EventBridge")
    return _unannounced(site, configured, to_queue=not takes_events, is_own=is_own)


def _announced_to_the_queue(configured: Mapping[str, Any], prefixes: list[str], *, is_own: bool) -> CheckResult:
    below = f" below {', '.join(prefixes)}; jobs elsewhere are not evaluated" if prefixes else ""
    if EVENT_BRIDGE not in configured:
        return NOTIFICATIONS.ok(f"the bucket notifies the queue of new objects{below}")
    if is_own:
        advice = "Deploy the stack again, unless another program needs the bucket's events."
    else:
        advice = (
            "Unless another program needs its events: `trainguard notifications --without-eventbridge --apply`, "
            "with the --prefix that it has."
        )
    return NOTIFICATIONS.warn("the bucket notifies the queue and EventBridge: each object is paid for twice", advice)


def _announced_twice(configured: Mapping[str, Any]) -> CheckResult:
    """Judge a bucket that notifies the queue of a stack with rules for its events."""
    if EVENT_BRIDGE not in configured:
        found = "the bucket notifies the queue, and the stack is deployed for its events: S3 may not send"
        return NOTIFICATIONS.fail(found, f"Deploy it with {_BY_QUEUE}.")
    found = "the bucket notifies the queue and EventBridge, and the stack takes both: each object sends two messages"
    return NOTIFICATIONS.warn(
        found, f"Deploy it with {_BY_QUEUE}, or take one off: `trainguard notifications --remove`."
    )


def _unannounced(site: Site, configured: Mapping[str, Any], *, to_queue: bool, is_own: bool) -> CheckResult:
    wanted = Wanted(stack=site.deployment.stack, queue=queue_arn(site))
    missing = with_messages(configured, wanted) if to_queue else {**configured, EVENT_BRIDGE: {}}
    words = ("--bucket", site.bucket, "--notification-configuration", msgspec.json.encode(missing).decode())
    advice = "Switch it on; the command keeps the bucket's other notifications as they are now."
    if to_queue and not is_own:
        advice += f" So does `trainguard notifications --stack {shlex.quote(site.deployment.stack)} --apply`."
    return NOTIFICATIONS.fail(
        f"the bucket does not announce new objects to {'the queue' if to_queue else 'EventBridge'}: nothing is "
        "evaluated",
        advice,
        site.aws("s3api", "put-bucket-notification-configuration", *words),
    )


def queue_arn(site: Site) -> str:
    """Return the ARN of the evaluation queue."""
    return site.arn("sqs", site.deployment.output("DoorbellQueueUrl").rpartition("/")[2])


def _faults_of_queue(site: Site) -> Iterator[CheckResult]:
    with asking("sqs:GetQueueAttributes"):
        sends = s3_sends(site.clients.sqs, site.deployment.output("DoorbellQueueUrl"))
    if sends is S3Sends.NOTHING:
        yield NOTIFICATIONS.fail("the queue's policy does not let S3 send: nothing is evaluated", _DEPLOY)


def _faults_of_key(site: Site) -> Iterator[CheckResult]:
    """Judge whether the queue's own key lets S3 in: it encrypts the messages, by no role's rights."""
    with asking("sqs:GetQueueAttributes"):
        answer = site.clients.sqs.get_queue_attributes(
            QueueUrl=site.deployment.output("DoorbellQueueUrl"), AttributeNames=["KmsMasterKeyId"]
        )
    key = answer.get("Attributes", {}).get("KmsMasterKeyId")
    if not key:
        return
    with asking("kms:GetKeyPolicy"):
        policy: Mapping[str, Any] = json.loads(site.clients.kms.get_key_policy(KeyId=key)["Policy"])
    lacking = [action for action in _NEEDED if not _lets_s3(policy, action)]
    if lacking:
        found = f"the policy of {key}, which encrypts the queue, does not let {S3} use {', '.join(lacking)}"
        yield NOTIFICATIONS.fail(f"{found}: nothing is evaluated", f"Let it in: {_KEY_SECTION}.")


def _lets_s3(policy: Mapping[str, Any], action: str) -> bool:
    for statement in policy.get("Statement", []):
        named = statement.get("Action", [])
        actions = named if isinstance(named, list) else [named]
        is_for_s3 = statement.get("Effect") == "Allow" and S3 in services_of(statement)
        if is_for_s3 and any(fnmatchcase(action.lower(), pattern.lower()) for pattern in actions):
            return True
    return False
