"""`trainguard notifications`: an existing bucket notifies the queue beside all that it did, if a person wants that."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.functional.cli.doctor.test_doctor_bucket import OURS, THEIRS, notify
from tests.functional.cli.doctor.test_doctor_checks import account
from tests.functional.cli.doctor_account import Account
from tests.functional.cli.doctor_stack import ACCOUNT, BUCKET, REGION
from tests.functional.cli.healthy_answers import Given
from trainguard.cli.main import app

__all__ = ["account"]
NAMED = {"Id": "TrainGuard new objects", **OURS}
REMOVED = THEIRS | {"Events": ["s3:ObjectRemoved:*"]}
EVENTS: dict[str, Any] = {"EventBridgeConfiguration": {}}


@pytest.fixture
def written(account: Account) -> list[Given]:
    """Return what is written to an existing bucket whose queue S3 may send to."""
    puts: list[Given] = []

    def put(given: Given) -> dict[str, Any]:
        puts.append(given)
        return {}

    account.answers["s3", "PutBucketNotificationConfiguration"] = put
    account.use_existing_bucket(notifies=True)
    notify(account, QueueConfigurations=[REMOVED], **EVENTS)
    return puts


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["notifications", "--region", REGION, *words])


def document(*words: str) -> Any:
    result = run("--json", *words)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_notification_change_is_shown_but_not_written(written: list[Given]) -> None:
    said = document()
    assert (said["changed"], said["written"], written) == (True, False, [])
    assert said["before"] == {"QueueConfigurations": [REMOVED], **EVENTS}
    assert said["after"] == {"QueueConfigurations": [REMOVED, NAMED], **EVENTS}
    result = run()
    assert "EventBridge stays on" in result.stderr
    assert "aws s3api put-bucket-notification-configuration" in result.stdout


def test_confirmed_change_writes_the_whole_to_the_owners_bucket(written: list[Given]) -> None:
    said = document("--without-eventbridge", "--apply", "--yes")
    (put,) = written
    assert (said["written"], put["Bucket"], put["ExpectedBucketOwner"]) == (True, BUCKET, ACCOUNT)
    assert put["NotificationConfiguration"] == said["after"] == {"QueueConfigurations": [REMOVED, NAMED]}


@pytest.mark.parametrize("says_yes", [True, False])
def test_given_a_person_when_asked_then_their_answer_decides(
    written: list[Given], monkeypatch: pytest.MonkeyPatch, says_yes: bool
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda _: says_yes)
    assert app(["notifications", "--region", REGION, "--apply"], standalone_mode=False) == 0
    assert len(written) == says_yes


def test_given_nobody_to_ask_when_applied_then_it_is_refused(written: list[Given]) -> None:
    result = run("--apply")
    assert (result.exit_code, written) == (2, [])
    assert "Add --yes." in result.stderr


def test_concurrent_notification_change_writes_nothing(account: Account, written: list[Given]) -> None:
    readings: list[Given] = []

    def change(answer: dict[str, Any], given: Given) -> None:
        readings.append(given)
        if len(readings) > 1:
            answer["QueueConfigurations"] = []

    account.change("s3", "GetBucketNotificationConfiguration", change)
    result = run("--apply", "--yes")
    assert (result.exit_code, written) == (2, [])
    assert "have changed in the meantime" in result.stderr


@pytest.mark.parametrize(
    ("configured", "words", "part"),
    [
        ({"QueueConfigurations": [THEIRS]}, (), "S3 refuses a second target for one object"),
        ({"QueueConfigurations": [THEIRS]}, ("--prefix", "runs/"), "S3 refuses a second target"),
    ],
)
def test_other_target_of_new_objects_is_refused_in_words(
    account: Account, written: list[Given], configured: dict[str, Any], words: tuple[str, ...], part: str
) -> None:
    notify(account, **configured)
    result = run(*words, "--apply", "--yes")
    assert (result.exit_code, written) == (2, [])
    assert part in result.stderr
    assert str(THEIRS["QueueArn"]) in result.stderr


def test_stack_that_takes_events_says_what_to_deploy(account: Account) -> None:
    account.use_existing_bucket(notifies=False)
    notify(account, **EVENTS)
    result = run()
    assert result.exit_code == 2
    assert "-c profile_notifications=queue" in result.stderr


def test_bucket_of_the_stack_is_left_to_the_stack(account: Account) -> None:
    result = run("--remove", "--apply", "--yes")
    assert result.exit_code == 2
    assert "makes its bucket and its notifications" in result.stderr


def test_removal_keeps_notifications_of_others(account: Account, written: list[Given]) -> None:
    notify(account, QueueConfigurations=[NAMED, REMOVED], **EVENTS)
    assert not document()["changed"]
    said = document("--remove", "--apply", "--yes")
    assert written[0]["NotificationConfiguration"] == said["after"] == {"QueueConfigurations": [REMOVED], **EVENTS}
