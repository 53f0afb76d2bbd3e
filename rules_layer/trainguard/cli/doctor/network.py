"""Checks of the network: whether functions in a VPC reach the services that they call."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainguard.aws.endpoints import GATEWAY_SERVICES, interface_services
from trainguard.cli.doctor.site import CheckResult, Site, asking, fail, ok, unless
from trainguard.core.units import counted

_DEFAULT_ROUTE = "0.0.0.0/0"


def check_network(site: Site) -> Iterable[CheckResult]:
    """Judge whether each subnet has a default route or, without one, the endpoints of all services."""
    functions = site.functions.values()
    placed = [each["VpcConfig"] for each in functions if each.get("VpcConfig", {}).get("SubnetIds")]
    if not placed:
        return [ok("no function runs in a VPC")]
    vpc = placed[0].get("VpcId", "")
    subnets = {subnet for each in placed for subnet in each.get("SubnetIds", ())}
    shut = sorted(subnets - _with_default_route(site, vpc, subnets))
    if not shut:
        return [ok(f"{counted(len(subnets), 'subnet')} with a default route")]
    services = (
        *GATEWAY_SERVICES,
        *services_called(each.get("Environment", {}).get("Variables", {}) for each in functions),
    )
    missing = [each for each in services if each not in _endpoints(site, vpc)]
    faults = []
    for service in missing:
        by_gateway = service in GATEWAY_SERVICES
        words = ["--vpc-id", vpc, "--service-name", f"com.amazonaws.{site.deployment.region}.{service}"]
        words += ["--vpc-endpoint-type", "Gateway" if by_gateway else "Interface"]
        words += [] if by_gateway else ["--subnet-ids", *shut, "--private-dns-enabled"]
        faults.append(
            fail(
                f"{service} cannot be reached: {', '.join(shut)} without a default route, {vpc} without its endpoint",
                "Make the endpoint, with private DNS, in these subnets; or give them a route to a NAT gateway.",
                site.aws("ec2", "create-vpc-endpoint", *words),
            )
        )
    return unless(faults, f"the endpoints of {counted(len(services), 'service')} in {vpc}")


def services_called(environments: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the services behind interface endpoints, by the variables of all functions."""
    variables = {name: value for each in environments for name, value in each.items()}
    return interface_services(
        stoppable=variables.get("STOPPABLE_RESOURCES", "").split(","),
        live_sources=variables.get("LIVE_SOURCES", "").split(),
        has_secret="LIVE_SOURCE_SECRET" in variables,
    )


def _with_default_route(site: Site, vpc: str, subnets: Iterable[str]) -> set[str]:
    """Return the subnets whose route table, else the VPC's main one, leads to all addresses."""
    tables = _described(site, "route_tables", "RouteTables", vpc)
    by_subnet: dict[str, Mapping[str, Any]] = {}
    main: Mapping[str, Any] = {}
    for table in tables:
        for association in table.get("Associations", ()):
            if association.get("Main"):
                main = table
            elif "SubnetId" in association:
                by_subnet[association["SubnetId"]] = table
    return {subnet for subnet in subnets if _leads_out(by_subnet.get(subnet, main))}


def _leads_out(table: Mapping[str, Any]) -> bool:
    """Whether a table has a default route that works for a function, which has no public address."""
    return any(
        route.get("DestinationCidrBlock") == _DEFAULT_ROUTE
        and route.get("State") == "active"
        and not route.get("GatewayId", "").startswith("igw-")
        for route in table.get("Routes", ())
    )


def _endpoints(site: Site, vpc: str) -> set[str]:
    """Return the services with an endpoint that is available; an interface counts with private DNS only."""
    found = _described(site, "vpc_endpoints", "VpcEndpoints", vpc)
    prefix = f".{site.deployment.region}."
    return {
        each["ServiceName"].partition(prefix)[2]
        for each in found
        if each.get("State", "").lower() == "available"
        and (each.get("VpcEndpointType") == "Gateway" or each.get("PrivateDnsEnabled"))
    }


def _described(site: Site, what: str, answer: str, vpc: str) -> Sequence[Mapping[str, Any]]:
    action = "".join(word.capitalize() for word in what.split("_"))
    with asking(f"ec2:Describe{action}"):
        pages = site.clients.ec2.get_paginator(f"describe_{what}").paginate(
            Filters=[{"Name": "vpc-id", "Values": [vpc]}]
        )
        return [each for page in pages for each in page[answer]]
