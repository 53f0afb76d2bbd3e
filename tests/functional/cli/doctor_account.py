"""An AWS account that answers from a table: the stack of the synthesised template, in good health.

Questions never leave the process. A question and its answer are held against the model of the service, so neither can
have a shape that AWS does not know.
"""

import json
import os
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from types import SimpleNamespace
from typing import Any

from botocore.config import Config
from botocore.exceptions import ParamValidationError
from botocore.session import Session
from botocore.validate import validate_parameters

from tests.functional.cli.doctor_stack import (
    BUCKET,
    REGION,
)
from tests.functional.cli.healthy_answers import NAME, Answer, Given, Question, RefusalError, always, encrypted, healthy


def endpoint(service: str, kind: str, **changes: object) -> dict[str, Any]:
    """Return a VPC endpoint that is available, as it is described."""
    found = {"ServiceName": f"com.amazonaws.{REGION}.{service}", "VpcEndpointType": kind, "State": "available"}
    return found | {"PrivateDnsEnabled": kind == "Interface"} | changes


class Account:
    """The account; ``answers`` may be changed, ``asked`` holds what was asked."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.answers: dict[Question, Answer] = healthy()

    def change(self, service: str, operation: str, change: Callable[[dict[str, Any], Given], object]) -> None:
        """Let an answer be changed in place by a function of it and of the question."""
        before = self.answers[service, operation]

        def changed(given: Given) -> dict[str, Any]:
            answer = deepcopy(before(given))
            change(answer, given)
            return answer

        self.answers[service, operation] = changed

    def use_existing_bucket(self, *, notifies: bool) -> None:
        """Let the stack have an existing bucket, which notifies the queue or whose events it takes."""

        def drop(answer: dict[str, Any], given: Given) -> None:
            dropped = (
                "StorageProfiles",
                *(("IngestJobFile", "IngestProfile", "IngestTraining", "IngestKernels") * notifies),
            )
            kept = [
                each for each in answer["StackResourceSummaries"] if not each["LogicalResourceId"].startswith(dropped)
            ]
            answer["StackResourceSummaries"] = kept

        def let_in(answer: dict[str, Any], given: Given) -> None:
            source = {"ArnEquals": {"aws:SourceArn": f"arn:aws:s3:::{BUCKET}"}}
            may = {"Effect": "Allow", "Principal": {"Service": "s3.amazonaws.com"}, "Condition": source}
            if "Policy" in given["AttributeNames"]:
                answer["Attributes"]["Policy"] = json.dumps({"Statement": [may] * notifies})

        self.change("cloudformation", "ListStackResources", drop)
        self.change("sqs", "GetQueueAttributes", let_in)

    def encrypt_bucket(self, key: str, *, roles_may: bool = True) -> None:
        """Let the bucket have a key of a person's, which the roles may use or not."""
        self.answers["s3", "GetBucketEncryption"] = always(encrypted("aws:kms", key))

        def allow(answer: dict[str, Any], given: Given) -> None:
            for result in answer["EvaluationResults"]:
                if result["EvalActionName"].startswith("kms:"):
                    result["EvalDecision"] = "allowed" if roles_may else "implicitDeny"

        self.change("iam", "SimulatePrincipalPolicy", allow)

    def place_in_vpc(self, *, routes: list[dict[str, Any]], endpoints: list[dict[str, Any]]) -> None:
        """Let all functions run in a subnet of a VPC with these routes of its main table, and these endpoints."""
        placed = {"VpcId": "vpc-1", "SubnetIds": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
        self.change("lambda", "GetFunctionConfiguration", lambda answer, _: answer.update(VpcConfig=placed))
        table = {"RouteTableId": "rtb-1", "Associations": [{"Main": True}], "Routes": routes}
        self.answers["ec2", "DescribeRouteTables"] = always({"RouteTables": [table]})
        self.answers["ec2", "DescribeVpcEndpoints"] = always({"VpcEndpoints": endpoints})

    def refuse(self, service: str, operation: str, code: str, status: int = 400) -> None:
        """Let a question be answered by an error."""

        def refused(given: Given) -> dict[str, Any]:
            raise RefusalError(code, f"User: {NAME} is not authorized", status)

        self.answers[service, operation] = refused

    def answer(self, model: Any, given: Given) -> tuple[SimpleNamespace, dict[str, Any]] | None:
        """Answer a question, as botocore's event ``before-call`` wants it."""
        question = (model.service_model.service_name, model.name)
        self.asked.append(question)
        try:
            answer = self.answers[question](given)
        except RefusalError as refusal:
            fault = {"Error": {"Code": refusal.code, "Message": refusal.message}}
            return SimpleNamespace(status_code=refusal.status), fault
        if model.output_shape is not None:
            self._hold_against_the_model(question, answer, model.output_shape)
        return SimpleNamespace(status_code=200), answer

    @staticmethod
    def _hold_against_the_model(question: Question, answer: dict[str, Any], shape: Any) -> None:
        try:
            validate_parameters(answer, shape)
        except ParamValidationError as fault:
            # Not botocore's own error, which would pass for an answer of AWS.
            raise AssertionError(f"{question}: {fault}") from fault


_current: list[Account] = []


class OneClientEach(Session):
    """A session that makes a client once for the same environment: what it answers is the account's."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[str, Any] = {}

    def create_client(self, service_name: str, *given: Any, **named: Any) -> Any:
        plain = {name: vars(each) if isinstance(each, Config) else each for name, each in named.items()}
        around = sorted(each for each in os.environ.items() if each[0].startswith("AWS_"))
        key = repr((service_name, given, sorted(plain.items()), around))
        if key not in self._made:
            self._made[key] = super().create_client(service_name, *given, **named)
        return self._made[key]


@cache
def session() -> Session:
    """Return a session whose clients ask the account that was installed last; it reads each service's model once."""
    made = OneClientEach()
    made.set_credentials("testing", "testing")
    made.set_config_variable("region", REGION)

    def remember(**event: Any) -> None:
        event["context"]["given"] = event["params"]

    def answer(**event: Any) -> Any:
        return _current[-1].answer(event["model"], event["context"]["given"])

    made.register("before-parameter-build", remember)
    made.register("before-call", answer)
    return made


def install(account: Account) -> None:
    """Let this account answer from now on."""
    _current[:] = [account]
