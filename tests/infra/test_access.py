"""What judges the functions' calls in the tests of their permissions: it must refuse what IAM refuses."""

import pytest

from tests.infra.access import Request, allows, applies
from tests.infra.template import Statement


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (Request("s3:PutObject", "b/trainguard-canary-1/x"), True),
        (Request("s3:PutObject", "b/my-job/x"), False),
        (Request("s3:GetObject", "b/trainguard-canary-1/x"), False),
        (Request("s3:ListBucket", "b", (("s3:prefix", "trainguard-canary-"),)), True),
        (Request("s3:ListBucket", "b", (("s3:prefix", ""),)), False),
        (Request("s3:ListBucket", "b"), False),
        (Request("dynamodb:PutItem", "t", (("dynamodb:LeadingKeys", "*"),)), True),
        (Request("dynamodb:PutItem", "t", (("dynamodb:LeadingKeys", "my-job"),)), False),
    ],
)
def test_request_must_match_action_resource_and_condition(asked: Request, allowed: bool) -> None:
    statements = [
        Statement("Put", "Allow", ("s3:PutObject",), (), ("b/trainguard-canary-*",), {}),
        Statement("List", "Allow", ("s3:ListBucket",), (), ("b",), {"StringLike": {"s3:prefix": "trainguard-*"}}),
        Statement(
            "Count",
            "Allow",
            ("dynamodb:PutItem",),
            (),
            ("t",),
            {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": "*"}},
        ),
    ]
    assert any(allows(statement, asked) for statement in statements) == allowed


ENCRYPTED = "s3:x-amz-server-side-encryption"


@pytest.mark.parametrize(
    ("condition", "given", "holds"),
    [
        ({"Null": {ENCRYPTED: "false"}}, {ENCRYPTED: "AES256"}, True),
        ({"Null": {ENCRYPTED: "false"}}, {}, False),
        ({"Null": {ENCRYPTED: "true"}}, {}, True),
        ({"Null": {ENCRYPTED: "true"}}, {ENCRYPTED: "AES256"}, False),
        ({"StringNotEquals": {ENCRYPTED: "AES256"}}, {}, True),
        ({"StringNotEquals": {ENCRYPTED: "AES256"}}, {ENCRYPTED: "aws:kms"}, True),
        ({"StringNotEquals": {ENCRYPTED: "AES256"}}, {ENCRYPTED: "AES256"}, False),
        ({"Bool": {"aws:SecureTransport": "false"}}, {"aws:SecureTransport": "true"}, False),
    ],
)
def test_condition_on_a_present_or_missing_key_holds_as_in_iam(
    condition: dict[str, dict[str, str]], given: dict[str, str], holds: bool
) -> None:
    refusal = Statement("Refuse", "Deny", ("s3:*",), (), ("b/*",), condition)
    assert applies(refusal, Request("s3:PutObject", "b/x", tuple(given.items()))) == holds
