"""`trainguard doctor` on the bucket: what is kept, who listens, and a bucket that is missing."""

import json
import shlex
from typing import Any

import pytest

from tests.functional.cli.doctor.test_doctor_checks import NOTIFICATIONS, account, examined, of_check
from tests.functional.cli.doctor_account import Account
from tests.functional.cli.doctor_stack import BUCKET, REGION, arn_of
from tests.functional.cli.healthy_answers import KEY, Given
from trainguard.cli.doctor.diagnosis import CHECKS
from trainguard.cli.doctor.site import CheckLevel

__all__ = ["account"]


def test_missing_lifecycle_reports_that_all_is_kept(account: Account) -> None:
    account.refuse("s3", "GetBucketLifecycleConfiguration", "NoSuchLifecycleConfiguration", 404)
    (finding,) = of_check(examined(), "lifecycle")
    assert (finding.level, finding.found) == (CheckLevel.OK, "nothing is deleted")


def test_missing_bucket_fails_and_other_checks_go_on(account: Account) -> None:
    account.refuse("s3", "HeadBucket", "404", 404)
    findings = examined()
    (finding,) = of_check(findings, "bucket")
    assert (finding.level, finding.found) == (CheckLevel.FAIL, f"{BUCKET} does not exist")
    assert {finding.check for finding in findings} == {name for name, _ in CHECKS}


def test_other_bucket_is_reported_as_not_connected(account: Account) -> None:
    findings = examined(bucket="elsewhere")
    (listens,) = of_check(findings, "bucket")
    assert listens.level is CheckLevel.FAIL
    assert "not to elsewhere" in listens.found
    assert "-c profile_bucket=elsewhere" in str(listens.advice)
    assert of_check(findings, "event pattern") == []


def test_nonexistent_bucket_is_reported_once(account: Account) -> None:
    for operation in ("HeadBucket", "GetBucketNotificationConfiguration", "GetBucketLifecycleConfiguration"):
        account.refuse("s3", operation, "NoSuchBucket", 404)
    findings = examined(bucket="elsewhere")
    said = [finding.found for finding in findings if finding.level is not CheckLevel.OK]
    assert said == ["the stack listens to trainguard-profiles, not to elsewhere", "elsewhere does not exist"]


THEIRS = {"QueueArn": f"arn:aws:sqs:{REGION}:1:theirs", "Events": ["s3:ObjectCreated:*"]}
OURS = {"QueueArn": arn_of("IngestDoorbellsF1EC7AB4"), "Events": ["s3:ObjectCreated:*"]}
PART = {**OURS, "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": "runs/"}]}}}


def notify(account: Account, **configured: Any) -> None:
    def change(answer: dict[str, Any], given: Given) -> None:
        answer.clear()
        answer.update(configured)

    account.change(*NOTIFICATIONS, change)


@pytest.mark.parametrize("bucket", [None, "elsewhere"])
def test_notifications_of_others_are_kept_by_the_command(account: Account, bucket: str | None) -> None:
    """The stack's own bucket notifies the queue, another one EventBridge."""
    notify(account, QueueConfigurations=[THEIRS])
    (finding,) = of_check(examined(bucket=bucket), "notifications")
    words = shlex.split(str(finding.command))
    written = json.loads(words[words.index("--notification-configuration") + 1])
    named = {"Id": "TrainGuard new objects", **OURS}
    ours: dict[str, Any] = (
        {"QueueConfigurations": [THEIRS, named]} if bucket is None else {"EventBridgeConfiguration": {}}
    )
    assert written == {"QueueConfigurations": [THEIRS], **ours}


@pytest.mark.parametrize(
    ("configured", "level", "part"),
    [
        ({"QueueConfigurations": [OURS]}, CheckLevel.OK, "notifies the queue"),
        ({"EventBridgeConfiguration": {}}, CheckLevel.OK, "to EventBridge"),
        ({"QueueConfigurations": [OURS], "EventBridgeConfiguration": {}}, CheckLevel.WARN, "paid for twice"),
        ({"QueueConfigurations": [PART]}, CheckLevel.FAIL, "does not announce new objects to the queue"),
        ({"QueueConfigurations": [OURS | {"Events": ["s3:ObjectRemoved:*"]}]}, CheckLevel.FAIL, "does not announce"),
    ],
)
def test_notifications_of_the_stack_bucket_are_checked(
    account: Account, configured: dict[str, Any], level: CheckLevel, part: str
) -> None:
    notify(account, **configured)
    (finding,) = of_check(examined(), "notifications")
    assert finding.level is level
    assert part in finding.found


def test_queue_that_denies_s3_fails(account: Account) -> None:
    def refuse(answer: dict[str, Any], given: Given) -> None:
        answer["Attributes"]["Policy"] = json.dumps({"Version": "2012-10-17", "Statement": []})

    account.change("sqs", "GetQueueAttributes", refuse)
    (finding,) = of_check(examined(), "notifications")
    assert (finding.level, finding.found) == (
        CheckLevel.FAIL,
        "the queue's policy does not let S3 send: nothing is evaluated",
    )


@pytest.mark.parametrize(
    ("notifies", "configured", "level", "part"),
    [
        (True, {"QueueConfigurations": [OURS]}, CheckLevel.OK, "notifies the queue of new objects"),
        (True, {"QueueConfigurations": [PART]}, CheckLevel.OK, "below runs/; jobs elsewhere are not evaluated"),
        (True, {"EventBridgeConfiguration": {}}, CheckLevel.FAIL, "does not announce new objects to the queue"),
        (True, {"QueueConfigurations": [OURS], "EventBridgeConfiguration": {}}, CheckLevel.WARN, "paid for twice"),
        (False, {"EventBridgeConfiguration": {}}, CheckLevel.OK, "to EventBridge"),
        (False, {"QueueConfigurations": [OURS]}, CheckLevel.FAIL, "deployed for its events"),
        (False, {"QueueConfigurations": [OURS], "EventBridgeConfiguration": {}}, CheckLevel.WARN, "sends two messages"),
    ],
)
def test_existing_bucket_announces_objects_as_the_stack_expects(
    account: Account, notifies: bool, configured: dict[str, Any], level: CheckLevel, part: str
) -> None:
    account.use_existing_bucket(notifies=notifies)
    notify(account, **configured)
    findings = examined()
    (finding,) = of_check(findings, "notifications")
    assert (finding.level, part in finding.found) == (level, True)
    others = [each for each in findings if each.level is not CheckLevel.OK and each.check != "notifications"]
    assert others == []


def test_silent_existing_bucket_gets_the_command_to_notify(
    account: Account,
) -> None:
    account.use_existing_bucket(notifies=True)
    notify(account, QueueConfigurations=[THEIRS | {"Events": ["s3:ObjectRemoved:*"]}])
    (finding,) = of_check(examined(), "notifications")
    words = shlex.split(str(finding.command))
    theirs, ours = json.loads(words[words.index("--notification-configuration") + 1])["QueueConfigurations"]
    assert (theirs["QueueArn"], ours) == (THEIRS["QueueArn"], {"Id": "TrainGuard new objects", **OURS})
    assert "trainguard notifications" in str(finding.advice)


@pytest.mark.parametrize(
    ("principal", "level"), [("s3.amazonaws.com", CheckLevel.OK), ("events.amazonaws.com", CheckLevel.FAIL)]
)
def test_key_policy_of_the_queue_admits_s3(account: Account, principal: str, level: CheckLevel) -> None:
    def encrypt(answer: dict[str, Any], given: Given) -> None:
        if "KmsMasterKeyId" in given["AttributeNames"]:
            answer["Attributes"]["KmsMasterKeyId"] = KEY

    def let_in(answer: dict[str, Any], given: Given) -> None:
        may = {
            "Effect": "Allow",
            "Principal": {"Service": principal},
            "Action": ["kms:GenerateDataKey*", "kms:Decrypt"],
        }
        answer["Policy"] = json.dumps({"Statement": [may]})

    account.change("sqs", "GetQueueAttributes", encrypt)
    account.change("kms", "GetKeyPolicy", let_in)
    (finding,) = of_check(examined(), "notifications")
    assert finding.level is level
    assert (
        level is CheckLevel.OK or "does not let s3.amazonaws.com use kms:GenerateDataKey, kms:Decrypt" in finding.found
    )
