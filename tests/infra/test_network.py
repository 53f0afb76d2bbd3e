"""The network of the functions: the services that they reach are those that their roles may call."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.infra.template import Template
from tests.infra.test_choices import SYNTHESISED, read
from trainguard.aws.endpoints import GATEWAY_SERVICES, INTERFACE_SERVICES
from trainguard.cli.doctor.network import services_called

# Services of IAM whose endpoint has another name.
ENDPOINTS: Mapping[str, str] = {"sagemaker": "sagemaker.api", "aps": "aps-workspaces", "cloudwatch": "monitoring"}

# Statements that Lambda uses outside the function's network.
BY_THEMSELVES = {"ManageNetworkInterfaces", "WriteLogs", "SendTraces"}

# Keys are used by the services that hold what they encrypt; servers of MLflow have an endpoint of their own.
# Who takes a role checks whether it was passed.
NO_ENDPOINT = {"iam", "kms", "sagemaker-mlflow", "xray"}


def called(template: Template) -> set[str]:
    """Return the services that the functions' roles may call, by the names of their endpoints."""
    functions = template.of_type("AWS::Lambda::Function").values()
    roles = {function.properties["Role"].strip("{}").partition(".")[0] for function in functions}
    found = set()
    for role, statement in template.role_statements():
        if role in roles and statement.sid not in BY_THEMSELVES:
            found |= {action.partition(":")[0] for action in statement.actions}
    return {ENDPOINTS.get(service, service) for service in found - NO_ENDPOINT}


@pytest.mark.parametrize("name", SYNTHESISED)
def test_services_of_the_endpoints_are_those_that_roles_may_call(variants: Path, name: str) -> None:
    template = read(variants, name)
    functions = template.of_type("AWS::Lambda::Function").values()
    services = services_called(each.properties["Environment"]["Variables"] for each in functions)
    assert called(template) <= {*services, *GATEWAY_SERVICES}
    assert set(services) - called(template) <= set(INTERFACE_SERVICES)
