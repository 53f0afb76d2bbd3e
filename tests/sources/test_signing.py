"""Requests to services of AWS carry a signature that the service computes, too."""

from dataclasses import replace

import pytest
from botocore.credentials import Credentials
from botocore.session import Session, get_session

from tests.support.json_service import json_service
from tests.support.signature_v4 import signed_for
from trainguard.aws.source_services import HttpJson, mlflow_api, prometheus_api
from trainguard.core.errors import PortUnavailableError
from trainguard.formats.runs.prometheus.job import HOST_QUERIES

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
MLFLOW = "arn:aws:sagemaker:eu-west-1:111122223333:mlflow-tracking-server/experiments"
MATCHERS = 'node=~"a+b",job="a job, ä/ö & more"'


def session(credentials: Credentials | None = None) -> Session:
    made = get_session()
    made.get_credentials = lambda: credentials  # type: ignore[method-assign]
    return made


SIGNER = session(Credentials("AKIDEXAMPLE", SECRET, "token"))
SERVICES = {
    "amazon-managed-prometheus": (
        prometheus_api("p", "https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1", session=SIGNER),
        ("eu-west-1", "aps"),
    ),
    "cloudwatch": (
        prometheus_api("p", "https://monitoring.us-east-1.amazonaws.com", session=SIGNER),
        ("us-east-1", "monitoring"),
    ),
    "managed-mlflow": (mlflow_api("m", MLFLOW, session=SIGNER), ("eu-west-1", "sagemaker-mlflow")),
}


@pytest.mark.parametrize(("api", "scope"), SERVICES.values(), ids=SERVICES)
def test_signature_agrees_with_the_one_an_aws_service_computes(api: HttpJson, scope: tuple[str, str]) -> None:
    queries = [each % ((MATCHERS, "60s")[: each.count("%s")]) for each, _ in HOST_QUERIES]
    with json_service(lambda *_: (200, {})) as (url, requests):
        here = replace(api, base=f"{url}/workspaces/ws-1")
        for query in queries:
            here.get("api/v1/query_range", {"query": query, "start": "1.5", "end": "2", "step": "60"})
        here.post("runs/search", {"filter": "tags.name = 'a b'"})
    assert [request.query.get("query") for request in requests] == [*queries, None]
    assert [signed_for(request, SECRET) for request in requests] == [scope] * len(requests)
    assert all(request.headers["X-Amz-Security-Token"] == "token" for request in requests)
    assert signed_for(requests[0], "another secret") is None


def test_no_credentials_is_an_error_and_sends_nothing() -> None:
    api = prometheus_api("p", "https://monitoring.us-east-1.amazonaws.com", session=session())
    with (
        json_service(lambda *_: (200, {})) as (url, requests),
        pytest.raises(PortUnavailableError, match="no AWS credentials"),
    ):
        replace(api, base=url).get("api/v1/query_range", {"query": "up"})
    assert requests == []
