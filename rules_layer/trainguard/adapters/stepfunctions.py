"""Executions of a state machine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.adapters.aws_errors import error_code, translated
from trainguard.adapters.messages import execution_input

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


class StepFunctionsExecutions:
    """Starts executions of a Standard state machine, which refuses a name that it has seen within 90 days.

    Parameters
    ----------
    client : SFNClient
        Low-level client.
    state_machine_arn : str
        ARN of the machine.
    """

    def __init__(self, *, client: "SFNClient", state_machine_arn: str) -> None:
        self._client = client
        self._state_machine_arn = state_machine_arn

    def start(self, name: str, payload: Mapping[str, object]) -> bool:
        """Start an execution; False when one of that name exists already, which is success too.

        While the first execution runs, Step Functions answers a repeat with the same input as if it had started it:
        then a repeat returns True, and there is one execution all the same.
        """
        document = execution_input(payload)
        with translated("StepFunctions", "StartExecution"):
            try:
                self._client.start_execution(stateMachineArn=self._state_machine_arn, name=name, input=document)
            except ClientError as error:
                if error_code(error) != "ExecutionAlreadyExists":
                    raise
                return False
        return True
