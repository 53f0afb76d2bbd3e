"""The deployed stack stops safely: announced, after a grace time, under a rate limit; chats and bus are notified."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.localstack.assemblies import MAX_STOPS_PER_HOUR
from tests.localstack.emulator_kit import deleting, receive, until
from tests.localstack.stack import PATIENCE_S, Job, Stack
from tests.localstack.test_deployed_stack import FIRES_BY_MINUTE, RULE, fire_of
from trainguard.core.timestamps import iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.localstack

GRACE_S = 10
# The emulator drops parts of a second from the time until which it waits, and from how long that is.
WAITS_SHORT_S = 2.0
# What is published takes a moment to come to a queue.
LAST_WORDS_S = 5.0

WAITING = "ApproximateNumberOfMessages"
ITEM = {"Purpose": "stops", "Id": "last-hour"}


def graced(stack: Stack, name: str, **tags: str) -> Job:
    """Return a job whose rule has fired, and that is warned of its stop."""
    job = Job(stack, "cpu_bottleneck", name, allowed=True, tags={"stop-grace": f"{GRACE_S}s", **tags})
    job.upload(until_minute=FIRES_BY_MINUTE)
    row = job.await_row(RULE, StopDecision="grace")
    assert row["StopMade"] is False
    return job


def heard(job: Job, kind: str) -> dict[str, Any]:
    """Wait for the alert of a kind."""
    return until(
        lambda: next((dict(alert) for alert in job.alerts(RULE) if alert["kind"] == kind), None),
        timeout_s=PATIENCE_S,
        what=f"the {kind} of {job.name}",
    )


@contextmanager
def listening(stack: Stack) -> Iterator[list[dict[str, Any]]]:
    """Subscribe to chat topic and event bus for the time of a ``with`` block; the list holds what both said."""
    sqs, sns, events = (stack.emulator.client(name) for name in ("sqs", "sns", "events"))
    queue = sqs.create_queue(QueueName="listens-to-all")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    subscribed = sns.subscribe(
        TopicArn=stack.outputs["ChatTopicArn"], Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"}
    )["SubscriptionArn"]
    pattern = json.dumps({"source": ["trainguard"], "detail-type": ["TrainGuard Finding"]})
    events.put_rule(Name="listens-to-all", EventPattern=pattern)
    events.put_targets(Rule="listens-to-all", Targets=[{"Id": "queue", "Arn": arn}])
    said: list[dict[str, Any]] = []
    try:
        yield said
        deadline = time.time() + LAST_WORDS_S

        def heard_out() -> bool:
            said.extend(json.loads(message["Body"]) for message in receive(stack.emulator, queue))
            counted = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=[WAITING])["Attributes"]
            return time.time() >= deadline and int(counted[WAITING]) == 0

        until(heard_out, timeout_s=PATIENCE_S, what="the last of what was said")
    finally:
        events.remove_targets(Rule="listens-to-all", Ids=["queue"])
        events.delete_rule(Name="listens-to-all")
        sns.unsubscribe(SubscriptionArn=subscribed)
        with deleting():
            sqs.delete_queue(QueueUrl=queue)


def test_grace_time_is_announced_and_stops_the_job_at_its_end(stack: Stack) -> None:
    with listening(stack) as said:
        job = graced(stack, "grace-to-the-end")
        warning = heard(job, "warning")
        outcome = heard(job, "fire")
        row = job.await_row(RULE, StopDecision="stop", AlertId=None)
        job.await_closing()
        job.feed.stop()
        job.upload_rest()
        job.await_closed()

    stop_at = datetime.fromisoformat(warning["stop"]["stop_at"]).timestamp()
    assert (warning["stop"]["decision"], warning["stop"]["made"]) == ("grace", False)
    assert datetime.fromisoformat(row["StopAt"]).timestamp() >= stop_at - WAITS_SHORT_S
    (call,) = stack.emulator.sagemaker_calls(action="StopTrainingJob", job=job.name)
    assert datetime.fromisoformat(call["time"]).timestamp() >= stop_at - WAITS_SHORT_S
    assert (job.stops(), job.status(), row["StopMade"]) == ([None], "Stopped", True)
    assert (outcome["stop"]["made"], row["Action"], row["StopFireId"]) == (True, outcome["action"], row["FireId"])
    assert warning["alert_id"] == f"{outcome['alert_id']}-warning"
    ours = [each for each in said if job.name in json.dumps(each)]
    events = [each["detail"] for each in ours if each.get("source") == "trainguard"]
    chats = [each for each in ours if each["source"] == "custom"]
    assert sorted(event["kind"] for event in events if event["rule"] == RULE) == ["fire", "warning"]
    assert [event for event in events if event["kind"] == "warning"] == [warning]
    assert {chat["metadata"]["threadId"] for chat in chats if RULE in chat["content"]["keywords"]} == {row["FireId"]}


@pytest.mark.thorough
def test_tag_removed_in_grace_time_keeps_the_job_and_notifies(
    stack: Stack,
) -> None:
    job = graced(stack, "grace-and-mercy")
    arn = f"arn:aws:sagemaker:us-east-1:000000000000:training-job/{job.name}"
    stack.emulator.client("sagemaker").delete_tags(ResourceArn=arn, TagKeys=["trainguard:stop-on-fire"])
    outcome = heard(job, "fire")
    row = job.await_row(RULE, StopDecision="refused")
    assert (job.stops(), job.status()) == ([], "InProgress")
    assert "has not opted in" in row["StopWhy"]
    assert (outcome["stop"]["made"], outcome["stop"]["why"]) == (False, row["StopWhy"])
    job.end()


@pytest.mark.thorough
def test_staged_rule_fires_in_its_row_and_pages_nobody(stack: Stack) -> None:
    job = Job(stack, "cpu_bottleneck", "staged", allowed=True, tags={"staged": RULE})
    job.upload(until_minute=FIRES_BY_MINUTE)
    row = job.await_row(RULE, Action="staged: nobody paged", ReportUri=None)
    stack.await_quiet()
    assert (row["StopDecision"], row["StopWhy"]) == ("refused", f"{RULE} is staged")
    assert (job.stops(), job.alerts(RULE)) == ([], [])
    job.end()


@contextmanager
def full_hour(stack: Stack) -> Iterator[None]:
    """Let the hour have had all its stops, for the time of a ``with`` block."""
    table = stack.table("BookkeepingTable")
    before = table.get_item(Key=ITEM).get("Item")
    stops = {f"fire-{number}": {"Job": "other", "At": iso_time(time.time())} for number in range(MAX_STOPS_PER_HOUR)}
    table.put_item(Item={**ITEM, "Version": int(before["Version"]) + 1 if before else 1, "Stops": stops})
    try:
        yield
    finally:
        table.put_item(Item=before) if before else table.delete_item(Key=ITEM)


@pytest.mark.thorough
def test_fire_in_a_full_hour_is_refused_alerted_and_recorded(
    stack: Stack,
) -> None:
    job = Job(stack, "cpu_bottleneck", "over-the-limit", allowed=True)
    until(job.item, timeout_s=PATIENCE_S, what="the job's item")
    fire = fire_of(job, "fire-over-the-limit", rule=RULE, firedAt=iso_time(datetime.now(UTC).timestamp()))
    with full_hour(stack):
        execution = stack.start_execution(f"{RULE}-over-the-limit", fire)
    stack.await_quiet()
    row = job.rows()[RULE]
    assert (execution.status, execution.cause) == ("SUCCEEDED", "")
    assert job.stops() == []
    assert (row["StopDecision"], row["StopMade"]) == ("refused", False)
    assert row["StopWhy"].startswith(f"this deployment makes at most {MAX_STOPS_PER_HOUR} stops an hour")
    (alert,) = job.alerts(RULE)
    assert (alert["stop"]["made"], alert["stop"]["why"]) == (False, row["StopWhy"])
    job.finish()
