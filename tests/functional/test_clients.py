"""The clients give up in time, and none costs anything before it is used."""

import subprocess
import sys
from typing import Any

import pytest

from trainguard.aws.clients import MOST_INVOKED_AT_ONCE, Clients
from trainguard.aws.function_limits import RESERVE_MS
from trainguard.engine.reconcile import WAVE


@pytest.mark.parametrize("name", ["dynamodb", "s3", "sagemaker", "sqs", "ssm", "stepfunctions", "cloudformation"])
def test_client_retries_and_gives_up(clients: Clients, name: str) -> None:
    client = getattr(clients, name)
    config = client.meta.config
    assert client is getattr(clients, name)
    assert client.meta.service_model.service_name == name
    assert (config.connect_timeout, config.read_timeout) == (2, 8)
    assert config.retries == {"mode": "standard", "total_max_attempts": 4}
    # A connection that a firewall has dropped is noticed between two invocations.
    assert config.tcp_keepalive is True


def test_invoking_client_gives_up_within_the_reserve_of_a_run(
    clients: Clients,
) -> None:
    config: Any = clients.functions.meta.config
    attempts = config.retries["total_max_attempts"]
    assert attempts * (config.connect_timeout + config.read_timeout) < RESERVE_MS / 1_000
    assert config.max_pool_connections == MOST_INVOKED_AT_ONCE == WAVE


def test_given_all_adapters_when_imported_then_boto3_is_not() -> None:
    modules = "clients dynamodb.jobs dynamodb.node_states dynamodb.rule_states s3_objects sagemaker sqs stepfunctions"
    imports = "; ".join(f"import trainguard.aws.{module}" for module in modules.split())
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys; {imports}; print('boto3' in sys.modules, 's3transfer' in sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert loaded.stdout.split() == ["False", "False"]
