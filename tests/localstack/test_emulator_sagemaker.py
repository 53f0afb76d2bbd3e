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


def test_created_job_is_described_as_requested_and_in_training(emulator: Emulator) -> None:
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


def test_backdated_job_has_trained_since_but_not_the_next(
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


def test_missing_job_gives_the_aws_error(emulator: Emulator) -> None:
    client = emulator.client("sagemaker")

    for operation in (client.describe_training_job, client.stop_training_job):
        with pytest.raises(ClientError, match=r"ValidationException.*Requested resource not found\."):
            operation(TrainingJobName="nowhere")


def test_second_stop_is_refused_and_both_calls_are_recorded(
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


def test_listed_jobs_follow_status_filters_and_pages(emulator: Emulator) -> None:
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


def test_job_changes_reach_the_function_by_a_rule(
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


def test_finished_job_cannot_be_finished_again(emulator: Emulator) -> None:
    make_training_job(emulator, "finished")
    emulator.finish_training_job("finished")

    assert _status(emulator, "finished") == "Completed"
    with pytest.raises(urllib.error.HTTPError, match="409"):
        emulator.finish_training_job("finished")
