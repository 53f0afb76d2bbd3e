"""The network of the functions, where the deployment puts them into a VPC."""

from aws_cdk import Aws, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.config import DeploymentConfig
from infra.constructs.policy import allow
from trainguard.aws.endpoints import GATEWAY_SERVICES

_HTTPS = 443


class Network(Construct):
    """The stack's parts in a given VPC: a security group, gateway endpoints, or neither; else ``placement`` is None."""

    def __init__(self, scope: Construct, config: DeploymentConfig) -> None:
        super().__init__(scope, "Network")
        self.placement: lambda_.CfnFunction.VpcConfigProperty | None = None
        if config.subnet_ids:
            groups = config.security_group_ids or (self._build_security_group(config),)
            self.placement = lambda_.CfnFunction.VpcConfigProperty(
                subnet_ids=list(config.subnet_ids), security_group_ids=list(groups)
            )
        for service in GATEWAY_SERVICES if config.route_table_ids else ():
            endpoint = ec2.CfnVPCEndpoint(
                self,
                f"{service}Endpoint",
                vpc_id=str(config.vpc_id),
                service_name=f"com.amazonaws.{Aws.REGION}.{service}",
                vpc_endpoint_type="Gateway",
                route_table_ids=list(config.route_table_ids),
            )
            Tags.of(endpoint).add("Name", f"{config.stack_name}-{service}")

    def _build_security_group(self, config: DeploymentConfig) -> str:
        """Make a group that lets nothing in, and HTTPS out: the functions call services of AWS alone."""
        https = ec2.CfnSecurityGroup.EgressProperty(
            ip_protocol="tcp", from_port=_HTTPS, to_port=_HTTPS, cidr_ip="0.0.0.0/0", description="Services of AWS"
        )
        group = ec2.CfnSecurityGroup(
            self,
            "Functions",
            group_description="Functions of TrainGuard: HTTPS out, nothing in",
            vpc_id=config.vpc_id,
            security_group_egress=[https],
        )
        return group.attr_group_id


def manage_network_interfaces() -> iam.PolicyStatement:
    """Return the statement through which Lambda connects a function to its subnets; the actions know no resources."""
    interfaces = ["CreateNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets", "DeleteNetworkInterface"]
    addresses = ["AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"]
    return allow("ManageNetworkInterfaces", [f"ec2:{action}" for action in (*interfaces, *addresses)], ["*"])
