"""The central stack: the organisation alone gets in, each role does one thing, and the account's stack reaches it."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.central.__main__ import synthesise
from infra.config import DeploymentConfigError
from tests.infra.template import Template
from tests.infra.variants import CENTRAL, ORGANIZATION

JOBS, ROWS = "{StorageJobs.Arn}", "{StorageRuleState.Arn}"
UNDELIVERED = "{Undelivered.Arn}"
BUCKET = "arn:{AWS::Partition}:s3:::{StorageProfiles}"
STOP_LIMIT = "arn:aws:lambda:eu-west-1:444455556666:function:TrainGuardCentral-StopLimit"
BUS = "arn:aws:events:eu-west-1:444455556666:event-bus/TrainGuardCentral"


@pytest.fixture(scope="module")
def central(variants: Path) -> Template:
    return Template(variants / "central" / "TrainGuardCentral.template.json")


@pytest.fixture(scope="module")
def member(variants: Path) -> Template:
    return Template(variants / "organisation" / "TrainGuard.template.json")


def held(template: Template, role: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the statements of a role, but those for its log and its dead letters."""
    return {
        str(each.sid): (each.actions, each.resources)
        for name, each in template.role_statements()
        if name == role and each.sid not in ("WriteLogs", "KeepFailedEvents")
    }


@pytest.mark.parametrize("name", sorted(CENTRAL))
def test_central_stack_has_no_finding_and_fits_inline(variants: Path, name: str) -> None:
    assert not (variants / f"{name}.error").exists()
    template = variants / name / "TrainGuardCentral.template.json"
    resources = json.loads(template.read_text(encoding="utf-8"))["Resources"]
    assert len(resources) < 100
    assert len(json.dumps(json.loads(template.read_text(encoding="utf-8")), separators=(",", ":"))) < 51_200


def test_only_the_organisations_accounts_send_our_events(central: Template) -> None:
    (policy,) = (each.properties for each in central.of_type("AWS::Events::EventBusPolicy").values())
    statement = policy["Statement"]
    assert statement["Action"] == "events:PutEvents"
    assert statement["Condition"] == {
        "StringEquals": {"aws:PrincipalOrgID": ORGANIZATION, "events:source": "trainguard"}
    }
    (rule,) = (each for each in central.of_type("AWS::Events::Rule").values() if "EventPattern" in each.properties)
    assert rule.properties["EventPattern"] == {"source": ["trainguard"], "detail-type": ["TrainGuard Statement"]}
    assert rule.properties["EventBusName"] == "{Bus}"


def test_only_the_organisations_accounts_ask_for_a_stop(central: Template) -> None:
    asked = [
        each.properties
        for each in central.of_type("AWS::Lambda::Permission").values()
        if each.properties["Principal"] == "*"
    ]
    (permission,) = asked
    assert permission["PrincipalOrgID"] == ORGANIZATION
    assert permission["Action"] == "lambda:InvokeFunction"
    assert permission["FunctionName"] == "{StopLimitAdmitStopFunction.Arn}"


def test_each_central_role_does_one_thing(central: Template) -> None:
    assert held(central, "KeeperKeepStatementRole") == {"KeepStatements": (("dynamodb:PutItem",), (JOBS, ROWS))}
    assert held(central, "StopLimitAdmitStopRole") == {
        "CountStops": (("dynamodb:GetItem", "dynamodb:PutItem"), ("{StorageBookkeeping.Arn}",))
    }
    (count,) = (each for role, each in central.role_statements() if each.sid == "CountStops")
    assert count.condition == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["stops"]}}
    assert held(central, "PageDrawFleetRole") == {
        "ReadJobs": (("dynamodb:Scan",), (JOBS,)),
        "ReadRows": (("dynamodb:Query",), (ROWS,)),
        "WritePage": (("s3:PutObject",), (f"{BUCKET}/fleet.html", f"{BUCKET}/fleet.json")),
    }
    assert held(central, "WeeklyDigestRole")["ReadJobs"] == (("dynamodb:Scan",), (JOBS,))


def test_people_read_the_part_that_their_session_names(central: Template) -> None:
    policies = central.of_type("AWS::IAM::ManagedPolicy")
    found: dict[str, Any] = {name: each.properties["PolicyDocument"]["Statement"][0] for name, each in policies.items()}
    account, team = found["ReadersOfAccount"], found["ReadersOfTeam"]
    assert account["Condition"]["ForAllValues:StringLike"] == {
        "dynamodb:LeadingKeys": "${aws:PrincipalTag/trainguard-account}/*"
    }
    assert team["Condition"]["ForAllValues:StringEquals"] == {
        "dynamodb:LeadingKeys": "${aws:PrincipalTag/trainguard-team}"
    }
    assert all(resource.endswith("/index/ByTeam") for resource in team["Resource"])
    for statement, tag in ((account, "trainguard-account"), (team, "trainguard-team")):
        # ForAllValues holds where a request names no key at all.
        assert statement["Condition"]["Null"] == {"dynamodb:LeadingKeys": "false", f"aws:PrincipalTag/{tag}": "false"}
        assert "dynamodb:Scan" not in statement["Action"]


def test_central_alarms_have_a_section_of_the_runbook(central: Template) -> None:
    runbook = (Path(__file__).parents[2] / "docs" / "organisation.md").read_text(encoding="utf-8")
    alarms = central.of_type("AWS::CloudWatch::Alarm")
    assert len(alarms) == 2
    assert all(f"### {name}\n" in runbook for name in alarms)


def test_central_stack_needs_the_organisation() -> None:
    with pytest.raises(DeploymentConfigError, match="organization_id is missing"):
        synthesise(context={})


def test_accounts_stack_states_its_jobs_and_asks_before_a_stop(member: Template, template: Template) -> None:
    assert held(member, "ForwardingSendStatementsRole") == {
        "ReadJobs": (("dynamodb:GetItem", "dynamodb:Scan"), (JOBS,)),
        "ReadRows": (("dynamodb:Query",), (ROWS,)),
        "StateJobs": (("events:PutEvents",), (BUS,)),
    }
    decide = member.one("AWS::Lambda::Function", "ActionsDecideStopFunction")
    assert decide["Environment"]["Variables"]["STOP_LIMIT_FUNCTION"] == STOP_LIMIT
    assert held(member, "ActionsDecideStopRole")["AskStopLimit"] == (("lambda:InvokeFunction",), (STOP_LIMIT,))
    assert not any("Forwarding" in each.name for each in template.resources)
    assert "AskStopLimit" not in held(template, "ActionsDecideStopRole")


def test_organisations_accounts_write_below_their_own_id_alone(member: Template) -> None:
    (statement,) = (
        each
        for name, each, _ in member.resource_policy_statements()
        if name == "StorageProfilesPolicy" and each.sid == "WriteProfilesOfTheOrganisation"
    )
    assert statement.resources == ("{StorageProfiles.Arn}/${aws:PrincipalAccount}/*",)
    assert statement.condition == {"StringEquals": {"aws:PrincipalOrgID": ORGANIZATION}}
    refused = {each.sid for name, each, _ in member.resource_policy_statements() if each.effect == "Deny"}
    assert {"RefuseWhatNobodyReads", "KeepResultsFromOthers", "RefuseKeysOfOthers"} <= refused
