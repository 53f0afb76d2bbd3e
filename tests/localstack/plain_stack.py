"""A stack that CloudFormation's own calls deploy, without CDK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import ClientError

from tests.localstack.emulator_kit import until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emulator.launch import Emulator

TIMEOUT_S = 300.0
_GONE = {"StackStatus": "DELETE_COMPLETE"}


@dataclass(frozen=True)
class PlainStack:
    """A stack by its name, and its template as an argument of the calls: ``TemplateURL`` or ``TemplateBody``."""

    emulator: Emulator
    name: str
    template: Mapping[str, str]

    def deploy(self, call: Literal["create_stack", "update_stack"], parameters: Mapping[str, str]) -> dict[str, str]:
        """Create or update the stack with parameters, and return its outputs; a failure fails the test."""
        given = [{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()]
        client = self.emulator.client("cloudformation")
        getattr(client, call)(StackName=self.name, Parameters=given, Capabilities=["CAPABILITY_IAM"], **self.template)
        described = until(lambda: self._ended(parameters), timeout_s=TIMEOUT_S, what=f"{call} of {self.name}")
        expected = f"{call.removesuffix('_stack').upper()}_COMPLETE"
        assert described["StackStatus"] == expected, self._failures()
        return {each["OutputKey"]: each["OutputValue"] for each in described.get("Outputs", [])}

    def delete(self) -> None:
        """Delete the stack; a failure fails the test."""
        self.emulator.client("cloudformation").delete_stack(StackName=self.name)
        described = until(lambda: self._ended({}), timeout_s=TIMEOUT_S, what=f"the deletion of {self.name}")
        assert described == _GONE, self._failures()

    def _ended(self, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the stack when the last call has ended.

        LocalStack says COMPLETE a moment before the stack has its outputs, and its parameters after them.
        """
        try:
            (stack,) = self.emulator.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        except ClientError:
            return dict(_GONE)
        if stack["StackStatus"].endswith("FAILED"):
            return dict(stack)
        shown = {each["ParameterKey"]: each["ParameterValue"] for each in stack.get("Parameters", [])}
        return (
            dict(stack) if stack["StackStatus"].endswith("_COMPLETE") and parameters.items() <= shown.items() else None
        )

    def _failures(self) -> list[str]:
        events = self.emulator.client("cloudformation").describe_stack_events(StackName=self.name)["StackEvents"]
        return [
            f"{each['LogicalResourceId']}: {each.get('ResourceStatusReason')}"
            for each in events
            if each["ResourceStatus"].endswith("FAILED")
        ]
