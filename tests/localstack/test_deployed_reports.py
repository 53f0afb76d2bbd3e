"""Full reports on the deployed stack: at a job's end, on request, through both maps, and when a part of it fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.localstack.stack import Job, Stack
from trainguard.core.layout import ProfileRoot
from trainguard.engine.settings.tag_names import FRAMEWORK_EXPECTED, FRAMEWORK_TAG

pytestmark = pytest.mark.localstack

MINUTES = 7.3
RULE = "CPUBottleneck"
FIRES_BY_MINUTE = 4.5
EXPECTING = FRAMEWORK_TAG.removeprefix("trainguard:")


@pytest.fixture(scope="module")
def ended(stack: Stack) -> Job:
    """A job that has ended, with its full report; its streams of framework metrics are waited for at its end."""
    job = Job(stack, "cpu_bottleneck", "with-a-report", tags={EXPECTING: FRAMEWORK_EXPECTED})
    job.upload(until_minute=MINUTES)
    job.end()
    return job


def folder(job: Job) -> dict[str, bytes]:
    """Return what lies in the folder of a job's report."""
    s3, bucket = job.stack.emulator.client("s3"), job.stack.deployment.bucket
    prefix = ProfileRoot("", job.name).report
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {
        each["Key"].removeprefix(prefix): s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()
        for each in listed
    }


def document(job: Job) -> dict[str, Any]:
    """Return a job's report without the time at which it was made."""
    report = json.loads(folder(job)["report.json"])
    assert report.pop("generated_at")
    found: dict[str, Any] = report
    return found


def days(job: Job) -> int:
    """Return of how many days, by UTC, an ended job has a part: its report reads one item for each."""
    client = job.stack.emulator.client("sagemaker")
    ended: datetime = client.describe_training_job(TrainingJobName=job.name)["TrainingEndTime"]
    return (ended.astimezone(UTC).date() - datetime.fromtimestamp(job.feed.start, UTC).date()).days + 1


def test_closed_job_has_a_page_with_time_lines_by_its_profile(
    ended: Job,
) -> None:
    (execution,) = ended.reports()
    report, files = document(ended), folder(ended)
    assert (execution.status, execution.cause) == ("SUCCEEDED", "")
    assert (report["scope"], report["final"]) == ("full", True)
    ((gpu,),) = ([gpu["utilization"]["mean"] for gpu in node["gpus"]] for node in report["timelines"]["nodes"])
    shown_s = sum(mean is not None for mean in gpu) * report["timelines"]["axis"]["bucket_s"]
    assert shown_s > (MINUTES - 1) * 60
    assert report["timelines"]["steps"]
    assert report["timelines"]["left_out"] == []
    assert b"<html" in files["report.html"]
    assert not [name for name in files if name.startswith("parts/")]


@pytest.mark.thorough
def test_requested_report_by_a_distributed_map_is_the_same(stack: Stack, ended: Job) -> None:
    before = document(ended)
    client = stack.emulator.client("stepfunctions")
    deployed = client.describe_state_machine(stateMachineArn=stack.outputs["ReportStateMachineArn"])
    definition = json.loads(deployed["definition"])
    definition["States"]["AreFew"]["Choices"][0]["Condition"] = "{% false %}"
    machine = client.create_state_machine(
        name="report-through-many", definition=json.dumps(definition), roleArn=deployed["roleArn"]
    )["stateMachineArn"]

    execution = stack.run_machine(machine, "on-request-many", {"job": ended.name})

    arn = f"{machine.replace(':stateMachine:', ':execution:')}:on-request-many"
    (run,) = client.list_map_runs(executionArn=arn)["mapRuns"]
    counts = client.describe_map_run(mapRunArn=run["mapRunArn"])["itemCounts"]
    assert (execution.status, execution.cause) == ("SUCCEEDED", "")
    assert (counts["total"], counts["succeeded"]) == (days(ended), days(ended))
    assert document(ended) == before
    assert not [name for name in folder(ended) if name.startswith("parts/")]


@pytest.mark.thorough
def test_report_with_a_failing_digest_names_what_is_missing(stack: Stack, ended: Job) -> None:
    with stack.function_replaced("digest_profile", "def handler(event, context):\n    raise MemoryError('too much')\n"):
        execution = stack.run_machine(stack.outputs["ReportStateMachineArn"], "without-digests", {"job": ended.name})
    assert (execution.status, execution.cause) == ("SUCCEEDED", "")
    sentences = document(ended)["timelines"]["left_out"]
    assert len(sentences) == days(ended)
    assert all(each.startswith("algo-1 on ") for each in sentences)
    assert all(each.endswith(": the profile could not be read.") for each in sentences)


@pytest.mark.thorough
def test_report_of_an_unknown_job_fails_and_names_it(
    stack: Stack,
) -> None:
    execution = stack.run_machine(stack.outputs["ReportStateMachineArn"], "of-nobody", {"job": "nobody"})
    assert execution.status == "FAILED"
    assert execution.cause.startswith("PlanReport: UnknownJobError: ")
    assert "job 'nobody' is not known" in execution.cause


@pytest.mark.thorough
def test_fire_of_a_running_job_has_a_state_report_at_once(
    stack: Stack,
) -> None:
    job = Job(stack, "cpu_bottleneck", "reported-at-once")
    job.upload(until_minute=FIRES_BY_MINUTE)
    row = job.await_row(RULE, Status="FIRED", ReportUri=None)
    stack.await_quiet()
    client = stack.emulator.client("stepfunctions")
    (fire,) = job.fires(RULE)
    arn = f"{stack.outputs['FireStateMachineArn'].replace(':stateMachine:', ':execution:')}:{fire.name}"
    pages = client.get_paginator("get_execution_history").paginate(executionArn=arn)
    happened = {event["type"] for page in pages for event in page["events"]}
    report = document(job)
    assert "ExecutionSucceeded" in happened
    assert "WaitStateEntered" not in happened
    assert (report["scope"], report["final"]) == ("state", False)
    assert RULE in report["fired"]
    assert row["ReportUri"] == f"s3://{stack.deployment.bucket}/{ProfileRoot('', job.name).report}report.html"
    assert job.reports() == []
    job.end()
    assert document(job)["scope"] == "full"
