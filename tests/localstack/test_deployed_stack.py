"""The deployed stack, end to end: from an object in the bucket to the alert, the stop and the report."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.localstack.emulator_kit import batch, object_message, receive, until
from tests.localstack.stack import EVENTS, PATIENCE_S, Job, Stack
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES

pytestmark = pytest.mark.localstack

RULE = "CPUBottleneck"
# By then the recording ``cpu_bottleneck`` has fired `RULE`.
FIRES_BY_MINUTE = 4.5

REFERENCE_MINUTES = 7.3
STARVED = "LowGPUUtilization"


@pytest.fixture(scope="module")
def reference(stack: Stack) -> Job:
    """A job whose every message arrived once and in order, and that has ended."""
    job = Job(stack, "cpu_bottleneck", "reference")
    job.upload(until_minute=REFERENCE_MINUTES)
    job.end()
    return job


def fire_of(job: Job, fire_id: str, **changes: object) -> dict[str, object]:
    """Return the input of an execution, as the outbox would give it."""
    report = f"s3://{job.stack.deployment.bucket}/{job.name}/rule-output/TrainGuardReport/report.json"
    described = job.stack.emulator.client("sagemaker").describe_training_job(TrainingJobName=job.name)
    recorded = json.loads((EVENTS / "decide_stop.json").read_text(encoding="utf-8"))
    own = {
        "job": job.name,
        "jobArn": described["TrainingJobArn"],
        "jobCreatedAt": described["CreationTime"].isoformat(),
        "bucket": job.stack.deployment.bucket,
        "prefix": "",
        "reportUri": report,
        "fireId": fire_id,
        "alertId": fire_id,
        "firedAt": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return {**recorded, **own, **changes}


def test_opted_in_job_is_alerted_stopped_and_reported_once(stack: Stack) -> None:
    job = Job(stack, "cpu_bottleneck", "bottleneck-stop-allowed", allowed=True)
    job.upload(until_minute=FIRES_BY_MINUTE)
    row = job.await_row(RULE, Status="FIRED", AlertId=None, ReportUri=None)
    job.await_closing()
    job.feed.stop()
    job.upload_rest()
    job.await_closed()

    (alert,) = job.alerts(RULE)
    (execution,) = job.fires(RULE)
    report = job.report()
    assert job.stops() == [None]
    assert job.status() == "Stopped"
    assert row["Action"].startswith("Training job stopped: ")
    assert (alert["alert_id"], alert["action"]) == (row["AlertId"], row["Action"])
    assert alert["stop"]["made"] is True
    assert (execution.status, execution.cause) == ("SUCCEEDED", "")
    assert report is not None
    assert report["final"] is True
    assert RULE in report["fired"]
    assert row["ReportUri"] == alert["report_page"]
    # Rows of the fire path outlive what the evaluator writes at the end.
    assert job.rows()[RULE]["Action"] == row["Action"]


@pytest.mark.thorough
def test_two_starved_nodes_without_the_tag_alert_once_unstopped(stack: Stack) -> None:
    job = Job(stack, "slow_data_loader", "slow-loader")
    job.upload(until_minute=20.5)
    row = job.await_row(STARVED, Status="FIRED", AlertId=None, ReportUri=None)
    job.await_row(f"{STARVED}#algo-1", Status="FIRED")
    job.await_row(f"{STARVED}#algo-2", Status="FIRED")
    stack.await_quiet()

    (alert,) = job.alerts(STARVED)
    assert len(job.fires(STARVED)) == 1
    assert job.stops() == []
    assert job.status() == "InProgress"
    assert "not opted in" in row["Action"]
    assert alert["stop"] == {"made": False, "decision": "refused", "why": alert["stop"]["why"], "stop_at": None}
    job.finish()
    job.await_closed()
    assert len(job.alerts(STARVED)) == 1


@pytest.mark.thorough
def test_repeated_messages_after_a_fire_do_nothing_twice(stack: Stack) -> None:
    job = Job(stack, "cpu_bottleneck", "delivered-twice", allowed=True)
    keys = job.upload(until_minute=FIRES_BY_MINUTE)
    job.await_row(RULE, AlertId=None, ReportUri=None)
    job.await_applied(keys)
    stack.await_quiet()
    cursors = job.node("algo-1#system")["Cursors"]
    bodies = [object_message(stack.deployment.bucket, key) for key in keys]

    for body in bodies:
        stack.announce(body)
    replayed = stack.invoke("evaluate_objects", batch(bodies, deliveries=2))
    stack.await_quiet()

    assert replayed == {"batchItemFailures": []}
    assert len(job.fires(RULE)) == len(job.alerts(RULE)) == len(job.stops()) == 1
    assert job.node("algo-1#system")["Cursors"] == cursors


@pytest.mark.thorough
def test_foreign_messages_beside_ours_are_not_returned(
    stack: Stack,
) -> None:
    job = Job(stack, "cpu_bottleneck", "among-strangers")
    letters_before = stack.watcher.dead_letters()
    with stack.doorbells_off():
        keys = [key for key in job.upload(until_minute=FIRES_BY_MINUTE) if "/system/" in key]
    bucket = stack.deployment.bucket
    strangers = [
        "not JSON at all",
        '{"trainguard":"task","job":"among-strangers"}',
        object_message(bucket, f"{job.name}/rule-output/ProfilerReport-1/{keys[0]}"),
        object_message(bucket, "holiday.json"),
        object_message(bucket, f"elsewhere/{keys[0]}"),
    ]

    answer = stack.invoke("evaluate_objects", batch([*strangers, *(object_message(bucket, key) for key in keys)]))
    for stranger in strangers:
        stack.announce(stranger)
    stack.await_quiet()

    assert answer == {"batchItemFailures": []}
    job.await_applied(keys)
    assert job.node("algo-1#system")["Version"] == 1
    assert stack.watcher.dead_letters() == letters_before


@pytest.mark.thorough
def test_objects_without_messages_are_found_by_a_later_listing(stack: Stack, reference: Job) -> None:
    job = Job(stack, "cpu_bottleneck", "rarely-delivered", start=reference.feed.start)
    job.await_applied(job.upload(until_minute=3.3))
    with stack.doorbells_off():
        (lost,) = [key for key in job.upload(until_minute=4.3) if "/system/" in key]
    job.await_applied([lost, *job.upload(until_minute=REFERENCE_MINUTES)])

    assert job.node("algo-1#system")["Counters"].get("gaps", 0) == 0
    job.end()
    assert job.verdicts() == reference.verdicts()


def test_job_ended_without_marks_is_closed_by_sagemaker(
    stack: Stack,
) -> None:
    job = Job(stack, "slow_steps", "without-marks")
    keys = job.upload(until_minute=3.2)
    assert not any(key.endswith(".ts") for key in keys)

    job.finish("Failed")
    job.await_closed()

    item, report = job.item(), job.report()
    assert (item["Status"], item["Closing"]) == ("Failed", True)
    assert report is not None
    assert (report["final"], report["fired"], report["job"]["status"]) == (True, [], "Failed")
    assert {row["DebuggerStatus"] for row in job.rows().values()} == {"NoIssuesFound"}
    assert all(row["ExpiresAt"] > job.feed.start for row in job.rows().values())
    assert stack.watcher.progress(job.name).applied(keys) == len(keys)


@pytest.mark.thorough
def test_scheduler_writes_job_rows_of_an_active_job(stack: Stack) -> None:
    with stack.clock_off():
        job = Job(stack, "slow_steps", "ticked-by-hand")
        job.await_applied(job.upload(until_minute=3.2))
        job.await_row("CPUBottleneck#algo-1")
        stack.await_quiet()
        assert {target.partition("#")[2] for target in job.rows()} == {"algo-1"}

        stack.invoke("scheduler", json.loads((EVENTS / "scheduler.json").read_text(encoding="utf-8")))

        rows = until(lambda: rows_of_the_job(job), timeout_s=PATIENCE_S, what=f"every row of {job.name}")
    assert set(rows) == {*RULE_NAMES, PROFILER_REPORT}
    assert all(row["Reason"] for row in rows.values())


def rows_of_the_job(job: Job) -> dict[str, dict[str, Any]] | None:
    """Return the rows of the whole job, once as many are there as there are rules, and the report's."""
    rows = {target: row for target, row in job.rows().items() if "#" not in target}
    return rows if len(rows) > len(RULE_NAMES) else None


DIES = """
import os
from trainguard_handler import handler as own

def handler(event, context):
    if event["job"] == "kills-its-look":
        os._exit(1)
    return own(event, context)
"""


def letter_of(job: Job) -> dict[str, Any] | None:
    """Receive letters, and return the one that holds a look at the job, once it is there."""
    messages = receive(job.stack.emulator, job.stack.outputs["EventDeadLetterQueueUrl"])
    letters = [json.loads(message["Body"]) for message in messages]
    return next((each for each in letters if each.get("requestPayload", {}).get("job") == job.name), None)


@pytest.mark.thorough
def test_job_that_kills_its_run_is_named_and_others_reconciled(
    stack: Stack,
) -> None:
    with stack.function_replaced("reconcile_job", DIES):
        deadly = Job(stack, "slow_steps", "kills-its-look")
        other = Job(stack, "slow_steps", "beside-a-deadly-job")
        for job in (deadly, other):
            job.upload(until_minute=0.1)
        assert other.await_row("CPUBottleneck")["Status"] == "WAITING_FOR_DATA"
        letter = until(lambda: letter_of(deadly), timeout_s=PATIENCE_S, what=f"a dead letter of {deadly.name}")
        assert rows_of_the_job(deadly) is None
    assert letter["requestContext"]["condition"] == "RetriesExhausted"
    assert deadly.await_row("CPUBottleneck")["Status"] == "WAITING_FOR_DATA"


def test_clock_of_the_stack_writes_rows_unasked(
    stack: Stack,
) -> None:
    job = Job(stack, "slow_steps", "ticked-by-clock")

    job.upload(until_minute=0.1)

    assert job.await_row("CPUBottleneck")["Status"] == "WAITING_FOR_DATA"


@pytest.mark.thorough
def test_alert_of_an_already_ended_job_says_nothing_was_stopped(
    stack: Stack,
) -> None:
    job = Job(stack, "cpu_bottleneck", "ended-since", allowed=True)
    with stack.doorbells_off():
        job.upload(until_minute=FIRES_BY_MINUTE)
    job.finish()

    row = job.await_row(RULE, AlertId=None, ReportUri=None)
    job.await_closed()

    (alert,) = job.alerts(RULE)
    (execution,) = job.fires(RULE)
    assert job.stops() == []
    assert alert["stop"]["made"] is False
    assert row["Action"] == alert["action"]
    assert "is Completed, not InProgress" in row["Action"]
    assert (execution.status, execution.cause) == ("SUCCEEDED", "")


@pytest.mark.thorough
def test_unbuildable_report_keeps_stop_and_alert_and_fails_alone(
    stack: Stack,
) -> None:
    job = Job(stack, "cpu_bottleneck", "without-report", allowed=True)
    until(job.item, timeout_s=PATIENCE_S, what="the job's item")
    with stack.function_replaced("build_report", "def handler(event, context):\n    raise OSError('no bucket')\n"):
        execution = stack.start_execution(f"{RULE}-without-report", fire_of(job, "fire-without-report", rule=RULE))
        (report,) = stack.await_ended(f"{RULE}-without-report", "ReportStateMachineArn")

    row = job.rows()[RULE]
    stack.await_quiet()
    assert (execution.status, report.status) == ("SUCCEEDED", "FAILED")
    assert report.cause.startswith("BuildFromState: ")
    assert "no bucket" in report.cause
    assert job.stops() == [None]
    assert [alert["alert_id"] for alert in job.alerts(RULE)] == ["fire-without-report"]
    assert row["Action"].startswith("Training job stopped: ")
    assert "ReportUri" not in row


@pytest.mark.thorough
def test_unsent_alert_is_in_the_row_and_fails_the_execution(
    stack: Stack,
) -> None:
    job = Job(stack, "cpu_bottleneck", "without-topic", allowed=True)
    until(job.item, timeout_s=PATIENCE_S, what="the job's item")
    with stack.without_topic("AlertTopicArn"):
        execution = stack.start_execution(f"{RULE}-without-topic", fire_of(job, "fire-without-topic", rule=RULE))

    row = job.rows()[RULE]
    assert execution.status == "FAILED"
    assert "Topic does not exist" in execution.cause
    assert row["Action"].startswith("alert failed (mail: ")
    assert row["Action"].endswith("training job stopped: yes")
    assert row.get("AlertId") is None
    assert job.stops() == [None]
    assert row["ReportUri"].endswith("/report.html")


@pytest.mark.thorough
def test_refused_stop_is_in_alert_and_row_and_fails(
    stack: Stack,
) -> None:
    job = Job(stack, "cpu_bottleneck", "stop-refused", allowed=True)
    job.finish()
    answer = {"stop": True, "decision": "stop", "why": "it was in progress a moment ago"}
    with stack.function_replaced("decide_stop", f"def handler(event, context):\n    return {answer}\n"):
        execution = stack.start_execution(f"{RULE}-stop-refused", fire_of(job, "fire-stop-refused", rule=RULE))

    row = job.rows()[RULE]
    stack.await_quiet()
    (alert,) = job.alerts(RULE)
    assert execution.status == "FAILED"
    assert execution.cause.startswith("StopJob: ")
    assert set(job.stops()) == {"ValidationException"}
    assert alert["stop"]["made"] is False
    assert "job is in status Completed" in alert["stop_error"]
    assert row["Action"] == alert["action"]
    assert row["Action"].startswith("Stopping the training job failed: ")


@pytest.mark.parametrize("value", ["dry-run", "disabled"])
@pytest.mark.thorough
def test_disabled_stop_switch_stops_nothing_and_the_row_says_why(stack: Stack, value: str) -> None:
    job = Job(stack, "cpu_bottleneck", f"switch-{value}", allowed=True)
    until(job.item, timeout_s=PATIENCE_S, what="the job's item")
    ssm, name = stack.emulator.client("ssm"), stack.outputs["StopSwitchParameter"]
    ssm.put_parameter(Name=name, Value=value, Overwrite=True)
    try:
        execution = stack.start_execution(f"{RULE}-{value}", fire_of(job, f"fire-{value}", rule=RULE))
    finally:
        ssm.put_parameter(Name=name, Value="enabled", Overwrite=True)

    assert (execution.status, execution.cause) == ("SUCCEEDED", "")
    assert job.stops() == []
    assert job.status() == "InProgress"
    assert job.rows()[RULE]["Action"].startswith(f"Training job not stopped: the stop switch is '{value}'")


def test_concurrent_evaluators_of_a_node_give_the_state_of_one(stack: Stack, reference: Job) -> None:
    job = Job(stack, "cpu_bottleneck", "raced-for", start=reference.feed.start)
    with stack.doorbells_off():
        bodies = [object_message(stack.deployment.bucket, key) for key in job.upload(until_minute=REFERENCE_MINUTES)]

        def evaluate(number: int) -> None:
            """Deliver a part of the messages, overlapping with the others', until none comes back."""
            left = [body for index, body in enumerate(bodies) if (index + number) % 3]
            deliveries = 1
            while left:
                answer = stack.invoke("evaluate_objects", batch(left, deliveries=deliveries))
                failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
                left = [body for index, body in enumerate(left) if f"message-{index}" in failed]
                deliveries += 1

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(evaluate, range(4)))
    job.end()

    assert job.verdicts() == reference.verdicts()
    assert len(job.fires(RULE)) == len([alert for alert in job.alerts(RULE) if alert["kind"] == "fire"]) == 1
