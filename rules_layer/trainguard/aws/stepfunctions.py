"""Executions of a state machine: starts, and what became of them."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from trainguard.aws.aws_errors import translated, unless
from trainguard.core.ports import ExecutionRecord
from trainguard.core.records import execution_input

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

_ENDED_BADLY: tuple[Literal["FAILED", "TIMED_OUT", "ABORTED"], ...] = ("FAILED", "TIMED_OUT", "ABORTED")


class StepFunctionsExecutions:
    """The executions of a Standard state machine, which refuses a name that it has seen within 90 days."""

    def __init__(self, *, client: "SFNClient", state_machine_arn: str) -> None:
        self._client = client
        self._state_machine_arn = state_machine_arn

    def start(self, name: str, payload: Mapping[str, object]) -> bool:
        document = execution_input(payload)
        with translated("StepFunctions", "StartExecution"):
            answer = unless(
                {"ExecutionAlreadyExists"},
                lambda: self._client.start_execution(
                    stateMachineArn=self._state_machine_arn, name=name, input=document
                ),
            )
        return answer is not None

    def find(self, name: str) -> ExecutionRecord | None:
        arn = f"{self._state_machine_arn.replace(':stateMachine:', ':execution:')}:{name}"
        with translated("StepFunctions", "DescribeExecution"):
            described = unless({"ExecutionDoesNotExist"}, lambda: self._client.describe_execution(executionArn=arn))
        if described is None:
            return None
        payload = json.loads(described.get("input", "{}"))
        ended = described.get("stopDate")
        return ExecutionRecord(
            name=name,
            status=described["status"],
            payload=payload if isinstance(payload, dict) else {},
            ended_at=None if ended is None else ended.timestamp(),
            error=described.get("error"),
            cause=described.get("cause"),
        )

    def unsuccessful(self, since: float) -> Iterator[ExecutionRecord]:
        for status in _ENDED_BADLY:
            for name in self._ended(status, since):
                if (record := self.find(name)) is not None:
                    yield record

    def _ended(self, status: Literal["FAILED", "TIMED_OUT", "ABORTED"], since: float) -> list[str]:
        names = []
        with translated("StepFunctions", "ListExecutions"):
            pages = self._client.get_paginator("list_executions").paginate(
                stateMachineArn=self._state_machine_arn, statusFilter=status
            )
            for page in pages:
                for each in page["executions"]:
                    ended = each.get("stopDate")
                    if ended is not None and ended.timestamp() >= since:
                        names.append(each["name"])
        return names
