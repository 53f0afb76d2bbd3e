"""Where LocalStack, at its start, lets the plugin in."""

from __future__ import annotations

from localstack.runtime import hooks


@hooks.on_infra_start(priority=100)
def install() -> None:
    """Install all substitutes and corrections; one that does not fit this LocalStack stops the start."""
    from . import (  # noqa: PLC0415 -- these import LocalStack's services, which must not load before its start
        conditional_resources,
        control_routes,
        dynamodb_thread,
        event_patterns,
        jsonata_states,
        lifetime,
        resource_polls,
        s3_event_keys,
        schedule_minutes,
        sdk_timestamps,
    )

    for module in (
        lifetime,
        dynamodb_thread,
        jsonata_states,
        event_patterns,
        s3_event_keys,
        sdk_timestamps,
        resource_polls,
        conditional_resources,
        schedule_minutes,
        control_routes,
    ):
        module.install()
