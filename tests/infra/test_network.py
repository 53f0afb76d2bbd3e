"""The network of the functions: the services that they reach are those that their roles may call."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.config import DeploymentConfig
from infra.constructs.network import GATEWAY_SERVICES, INTERFACE_SERVICES, interface_services
from tests.infra.template import Template
from tests.infra.test_choices import SYNTHESISED, read
from tests.infra.variants import CONTEXTS

# Services of IAM whose endpoint has another name.
ENDPOINTS: Mapping[str, str] = {"sagemaker": "sagemaker.api", "aps": "aps-workspaces", "cloudwatch": "monitoring"}

# Statements that Lambda uses outside the function's network.
BY_THEMSELVES = {"ManageNetworkInterfaces", "WriteLogs", "SendTraces"}

# Keys are used by the services that hold what they encrypt; servers of MLflow have an endpoint of their own.
NO_ENDPOINT = {"kms", "sagemaker-mlflow", "xray"}


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
    services = interface_services(DeploymentConfig.from_context(CONTEXTS[name]))
    assert called(read(variants, name)) <= {*services, *GATEWAY_SERVICES}
    assert set(services) - called(read(variants, name)) <= set(INTERFACE_SERVICES)


def test_stack_in_a_vpc_says_which_services_it_reaches(variants: Path) -> None:
    assert read(variants, "govcloud").outputs["InterfaceServices"] == ",".join(INTERFACE_SERVICES)
    assert "InterfaceServices" not in read(variants, "stops").outputs
