"""SageMaker on the emulator: training jobs that can be described, stopped once, and finished by a test."""

from __future__ import annotations

import json
import urllib.error
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.localstack.emulator_kit import make_function, make_queue, make_rule, make_training_job, receive, until

if TYPE_CHECKING:
    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack


def _status(emulator: Emulator, name: str) -> str:
    status: str = emulator.client("sagemaker").describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
    return status


def test_given_a_created_job_when_described_then_it_has_what_was_asked_and_trains(emulator: Emulator) -> None:
    arn = make_training_job(emulator, "described", team="vision")
    client = emulator.client("sagemaker")

    job = client.describe_training_job(TrainingJobName="described")

    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("InProgress", "Training")
    assert job["ResourceConfig"]["InstanceCount"] == 2
    assert job["ProfilerConfig"]["ProfilingIntervalInMilliseconds"] == 500
    assert job["CreationTime"] <= job["TrainingStartTime"]
    client.add_tags(ResourceArn=arn, Tags=[{"Key": "stop", "Value": "allowed"}])
    tags = {tag["Key"]: tag["Value"] for tag in client.list_tags(ResourceArn=arn)["Tags"]}
    assert tags == {"team": "vision", "stop": "allowed"}


def test_given_a_job_that_began_before_when_created_then_it_has_trained_since_and_the_next_one_has_not(
    emulator: Emulator,
) -> None:
    began = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
    emulator.backdate_training_job("backdated", began=began)
    make_training_job(emulator, "backdated")
    make_training_job(emulator, "not-backdated")
    client = emulator.client("sagemaker")

    job = client.describe_training_job(TrainingJobName="backdated")

    assert (job["CreationTime"], job["TrainingStartTime"]) == (began, began)
    assert client.describe_training_job(TrainingJobName="not-backdated")["TrainingStartTime"] > began


def test_given_no_such_job_when_described_or_stopped_then_the_error_is_that_of_aws(emulator: Emulator) -> None:
    client = emulator.client("sagemaker")

    for operation in (client.describe_training_job, client.stop_training_job):
        with pytest.raises(ClientError, match=r"ValidationException.*Requested resource not found\."):
            operation(TrainingJobName="nowhere")


def test_given_a_stopped_job_when_stopped_again_then_it_is_refused_and_both_calls_are_on_record(
    emulator: Emulator,
) -> None:
    make_training_job(emulator, "stopped")
    client = emulator.client("sagemaker")

    client.stop_training_job(TrainingJobName="stopped")
    until(lambda: _status(emulator, "stopped") == "Stopped", what="Stopped")
    with pytest.raises(ClientError, match=r"rejected because the training job is in status Stopped"):
        client.stop_training_job(TrainingJobName="stopped")

    calls = emulator.sagemaker_calls(action="StopTrainingJob", job="stopped")
    assert [call["error"] for call in calls] == [None, "ValidationException"]


def test_given_jobs_of_each_status_when_listed_then_filters_and_pages_hold(emulator: Emulator) -> None:
    for number in range(3):
        make_training_job(emulator, f"listed-{number}")
    emulator.finish_training_job("listed-0")
    emulator.finish_training_job("listed-1", status="Failed", reason="AlgorithmError: NaN")
    pages = emulator.client("sagemaker").get_paginator("list_training_jobs")

    def names(**filters: Any) -> list[str]:
        found = pages.paginate(NameContains="listed-", SortOrder="Ascending", MaxResults=1, **filters)
        return [job["TrainingJobName"] for page in found for job in page["TrainingJobSummaries"]]

    assert names() == ["listed-0", "listed-1", "listed-2"]
    assert names(StatusEquals="InProgress") == ["listed-2"]
    assert names(StatusEquals="Failed") == ["listed-1"]


def test_given_a_rule_when_a_job_is_created_and_stopped_then_each_change_reaches_the_function(
    emulator: Emulator,
) -> None:
    url, _ = make_queue(emulator, "job-changes")
    source = """
import os, json, boto3
sqs = boto3.client("sqs")
def handler(event, context):
    sqs.send_message(QueueUrl=os.environ["CHANGES"], MessageBody=json.dumps(event))
"""
    arn = make_function(emulator, "job-changes", source, Environment={"Variables": {"CHANGES": url}})
    pattern = {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Training Job State Change"],
        "detail": {"TrainingJobName": ["watched"]},
    }
    make_rule(emulator, "job-changes", arn, EventPattern=json.dumps(pattern))

    job_arn = make_training_job(emulator, "watched", team="vision")
    emulator.client("sagemaker").stop_training_job(TrainingJobName="watched")

    events: list[dict[str, Any]] = []
    statuses = {"Starting", "Training", "Stopping", "Stopped"}

    def all_arrived() -> bool:
        events.extend(json.loads(message["Body"]) for message in receive(emulator, url))
        return {event["detail"]["SecondaryStatus"] for event in events} >= statuses

    until(all_arrived, what=f"changes to {statuses}")
    by_status = {event["detail"]["SecondaryStatus"]: event for event in events}
    assert set(by_status) == statuses
    stopped = by_status["Stopped"]
    assert stopped["resources"] == [job_arn]
    detail = stopped["detail"]
    assert detail["TrainingJobStatus"] == "Stopped"
    assert detail["Tags"] == {"team": "vision"}
    assert detail["ResourceConfig"]["InstanceType"] == "ml.p4d.24xlarge"
    assert detail["CreationTime"] <= detail["TrainingStartTime"] <= detail["TrainingEndTime"]
    assert [step["Status"] for step in detail["SecondaryStatusTransitions"]] == [
        "Starting",
        "Training",
        "Stopping",
        "Stopped",
    ]


def test_given_a_finished_job_when_finished_again_then_the_emulator_refuses(emulator: Emulator) -> None:
    make_training_job(emulator, "finished")
    emulator.finish_training_job("finished")

    assert _status(emulator, "finished") == "Completed"
    with pytest.raises(urllib.error.HTTPError, match="409"):
        emulator.finish_training_job("finished")
