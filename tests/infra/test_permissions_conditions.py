"""What narrows permissions beyond their resources, compared with a table of its own: a condition less fails here."""

from typing import Any

from tests.infra.template import Template

PARTS = "*/rule-output/TrainGuardReport/parts/*"

CONDITIONS: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("ActionsFireRole", "StopOptedInTrainingJobs"): {
        "StringEquals": {"aws:ResourceTag/trainguard:stop-on-fire": "allowed"}
    },
    ("ActionsFireRole", "EmitFindings"): {"StringEquals": {"events:source": "trainguard"}},
    ("ActionsDecideStopRole", "CountStops"): {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": "*"}},
    ("CanaryRole", "ListCanaries"): {"StringLike": {"s3:prefix": "trainguard-canary-*"}},
    ("CanaryRole", "ReadRowsOfCanaries"): {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": "trainguard-canary-*"},
    },
    ("ReportsBuildReportRole", "ListParts"): {"StringLike": {"s3:prefix": PARTS}},
}


def test_given_the_roles_when_their_conditions_are_read_then_they_are_those_of_the_table(template: Template) -> None:
    found = {
        (role, str(statement.sid)): dict(statement.condition)
        for role, statement in template.role_statements()
        if statement.condition
    }
    assert found == CONDITIONS


def test_given_the_roles_when_their_statements_are_read_then_each_has_a_purpose_of_its_own(template: Template) -> None:
    named = [(role, statement.sid) for role, statement in template.role_statements()]
    assert all(sid for _, sid in named)
    assert len(named) == len(set(named))
