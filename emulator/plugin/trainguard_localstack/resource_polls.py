"""CloudFormation looks every 0.1 s whether a resource is ready, not every 5 s.

LocalStack makes resources one after the other, and each Lambda function is ready some milliseconds after the first
look: a stack of eight functions would take 40 s longer. The time after which it gives up stays the same.
"""

from __future__ import annotations

import functools

from localstack.services.cloudformation.resource_provider import ResourceProviderExecutor

INTERVAL_S = 0.1


def install() -> None:
    """Shorten the interval."""
    ResourceProviderExecutor.deploy_loop = functools.partialmethod(
        ResourceProviderExecutor.deploy_loop, sleep_time=INTERVAL_S
    )
