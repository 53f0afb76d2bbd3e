"""Clients that reach nobody: moto stands in front of whatever they send, and a stand-in in front of Lambda."""

import json
from functools import cache
from typing import Any, cast

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.session import Session, get_session
from moto.core.botocore_stubber import MockRawResponse

from trainguard.aws.clients import Clients

REGION = "us-east-1"
RECONCILE_JOB = "reconcile-job"
POLL_SOURCE = "poll-source"


class LambdaStandIn:
    """Takes events for two functions: moto's own Lambda needs containers.

    Attributes
    ----------
    events : list of dict
        Payloads of the looks that were taken, in the order in which they came.
    polls : list of dict
        Those of polls.
    refused : set of str
        Jobs whose events are answered with 429, as often as they are sent.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.polls: list[dict[str, object]] = []
        self.refused: set[str] = set()

    def clear(self) -> None:
        """Forget everything."""
        self.events.clear()
        self.polls.clear()
        self.refused.clear()

    def answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        """Answer a request before it is sent."""
        function = request.url.split("/functions/")[1].partition("/")[0]
        payload = json.loads(cast("bytes", request.body))
        if function not in {RECONCILE_JOB, POLL_SOURCE} or request.headers["X-Amz-Invocation-Type"] != b"Event":
            return _answer(request, 404, "ResourceNotFoundException")
        if payload["job"] in self.refused:
            return _answer(request, 429, "TooManyRequestsException")
        (self.polls if function == POLL_SOURCE else self.events).append(payload)
        return _answer(request, 202)


def _answer(request: AWSPreparedRequest, status: int, error: str = "") -> AWSResponse:
    headers = HTTPHeaders()
    if error:
        headers["x-amzn-errortype"] = error
    return AWSResponse(request.url, status, headers, MockRawResponse(b'{"Message": "ordered"}' if error else b""))


# Behind every client of `offline_session`; a `MotoUnderTest` begins with an empty one.
LAMBDA = LambdaStandIn()


@cache
def offline_session() -> Session:
    """Return a session with credentials that open nothing; it reads the model of each service once."""
    session = get_session()
    session.set_credentials("testing", "testing")
    session.register("before-send.lambda.Invoke", LAMBDA.answer)  # type: ignore[arg-type]  # the stub knows no answers
    return session


def offline_clients() -> Clients:
    """Return clients that speak to nobody but moto."""
    return Clients(session=offline_session(), region=REGION)
