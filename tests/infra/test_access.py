"""What judges the functions' calls in the tests of their permissions: it must refuse what IAM refuses."""

import pytest

from tests.infra.access import Request, allows
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
def test_given_a_request_when_it_is_judged_then_action_resource_and_condition_must_all_fit(
    asked: Request, allowed: bool
) -> None:
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
