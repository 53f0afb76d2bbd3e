"""The verdict's endpoint: not there unless asked for, guarded by IAM, and able to read alone."""

from pathlib import Path

import pytest

from tests.infra.template import Template


@pytest.fixture
def deployed(variants: Path) -> Template:
    return Template(variants / "verdict" / "TrainGuard.template.json")


def test_default_stack_has_no_verdict_endpoint(template: Template) -> None:
    assert not template.of_type("AWS::Lambda::Url")


def test_endpoint_is_guarded_by_iam_and_admits_nobody(
    deployed: Template,
) -> None:
    (url,) = deployed.of_type("AWS::Lambda::Url").values()
    assert url.properties["AuthType"] == "AWS_IAM"
    assert "Cors" not in url.properties
    invoked = {each.properties["FunctionName"] for each in deployed.of_type("AWS::Lambda::Permission").values()}
    assert not any("Verdict" in str(name) for name in invoked)


def test_endpoint_role_reads_only_jobs_and_rows(
    deployed: Template,
) -> None:
    held = [each for role, each in deployed.role_statements() if role == "VerdictRole"]
    statements = {each.sid: (each.actions, each.resources) for each in held}
    own = {sid: given for sid, given in statements.items() if sid in {"ReadJobs", "ReadRows"}}
    assert own == {
        "ReadJobs": (("dynamodb:GetItem",), ("{StorageJobs.Arn}",)),
        "ReadRows": (("dynamodb:Query",), ("{StorageRuleState.Arn}",)),
    }
    others = {action for sid, (actions, _) in statements.items() if sid not in own for action in actions}
    assert others == {"logs:CreateLogStream", "logs:PutLogEvents"}
