"""The services of AWS that the functions call, by the names of their VPC endpoints."""

from collections.abc import Collection

# Reached through route tables, at no cost.
GATEWAY_SERVICES = ("s3", "dynamodb")

# Reached through interface endpoints, or a NAT gateway; Lambda itself writes logs and traces.
INTERFACE_SERVICES = ("lambda", "sqs", "states", "sagemaker.api", "ssm", "sns", "events")


def interface_services(
    *, stoppable: Collection[str], live_sources: Collection[str], has_secret: bool
) -> tuple[str, ...]:
    """Return the services behind interface endpoints that functions with these settings call.

    ``stoppable`` are kinds of resources beside training jobs, ``live_sources`` are as in the setting of that name.
    """
    by_setting = {
        "batch": "batch-job" in stoppable,
        "ec2": "instance" in stoppable,
        "logs": any(source.startswith("logs") for source in live_sources),
        "aps-workspaces": any("://aps-workspaces." in source for source in live_sources),
        "monitoring": any("://monitoring." in source for source in live_sources),
        "secretsmanager": has_secret,
    }
    return (*INTERFACE_SERVICES, *(service for service, is_called in by_setting.items() if is_called))
