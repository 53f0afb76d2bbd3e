"""The canary on the deployed stack, a training job: created, found, followed, alerted, reported, stopped, ended."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from demo.live.stage import subscribe
from tests.localstack.emulator_kit import deleting, until
from tests.localstack.stack import PATIENCE_S
from trainguard.core.canary_name import CANARY_KIND
from trainguard.core.layout import ProfileRoot
from trainguard.stack.canary import RULE

if TYPE_CHECKING:
    from tests.localstack.stack import Stack

pytestmark = pytest.mark.localstack


def ask(stack: Stack, step: str) -> Any:
    """Ask the canary for a step now, as its schedules do."""
    return stack.invoke("canary", {"step": step, "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")})


def keys(stack: Stack, job: str) -> set[str]:
    """Return the keys of a canary's objects."""
    listed = stack.emulator.client("s3").list_objects_v2(Bucket=stack.deployment.bucket, Prefix=f"{job}/")
    return {each["Key"] for each in listed.get("Contents", [])}


def leave_out_canaries(stack: Stack) -> str:
    """Subscribe a queue with the filter policy that the documents recommend; return its URL."""
    topic = stack.outputs["AlertTopicArn"]
    queue = subscribe(stack.emulator, topic, "alerts-without-canaries")
    sns = stack.emulator.client("sns")
    arns = {
        each["Endpoint"].rpartition(":")[2]: each["SubscriptionArn"]
        for each in sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    }
    policy = f'{{"Kind": [{{"anything-but": ["{CANARY_KIND}"]}}]}}'
    sns.set_subscription_attributes(
        SubscriptionArn=arns["alerts-without-canaries"], AttributeName="FilterPolicy", AttributeValue=policy
    )
    return queue


def test_planted_job_is_followed_alerted_stopped_and_ended(
    stack: Stack,
) -> None:
    queue = leave_out_canaries(stack)
    try:
        job = ask(stack, "plant")["job"]
        early = ask(stack, "look")
        report = f"{ProfileRoot('', job).report}report.json"
        row = until(
            lambda: (
                found
                if {"AlertId", "ReportUri"} <= set(found := stack.watcher.rows(job).get(RULE, {}))
                and report in keys(stack, job)
                else None
            ),
            timeout_s=PATIENCE_S,
            what=f"alert and report of {job}",
        )
        stack.await_quiet()
        running = item(stack, job)
        stops_of_fires = stack.emulator.sagemaker_calls(action="StopTrainingJob", job=job)
        looked = ask(stack, "look")
        until(lambda: "Active" not in item(stack, job), timeout_s=PATIENCE_S, what=f"{job} closed")
        stack.await_quiet()
        ended = ask(stack, "end")
        sqs = stack.emulator.client("sqs")
        unwanted = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1).get("Messages", [])
    finally:
        with deleting():
            stack.emulator.client("sqs").delete_queue(QueueUrl=queue)
    (alert,) = stack.watcher.alerts[job]
    (execution,) = stack.executions(job[:40])  # an execution's name holds so much of it

    assert early["passed"] is False
    assert looked == ended == {"job": job, "passed": True, "missing": []}
    assert running["TrainingJobArn"].endswith(f":training-job/{job}")
    assert (running["Status"], running["StopAllowed"], running["Canary"]) == ("InProgress", True, True)
    assert item(stack, job)["Status"] == "Stopped"
    assert (row["StopDecision"], row["StopMade"], stops_of_fires) == ("dry-run", False, [])
    assert (execution.status, execution.cause) == ("SUCCEEDED", "")
    assert (alert["canary"], alert["rule"], alert["stop"]["made"]) == (True, RULE, False)
    assert row["DebuggerStatus"] == "IssuesFound"
    assert len(stack.emulator.sagemaker_calls(action="StopTrainingJob", job=job)) == 1
    assert unwanted == []
    assert item(stack, job)["ExpiresAt"] > time.time()

    following = ask(stack, "plant")["job"]
    assert following != job
    assert keys(stack, job) == set()
    assert ask(stack, "end")["passed"] is False  # it is stopped, and not yet closed
    until(lambda: "Active" not in item(stack, following), timeout_s=PATIENCE_S, what=f"{following} closed")
    stack.await_quiet()


def item(stack: Stack, job: str) -> dict[str, Any]:
    """Return the canary's item of Jobs."""
    found: dict[str, Any] = stack.table("JobsTable").get_item(Key={"TrainingJobName": job}).get("Item", {"Active": ""})
    return found
