"""`trainguard doctor` on a stack in a VPC: each service has a way, by a default route or an endpoint of its own."""

from typing import Any

import pytest

from tests.functional.cli import doctor_account
from tests.functional.cli.doctor_account import Account, endpoint
from tests.functional.cli.doctor_stack import REGION, STACK
from tests.functional.cli.healthy_answers import NOW
from trainguard.aws.endpoints import GATEWAY_SERVICES, INTERFACE_SERVICES
from trainguard.cli.doctor.network import check_network
from trainguard.cli.doctor.site import CheckLevel, CheckResult, Site
from trainguard.cli.options import Where
from trainguard.cli.services.deployment import find_deployment

NAT = {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1", "State": "active"}
INTERNET = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1", "State": "active"}
GATEWAYS = [endpoint(service, "Gateway") for service in GATEWAY_SERVICES]
SQS = endpoint("sqs", "Interface")
OTHERS = [*GATEWAYS, *(endpoint(service, "Interface") for service in INTERFACE_SERVICES if service != "sqs")]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()
    doctor_account.install(account)
    monkeypatch.setattr("trainguard.cli.services.deployment.Session", lambda **_: doctor_account.session())
    return account


def examined() -> list[CheckResult]:
    deployment = find_deployment(Where(stack=STACK, region=REGION))
    return list(check_network(Site(deployment, now=NOW)))


@pytest.mark.parametrize(
    ("routes", "endpoints", "found"),
    [
        ([NAT], [], "1 subnet with a default route"),
        ([], [*OTHERS, SQS], "the endpoints of 9 services in vpc-1"),
    ],
)
def test_functions_with_a_way_to_every_service_are_well(
    account: Account, routes: list[dict[str, Any]], endpoints: list[dict[str, Any]], found: str
) -> None:
    account.place_in_vpc(routes=routes, endpoints=endpoints)
    (finding,) = examined()
    assert (finding.level, finding.found) == (CheckLevel.OK, found)


@pytest.mark.parametrize(
    ("routes", "endpoints", "lacking"),
    [
        ([INTERNET], OTHERS, ["sqs"]),
        ([NAT | {"State": "blackhole"}], OTHERS, ["sqs"]),
        ([], [*OTHERS[len(GATEWAYS) :], SQS], ["s3", "dynamodb"]),
        ([], [*OTHERS, SQS | {"PrivateDnsEnabled": False}], ["sqs"]),
        ([], [*OTHERS, SQS | {"State": "pending"}], ["sqs"]),
    ],
)
def test_each_service_without_a_way_is_named_with_its_command(
    account: Account, routes: list[dict[str, Any]], endpoints: list[dict[str, Any]], lacking: list[str]
) -> None:
    account.place_in_vpc(routes=routes, endpoints=endpoints)
    findings = examined()
    assert [finding.level for finding in findings] == [CheckLevel.FAIL] * len(lacking)
    for finding, service in zip(findings, lacking, strict=True):
        assert finding.found.startswith(f"{service} cannot be reached: subnet-1 without a default route")
        assert f"--service-name com.amazonaws.{REGION}.{service} " in str(finding.command)


def test_route_table_of_the_subnet_goes_before_the_main_one(account: Account) -> None:
    account.place_in_vpc(routes=[NAT], endpoints=[*OTHERS, SQS])
    own = {"RouteTableId": "rtb-2", "Associations": [{"Main": False, "SubnetId": "subnet-1"}], "Routes": []}
    account.change("ec2", "DescribeRouteTables", lambda answer, _: answer["RouteTables"].append(own))
    (finding,) = examined()
    assert finding.found == "the endpoints of 9 services in vpc-1"
