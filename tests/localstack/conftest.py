"""The emulator that the tests of this folder share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulator.launch import Emulator, running_emulator
from tests.localstack.stack import Stack, deploy_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

# A `rate(1 minute)` rule ticks this often: no test has to wait for a real minute.
MINUTE_S = 2.0
# Grace times outside SageMaker last ten minutes; those of SageMaker's jobs here are shorter than this.
LONGEST_WAIT_S = 30


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
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what `stack` is deployed from."""
    return tmp_path_factory.mktemp("assembly") / "cdk.out"


@pytest.fixture(scope="session")
def stack(emulator: Emulator, assembly: Path) -> Stack:
    """TrainGuard, deployed into the emulator."""
    return deploy_stack(emulator, assembly, assembly.with_name("home"))
