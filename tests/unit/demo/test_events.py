"""The recorded events are what AWS sends, and tell one story."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from demo.make_recordings import RECORDINGS
from demo.recording import Recording
from trainguard.core.finding import Finding
from trainguard.core.layout import report_links
from trainguard.core.ports import StreamTask
from trainguard.core.records import JobRecord, OutboxEntry
from trainguard.engine.installed import FAMILIES
from trainguard.engine.messages import Message, encode_task, sort_messages
from trainguard.engine.outbox import fire_payload
from trainguard.engine.verdicts.episodes import fire_id

EVENTS = RECORDINGS.parent
JOB = "resnet50-slow-loader-2026-07-14"
RECORD = JobRecord(JOB, "arn", "profiles", "")
FIRE_INPUTS = ("decide_stop", "decide_stop_final", "build_report_fire")
COMPOSE_INPUTS = (
    "send_alert",
    "send_alert_stop_refused",
    "send_alert_stop_failed",
    "send_alert_warning",
    "send_alert_escalation",
    "send_alert_cleared",
)


def event(name: str) -> Any:
    return json.loads((EVENTS / f"{name}.json").read_text())


def messages(name: str) -> list[Message]:
    return [
        Message(record["messageId"], record["body"], int(record["attributes"]["ApproximateReceiveCount"]))
        for record in event(name)["Records"]
    ]


def test_readme_of_the_folder_names_every_file() -> None:
    readme = (EVENTS / "README.md").read_text()
    names = {path.name for path in EVENTS.rglob("*") if path.is_file() and path.name != "README.md"}

    assert names == {name for name in names if f"`{name}`" in readme}


@pytest.mark.parametrize("path", sorted(EVENTS.glob("sqs_*.json")), ids=lambda path: path.stem)
def test_queue_event_records_have_the_checksum_of_their_body(path: Path) -> None:
    for record in json.loads(path.read_text())["Records"]:
        assert record["md5OfBody"] == hashlib.md5(record["body"].encode(), usedforsecurity=False).hexdigest()
        assert record["eventSource"] == "aws:sqs"


def test_object_events_have_sizes_and_checksums_as_recorded() -> None:
    recorded = {
        upload.key: upload
        for upload in Recording.load(RECORDINGS / "slow_data_loader.npz").objects(JOB, prefix="runs/")
    }

    for kind in ("system", "framework", "training_job_end"):
        announced = event(f"s3_object_created_{kind}")["detail"]["object"]
        upload = recorded[announced["key"]]
        checksum = hashlib.md5(upload.body, usedforsecurity=False).hexdigest()
        assert (announced["size"], announced["etag"]) == (len(upload.body), checksum)
    (record,) = event("s3_notification_system")["Records"]
    assert record["s3"]["object"]["eTag"] == event("s3_object_created_system")["detail"]["object"]["etag"]


@pytest.mark.parametrize("name", ["sqs_objects", "sqs_notifications"])
def test_batch_of_objects_announces_two_minutes_and_a_timeline(name: str) -> None:
    (job,), refusals = sort_messages(messages(name), FAMILIES)

    assert sorted(key.node_kind for key in job.nodes) == ["algo-1#system", "algo-2#framework", "algo-2#system"]
    assert refusals == []


def test_given_the_look_alike_when_sorted_then_it_is_refused() -> None:
    jobs, (refusal,) = sort_messages(messages("sqs_rule_output"), FAMILIES)

    assert jobs == []
    assert refusal.what == "foreign_keys"


def test_given_the_end_marks_when_sorted_then_the_job_has_ended() -> None:
    (job,), _ = sort_messages(messages("sqs_training_job_end"), FAMILIES)

    assert (job.job, len(job.ended), job.nodes) == (JOB, 2, {})


def test_recorded_tasks_are_what_the_product_writes() -> None:
    bodies = [record["body"] for name in ("sqs_task_close", "sqs_task_flush") for record in event(name)["Records"]]

    assert [json.loads(body) for body in bodies] == [
        json.loads(encode_task(task))
        for task in (
            StreamTask(JOB, "algo-1", "system", "close"),
            StreamTask(JOB, "algo-1", "framework", "close"),
            StreamTask(JOB, "algo-2", "system", "flush", 1_784_021_940.0),
        )
    ]


@pytest.mark.parametrize("status", ["in_progress", "completed", "failed", "stopped"])
def test_state_change_has_consistent_status_times_and_reason(status: str) -> None:
    detail = event(f"training_job_{status}")["detail"]

    assert detail["TrainingJobStatus"] == status.title().replace("_", "")
    assert detail["SecondaryStatusTransitions"][-1]["Status"] == detail["SecondaryStatus"]
    assert ("TrainingEndTime" in detail) == (status != "in_progress")
    assert ("FailureReason" in detail) == (status == "failed")
    assert detail["CreationTime"] < detail["TrainingStartTime"] <= detail["LastModifiedTime"]


@pytest.mark.parametrize("name", [*FIRE_INPUTS, *COMPOSE_INPUTS])
def test_fire_path_input_has_the_fire_of_its_job_and_rule(name: str) -> None:
    fire = event(name).get("fire", event(name))

    assert fire["fireId"] == fire_id(fire["jobArn"], fire["rule"], fire["episode"])
    assert fire["reportUri"] == f"s3://{fire['bucket']}/{fire['prefix']}{JOB}/rule-output/TrainGuardReport/report.json"
    links = report_links(job=JOB, arn=fire["jobArn"], bucket=fire["bucket"], prefix=fire["prefix"])
    assert (fire["reportPage"], fire["reportLink"]) == (links.page, links.console)
    assert fire["measured"] < fire["threshold"]
    written = fire_payload(OutboxEntry(fire["fireId"], 0, 0.0, Finding(fire["rule"], "algo-1", "")), RECORD)
    assert set(fire) - {"attempt"} == set(written)
    assert fire["alertId"].partition("-")[0] == fire["fireId"]
