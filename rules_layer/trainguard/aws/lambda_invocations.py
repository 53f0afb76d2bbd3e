"""Asynchronous invocations of functions: of one that polls a source, and of one that reconciles a job."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.aws_errors import translated
from trainguard.aws.clients import MOST_INVOKED_AT_ONCE
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import ReconcileRequest
from trainguard.engine.reconcile import STALE_EVERY

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class LambdaInvocations:
    """Invokes a function for a poll, or once for each request to reconcile, and waits for none of them."""

    def __init__(self, *, client: "LambdaClient", function: str) -> None:
        self._client = client
        self._function = function

    def ask(self, job: str, at: float) -> None:
        self._invoke(json.dumps({"job": job, "at": at}).encode())

    def send(self, requests: Sequence[ReconcileRequest]) -> Mapping[str, str]:
        with ThreadPoolExecutor(MOST_INVOKED_AT_ONCE) as senders:
            reasons = zip(requests, senders.map(self._refusal, requests), strict=True)
            return {request.job: reason for request, reason in reasons if reason is not None}

    def _refusal(self, request: ReconcileRequest) -> str | None:
        try:
            self._invoke(payload_of(request))
        except PortUnavailableError as error:
            return str(error)
        return None

    def _invoke(self, payload: bytes) -> None:
        with translated("Lambda", "Invoke"):
            self._client.invoke(FunctionName=self._function, InvocationType="Event", Payload=payload)


def payload_of(request: ReconcileRequest) -> bytes:
    return msgspec.json.encode(request)


def request_of(event: object, *, now: float) -> ReconcileRequest:
    """Return the request of an event; a manual one may omit its time. Raises msgspec.ValidationError."""
    if isinstance(event, Mapping):
        at = now if event.get("at") is None else event["at"]
        event = {"stale_every": STALE_EVERY, **event, "at": at}
    return msgspec.convert(event, ReconcileRequest)
