"""Policies by which people read their own account's or team's part of the central tables, by tags of their sessions."""

from aws_cdk import Aws, CfnOutput
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.policy import allow
from infra.constructs.storage import JobStorage
from trainguard.aws.dynamodb.central import BY_TEAM_INDEX

ACCOUNT_TAG, TEAM_TAG = "trainguard-account", "trainguard-team"

_READ = ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:PartiQLSelect"]


def let_people_read(stack: Construct, storage: JobStorage) -> None:
    """Make two policies for roles of people, outputs of the stack; a session without the tag reads nothing."""
    tables = [storage.jobs.table_arn, storage.rule_state.table_arn]
    own_account = allow(
        "ReadOwnAccount",
        _READ,
        tables,
        {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": f"${{aws:PrincipalTag/{ACCOUNT_TAG}}}/*"},
            "Null": {"dynamodb:LeadingKeys": "false", f"aws:PrincipalTag/{ACCOUNT_TAG}": "false"},
        },
    )
    own_team = allow(
        "ReadOwnTeam",
        ["dynamodb:Query", "dynamodb:PartiQLSelect"],
        [f"{table}/index/{BY_TEAM_INDEX}" for table in tables],
        {
            "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": f"${{aws:PrincipalTag/{TEAM_TAG}}}"},
            "Null": {"dynamodb:LeadingKeys": "false", f"aws:PrincipalTag/{TEAM_TAG}": "false"},
        },
    )
    for name, statement in {"ReadersOfAccount": own_account, "ReadersOfTeam": own_team}.items():
        policy = iam.ManagedPolicy(
            stack,
            name,
            description=f"Reads a part of TrainGuard's central tables in {Aws.REGION}",
            document=iam.PolicyDocument(statements=[statement]),
        )
        CfnOutput(stack, f"{name}Policy", value=policy.managed_policy_arn)
