"""Who is notified of a canary: machines that want to, and neither people nor the fleet."""

from dataclasses import replace

import pytest

from trainguard.core.canary_name import canary_name
from trainguard.core.finding import Finding
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry
from trainguard.report.fleet.fleet import Fleet
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest, FireInput

JOB = canary_name(1_795_248_037.0, "a-run")
ARN = "arn:aws:sagemaker:eu-west-1:111122223333:training-job/"


def fire(job: str, arn: str, kind: AlertKind = AlertKind.FIRE) -> AlertRequest:
    finding = Finding(rule="LowGPUUtilization", node="algo-1", reason="gpu0 is low.")
    entry = OutboxEntry("f", 0, 1_795_249_200.0, finding, kind=kind)
    return AlertRequest(FireInput(job=job, job_arn=arn, entry=entry, report_uri="s3://b/report.json"))


@pytest.mark.parametrize("kind", AlertKind)
def test_subscribers_can_filter_out_every_canary_message(kind: AlertKind) -> None:
    alert = compose_alert(fire(JOB, f"unknown:{JOB}", kind), now=0.0)
    assert alert.attributes["Kind"] == "canary"
    assert (alert.document["kind"], alert.document["canary"]) == (kind.value, True)


@pytest.mark.parametrize(("job", "arn"), [(JOB, f"{ARN}{JOB}"), ("my-job", "unknown:my-job"), ("bert", f"{ARN}bert")])
def test_messages_of_other_jobs_are_never_filtered_out(job: str, arn: str) -> None:
    alert = compose_alert(fire(job, arn), now=0.0)
    assert (alert.attributes["Kind"], alert.document["canary"]) == ("fire", False)


def test_canary_is_not_a_job_of_the_fleet_summary() -> None:
    fleet = Fleet(stack="TrainGuard", region="eu-west-1")
    canary = JobRecord(JOB, f"unknown:{JOB}", "profiles", "")
    assert not fleet.wants(canary)
    assert fleet.wants(replace(canary, arn=f"{ARN}{JOB}"))
    assert fleet.wants(replace(canary, job="my-job", arn="unknown:my-job"))
