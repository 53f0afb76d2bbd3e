"""Polls of sources, each in an asynchronous invocation of the function that makes them."""

import json
from typing import TYPE_CHECKING

from trainguard.aws.aws_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class LambdaSourcePolls:
    """Invokes a function for a poll, and does not wait for it."""

    def __init__(self, *, client: "LambdaClient", function: str) -> None:
        self._client = client
        self._function = function

    def ask(self, job: str, at: float) -> None:
        """Ask for a poll; raises PortUnavailableError when Lambda does not accept it."""
        payload = json.dumps({"job": job, "at": at}).encode()
        with translated("Lambda", "Invoke"):
            self._client.invoke(FunctionName=self._function, InvocationType="Event", Payload=payload)
