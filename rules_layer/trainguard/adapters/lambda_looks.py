"""Looks at jobs, each in an asynchronous invocation of the function that makes them."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated

import msgspec

from trainguard.adapters.aws_errors import translated
from trainguard.adapters.clients import MOST_INVOKED_AT_ONCE
from trainguard.engine.tick.tick import DOUBTED_EVERY
from trainguard.errors import PortUnavailableError
from trainguard.ports import JobLook

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class _Payload(msgspec.Struct):
    job: Annotated[str, msgspec.Meta(min_length=1)]
    at: float | None = None
    doubted_every: Annotated[int, msgspec.Meta(ge=1)] = DOUBTED_EVERY


class LambdaJobLooks:
    """Invokes a function once for each look, and waits for none of them.

    Parameters
    ----------
    client : LambdaClient
        Low-level client.
    function : str
        Name or ARN of the function.
    """

    def __init__(self, *, client: "LambdaClient", function: str) -> None:
        self._client = client
        self._function = function

    def send(self, looks: Sequence[JobLook]) -> Mapping[str, str]:
        """Ask for every look, many at once; return, by job, why one was not taken."""
        with ThreadPoolExecutor(MOST_INVOKED_AT_ONCE) as senders:
            reasons = zip(looks, senders.map(self._ask, looks), strict=True)
            return {look.job: reason for look, reason in reasons if reason is not None}

    def _ask(self, look: JobLook) -> str | None:
        try:
            with translated("Lambda", "Invoke"):
                self._client.invoke(FunctionName=self._function, InvocationType="Event", Payload=payload_of(look))
        except PortUnavailableError as error:
            return str(error)
        return None


def payload_of(look: JobLook) -> bytes:
    """Return the event that asks for a look."""
    return json.dumps({"job": look.job, "at": look.at, "doubted_every": look.doubted_every}).encode()


def look_of(event: object, *, now: float) -> JobLook:
    """Return the look that an event asks for; one by hand may leave out its time, which is ``now`` then.

    Raises msgspec.ValidationError, which names the field, for an event of another shape.
    """
    payload = msgspec.convert(event, _Payload)
    return JobLook(payload.job, now if payload.at is None else payload.at, payload.doubted_every)
