"""The key of an existing bucket: roles that use its objects may use it, through S3 alone; no more."""

import json
from pathlib import Path

import pytest

from tests.infra.template import Statement, Template
from tests.infra.test_choices import read, statements_by_role
from tests.infra.variants import CONTEXTS, THEIR_KEY

READS = ("kms:Decrypt",)
WRITES = ("kms:Decrypt", "kms:GenerateDataKey")
THROUGH_S3 = {"StringLike": {"kms:ViaService": ["s3.{AWS::Region}.amazonaws.com*"]}}
EXPECTED = {
    "EvaluationEvaluateObjectsRole": READS,
    "EvaluationReconcileJobRole": READS,
    "CanaryRole": WRITES,
    "ReportsPlanReportRole": WRITES,
    "ReportsDigestProfileRole": WRITES,
    "ReportsBuildReportRole": WRITES,
    "ReportsReportRole": READS,
    "CapturesPlanCaptureRole": WRITES,
    "CapturesDigestTraceRole": WRITES,
    "CapturesJoinCaptureRole": WRITES,
    "CapturesKernelsRole": READS,
}
OWN_KEY = str(CONTEXTS["everything"]["kms_key_arn"])


def on_keys(template: Template) -> dict[str, list[Statement]]:
    """Return the statements on keys by role."""
    found = {
        role: [each for each in statements if any(action.startswith("kms:") for action in each.actions)]
        for role, statements in statements_by_role(template).items()
    }
    return {role: statements for role, statements in found.items() if statements}


def test_roles_using_bucket_objects_may_use_its_key(
    variants: Path,
) -> None:
    found = on_keys(read(variants, "their-bucket"))
    assert {role: [each.actions for each in statements] for role, statements in found.items()} == {
        role: [actions] for role, actions in EXPECTED.items()
    }
    for (statement,) in found.values():
        assert (statement.sid, statement.resources) == ("UseProfileKey", (THEIR_KEY,))
        assert statement.condition == THROUGH_S3


def test_bucket_key_encrypts_nothing_the_stack_makes(
    variants: Path,
) -> None:
    resources = read(variants, "their-bucket").resources
    holders = {each.type for each in resources if THEIR_KEY in json.dumps(dict(each.properties))}
    assert holders == {"AWS::IAM::Role"}


def test_each_of_both_keys_serves_what_it_encrypts(variants: Path) -> None:
    found = on_keys(read(variants, "everything"))
    for role, statements in found.items():
        for statement in statements:
            services = {each.split(".")[0] for each in statement.condition["StringLike"]["kms:ViaService"]}
            assert statement.resources == (THEIR_KEY if services == {"s3"} else OWN_KEY,), role
            assert services == {"s3"} or "s3" not in services
    assert {role for role, statements in found.items() if "UseProfileKey" in {each.sid for each in statements}} == set(
        EXPECTED
    )
    canary = {each.sid: each.actions for each in found["CanaryRole"]}
    assert canary == {"UseKey": WRITES, "UseProfileKey": WRITES}
    machine = {each.sid: each.actions for each in found["ReportsReportRole"]}
    assert machine == {"UseProfileKey": READS}


@pytest.mark.parametrize("name", ["person", "writers"])
def test_roles_without_a_key_may_use_none(variants: Path, name: str) -> None:
    assert on_keys(read(variants, name)) == {}
