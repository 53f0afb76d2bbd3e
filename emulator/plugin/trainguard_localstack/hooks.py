"""Where LocalStack, at its start, lets the plugin in."""

from localstack.runtime import hooks


@hooks.on_infra_start(priority=100)
def install() -> None:
    """Install all substitutes and corrections; one that does not fit this LocalStack stops the start."""
    from . import (  # noqa: PLC0415 -- these import LocalStack's services, which must not load before its start
        conditional_resources,
        control_routes,
        corrections,
        dynamodb_thread,
        jsonata_states,
        lifetime,
    )

    for module in (lifetime, dynamodb_thread, jsonata_states, corrections, conditional_resources, control_routes):
        module.install()
