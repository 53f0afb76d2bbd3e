"""The question to the central account before a stop."""

from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.aws_errors import translated
from trainguard.core.errors import PortUnavailableError
from trainguard.stack.organisation.stop_limit import Admission, StopRequest

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

# Bytes of a failed function's answer.
_SHOWN = 300


class LambdaStopLimit:
    """Asks the central account's function, by ARN, whether the organisation admits one more stop."""

    def __init__(self, *, client: "LambdaClient", function: str) -> None:
        self._client = client
        self._function = function

    def ask(self, request: StopRequest) -> Admission:
        """Return the answer; raises PortUnavailableError for none and for one that is no admission."""
        with translated("Lambda", "Invoke"):
            answer = self._client.invoke(FunctionName=self._function, Payload=msgspec.json.encode(request))
            body = answer["Payload"].read()
        if "FunctionError" in answer:
            raise PortUnavailableError(
                "Lambda", "Invoke", f"{self._function} failed: {body[:_SHOWN].decode(errors='replace')}"
            )
        try:
            return msgspec.json.decode(body, type=Admission)
        except msgspec.MsgspecError as fault:
            raise PortUnavailableError(
                "Lambda", "Invoke", f"{self._function} answered no admission: {fault}"
            ) from fault
