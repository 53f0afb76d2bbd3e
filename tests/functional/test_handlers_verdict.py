"""verdict as it is deployed, on moto: requests as a function URL sends them."""

import json
from typing import Any

import pytest

from tests.functional.deployment import Deployment
from tests.functional.tables import BOOKKEEPING, JOBS
from tests.support.fleets import found, job, quiet, report_row
from trainguard.aws.dynamodb.fire_path import DynamoStopBudget
from trainguard.core.records import JobStatus, TunedJob

ENDED = job()


def request(path: str = "/verdict", method: str = "GET", **query: str) -> dict[str, Any]:
    """Return an event of a function URL."""
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {},
        "queryStringParameters": query,
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default"},
        "isBase64Encoded": False,
    }


def asked(deployment: Deployment, **event: str) -> tuple[int, dict[str, Any]]:
    answer = deployment.function("verdict")(request(**event)).value
    assert answer["headers"]["Content-Type"] == "application/json"
    return answer["statusCode"], json.loads(answer["body"])


def test_given_a_job_when_asked_then_the_answer_is_its_verdict(deployment: Deployment) -> None:
    deployment.world.jobs.register(ENDED)
    deployment.world.rows.publish([report_row(ENDED), found(ENDED), quiet(ENDED, "BatchSize")])
    status, said = asked(deployment, job=ENDED.job)
    assert (status, said["verdict"], said["rules"], said["status"]) == (
        200,
        "wasted",
        ["LowGPUUtilization"],
        JobStatus.COMPLETED,
    )


def test_verdict_of_an_unknown_job_is_unknown(deployment: Deployment) -> None:
    assert asked(deployment, job="team-a/run@elsewhere")[1]["verdict"] == "unknown"


@pytest.mark.parametrize("name", ["*", "tuning-job/sweep", "met-jobs/1970010102", "../Jobs", "a\n{}", "\u202ejob"])
def test_item_that_is_no_job_is_unknown_and_not_disclosed(deployment: Deployment, name: str) -> None:
    world = deployment.world
    world.bookkeeping.admit(7_200.0, 5)
    world.bookkeeping.upsert_tuned_job("sweep", "job", TunedJob(JobStatus.COMPLETED, finished=True), 9)
    DynamoStopBudget(client=deployment.clients.dynamodb, table=BOOKKEEPING).take("fire", "job", now=60.0, limit=1)
    status, said = asked(deployment, job=name)
    assert (status, said["verdict"], said["rules"]) == (200, "unknown", [])


@pytest.mark.parametrize(
    ("event", "status"),
    [({}, 400), ({"job": "x" * 1_025}, 400), ({"path": "/"}, 404), ({"method": "POST", "job": "a"}, 404)],
)
def test_given_another_request_when_asked_then_it_is_refused(
    deployment: Deployment, event: dict[str, str], status: int
) -> None:
    assert asked(deployment, **event)[0] == status


def test_missing_table_is_an_error_and_no_verdict(
    deployment: Deployment,
) -> None:
    deployment.clients.dynamodb.delete_table(TableName=JOBS)
    status, said = asked(deployment, job="bert")
    assert status == 503
    assert "verdict" not in said
