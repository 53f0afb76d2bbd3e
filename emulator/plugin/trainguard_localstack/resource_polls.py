"""CloudFormation checks a resource every 0.1 s, not every 5 s: eight functions would take 40 s longer."""

from __future__ import annotations

import functools

from localstack.services.cloudformation.resource_provider import ResourceProviderExecutor

INTERVAL_S = 0.1


def install() -> None:
    ResourceProviderExecutor.deploy_loop = functools.partialmethod(
        ResourceProviderExecutor.deploy_loop, sleep_time=INTERVAL_S
    )
