"""The emulator that the tests of this folder share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulator.deploy import deploy
from emulator.launch import Emulator, running_emulator
from tests.localstack.assemblies import STACK, being_written
from tests.localstack.stack import STACK as NAME
from tests.localstack.stack import WEBHOOK_KEY, Posts, Stack, subscribed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.localstack.assemblies import Written

# A `rate(1 minute)` rule ticks this often: no test has to wait for a real minute.
MINUTE_S = 2.0
# Grace times outside SageMaker last ten minutes; those of SageMaker's jobs here are shorter than this.
LONGEST_WAIT_S = 15


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """LocalStack with the plugin, or the LocalStack that LOCALSTACK_ENDPOINT names."""
    folder = tmp_path_factory.mktemp("emulator")
    with running_emulator(
        state_dir=folder,
        lambda_python=Path(sys.executable),
        log=folder / "localstack.log",
        minute_s=MINUTE_S,
        longest_wait_s=LONGEST_WAIT_S,
    ) as running:
        yield running


@pytest.fixture(scope="session")
def posts() -> Posts:
    """The server that the stack's webhook posts to."""
    return Posts()


@pytest.fixture(scope="session")
def written(emulator: Emulator, posts: Posts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """All that is deployed: each place is waited for by its name."""
    held = json.dumps({"url": posts.url, "key": WEBHOOK_KEY})
    secret = emulator.client("secretsmanager").create_secret(Name="webhook", SecretString=held)["ARN"]
    with being_written(tmp_path_factory.mktemp("assemblies"), secret) as wait:
        yield wait


@pytest.fixture(scope="session")
def assembly(written: Written) -> Path:
    """The folder of what `stack` is deployed from."""
    return written(STACK)


@pytest.fixture(scope="session")
def stack(emulator: Emulator, assembly: Path, posts: Posts, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """TrainGuard, deployed into the emulator: the template that goes to AWS, with the emulator's overlay."""
    outputs = deploy(emulator, assembly=assembly, home=tmp_path_factory.mktemp("home"))
    deployed = subscribed(emulator, outputs, NAME)
    deployed.posts = posts
    return deployed
