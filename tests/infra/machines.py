"""The state machines as they are deployed: their definitions with all names put in, and what all have to be."""

import json
from typing import Any

from tests.infra.template import Template


def deployed_definition(template: Template, logical_id: str) -> dict[str, Any]:
    """Return a machine's definition as it is deployed, with the names that CloudFormation puts in."""
    deployed = template.one("AWS::StepFunctions::StateMachine", logical_id)
    text = deployed["DefinitionString"]
    for name, value in deployed["DefinitionSubstitutions"].items():
        assert "${" + name + "}" in text
        text = text.replace("${" + name + "}", value)
    assert "${" not in text
    definition: dict[str, Any] = json.loads(text)
    return definition


def assert_standard_and_logged(template: Template, logical_id: str) -> None:
    """Fail unless a machine is of the kind whose executions outlive an hour, is logged, and costs no traces."""
    deployed = template.one("AWS::StepFunctions::StateMachine", logical_id)
    assert deployed["StateMachineType"] == "STANDARD"
    assert deployed["LoggingConfiguration"]["Level"] == "ALL"
    assert deployed["TracingConfiguration"] == {"Enabled": False}


def assert_outwaits_its_function(template: Template, state: Any, function: str) -> None:
    """Fail unless a task calls the function of that logical id, and waits for longer than it may run."""
    deployed = template.one("AWS::Lambda::Function", f"{function}Function")
    assert state["Arguments"]["FunctionName"] == f"{{{function}Function.Arn}}"
    assert state["TimeoutSeconds"] > deployed["Timeout"]
