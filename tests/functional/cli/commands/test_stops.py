"""`trainguard stops`: what is in force, and an override that outlives what the stack writes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from typer.testing import CliRunner, Result

from tests.support.deployed_stack import REGION, STOP_SWITCH, DeployedStack, deployed_stack
from trainguard.cli.main import app

OVERRIDE = f"{STOP_SWITCH}-override"


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeployedStack]:
    with deployed_stack(monkeypatch) as stack:
        deploy(stack, "enabled")
        stack.calls.clear()
        yield stack


def deploy(stack: DeployedStack, value: str) -> None:
    """Let CloudFormation write the stack's own parameter, as each change of one of its properties does."""
    stack.clients.ssm.put_parameter(Name=STOP_SWITCH, Value=value, Type="String", Overwrite=True)


def stops(*words: str) -> Result:
    return CliRunner().invoke(app, ["stops", *words, "--region", REGION])


def document(*words: str) -> Any:
    result = stops(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("word", ["disable", "dry-run"])
def test_forbidden_stops_stay_forbidden_through_an_upgrade(stack: DeployedStack, word: str) -> None:
    forbidden = {"disable": "disabled"}.get(word, word)
    said = document(word)
    deploy(stack, "disabled")
    deploy(stack, "enabled")
    assert (said["in_force"], said["override"]) == (forbidden, forbidden)
    assert document("status") == {
        "schema_version": "1",
        "stack": "TrainGuard",
        "region": REGION,
        "account": "123456789012",
        "in_force": forbidden,
        "deployed": "enabled",
        "override": forbidden,
        "parameter": STOP_SWITCH,
        "override_parameter": OVERRIDE,
        "brakes": [],
    }


def test_stack_value_is_in_force_without_an_override(
    stack: DeployedStack,
) -> None:
    said = document("status")
    assert (said["in_force"], said["deployed"], said["override"]) == ("enabled", "enabled", None)
    assert ("ssm", "PutParameter") not in stack.calls


def test_enabling_stops_restores_the_stack_value(stack: DeployedStack) -> None:
    document("disable")
    assert document("enable")["in_force"] == "enabled"
    deploy(stack, "dry-run")
    said = stops("enable")
    assert "in force\tdry-run: TrainGuard stops nothing, and alerts say what it would have stopped" in said.stdout
    assert "The stack deploys 'dry-run': deploy it with -c stop_switch=enabled." in said.stdout


def test_forbidden_stops_name_the_stack_and_the_effective_time(
    stack: DeployedStack,
) -> None:
    del stack
    said = stops("disable")
    assert said.stdout.splitlines() == [
        "stack\tTrainGuard, account 123456789012, eu-west-1",
        "in force\tdisabled: TrainGuard stops nothing",
        "deployed\tenabled",
        "override\tdisabled",
        "It counts from the next decision on. A stop that was decided before is not taken back.",
    ]


def test_ssm_refuses_a_misspelt_switch_value(stack: DeployedStack) -> None:
    document("disable")
    found = stack.clients.ssm.describe_parameters(Filters=[{"Key": "Name", "Values": [OVERRIDE]}])["Parameters"][0]
    assert (found["AllowedPattern"], found["Type"]) == ("^(enabled|dry-run|disabled)$", "String")


@pytest.mark.parametrize("value", ["Disabled", "off"])
def test_misspelt_override_forbids_all_stops(stack: DeployedStack, value: str) -> None:
    stack.clients.ssm.put_parameter(Name=OVERRIDE, Value=value, Type="String")
    said = document("status")
    assert (said["in_force"], said["override"]) == ("disabled", value)


def denied(monkeypatch: pytest.MonkeyPatch, operation: str, parameter: str = "") -> None:
    """Let a call be denied, of one parameter or of all."""
    made = vars(BaseClient)["_make_api_call"]

    def call(self: BaseClient, called: str, arguments: dict[str, Any]) -> Any:
        if called == operation and parameter in {"", arguments["Name"]}:
            said = f"User: ada is not authorized to perform: ssm:{operation} on resource: {arguments['Name']}"
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": said}}, operation)
        return made(self, called, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)


@pytest.mark.parametrize(("word", "in_force"), [("disable", "disabled"), ("enable", None)])
def test_write_without_read_permission_says_what_is_known(
    stack: DeployedStack, monkeypatch: pytest.MonkeyPatch, word: str, in_force: str | None
) -> None:
    with monkeypatch.context() as patched:
        denied(patched, "GetParameter")
        result = stops(word, "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["in_force"], said["deployed"]) == (0, in_force, None)
    assert "The stack's own value is unknown: access denied to ssm:GetParameter" in result.stderr
    assert stack.clients.ssm.get_parameter(Name=OVERRIDE)["Parameter"]["Value"] == said["override"]


@pytest.mark.parametrize(
    ("operation", "parameter", "word"), [("PutParameter", "", "disable"), ("GetParameter", OVERRIDE, "status")]
)
def test_denied_caller_is_told_what_is_missing(
    stack: DeployedStack, monkeypatch: pytest.MonkeyPatch, operation: str, parameter: str, word: str
) -> None:
    del stack
    denied(monkeypatch, operation, parameter)
    result = stops(word)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"access denied to ssm:{operation}" in result.stderr
