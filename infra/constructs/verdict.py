"""A read-only HTTPS endpoint for verdicts on jobs: a function with a URL that IAM guards."""

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.function import FunctionPlatform, TrainGuardFunction
from infra.constructs.policy import allow
from infra.constructs.storage import Storage


class VerdictEndpoint(Construct):
    """The function, which only reads jobs and rows, and its URL.

    A caller needs ``lambda:InvokeFunctionUrl`` and ``lambda:InvokeFunction`` on the function, and signs its requests.
    """

    def __init__(self, scope: Construct, construct_id: str, *, platform: FunctionPlatform, storage: Storage) -> None:
        super().__init__(scope, construct_id)
        self.function = TrainGuardFunction(
            self,
            "verdict",
            platform=platform,
            statements=[
                allow("ReadJobs", ["dynamodb:GetItem"], [storage.jobs.table_arn]),
                allow("ReadRows", ["dynamodb:Query"], [storage.rule_state.table_arn]),
            ],
            environment=storage.variables("JOBS_TABLE", "RULE_STATE_TABLE"),
            timeout_s=20,
        )
        self.url = self.function.function.add_function_url(auth_type=lambda_.FunctionUrlAuthType.AWS_IAM).url
