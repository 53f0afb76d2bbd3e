"""A read-only HTTPS endpoint for verdicts on jobs: a function with a URL that IAM guards."""

from aws_cdk import CfnOutput
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.policy import allow


def build_verdict(stack: Construct, platform: Platform) -> TrainGuardFunction:
    """Build the function, which only reads jobs and rows, and its URL, an output of the stack.

    A caller needs ``lambda:InvokeFunctionUrl`` and ``lambda:InvokeFunction`` on the function, and signs its requests.
    """
    storage = platform.storage
    verdict = TrainGuardFunction(
        Construct(stack, "Verdict"),
        "verdict",
        platform=platform,
        statements=[
            allow("ReadJobs", ["dynamodb:GetItem"], [storage.jobs.table_arn]),
            allow("ReadRows", ["dynamodb:Query"], [storage.rule_state.table_arn]),
        ],
        environment=storage.variables("JOBS_TABLE", "RULE_STATE_TABLE"),
        timeout_s=20,
    )
    url = verdict.function.add_function_url(auth_type=lambda_.FunctionUrlAuthType.AWS_IAM).url
    CfnOutput(stack, "VerdictUrl", value=url)
    return verdict
