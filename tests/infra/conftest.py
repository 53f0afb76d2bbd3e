"""Cloud assemblies that several tests read: each is synthesised once, whatever the number of workers."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.infra import synthesis
from tests.infra.template import Template


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers share."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "synthesised"
    folder.mkdir(exist_ok=True)
    return folder


def _once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Return ``folder`` after the first worker that asked has filled it."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.with_suffix(".done")
        if not done.exists():
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def checkout(shared: Path) -> Path:
    """Return a copy of the checkout, so that all assemblies of a run are made of the same files."""
    return _once(shared / "checkout", synthesis.copy_with_layers)


@pytest.fixture(scope="session")
def variants(shared: Path, checkout: Path) -> Path:
    """Return the folder of all assemblies (see `variants.py`)."""
    return _once(shared / "assemblies", lambda folder: synthesis.run_all(folder, checkout))


@pytest.fixture(scope="session")
def elsewhere(shared: Path, checkout: Path) -> Path:
    """Return where the command line synthesised in another checkout (see `synthesis.run_cli`)."""
    return _once(shared / "elsewhere", lambda folder: synthesis.run_cli(folder, checkout))


@pytest.fixture(scope="session")
def production(variants: Path) -> Path:
    """Return the assembly with the default context."""
    return variants / "production"


@pytest.fixture(scope="session")
def template(production: Path) -> Template:
    """Return the template with the default context."""
    return Template(production / "TrainGuard.template.json")


@pytest.fixture(scope="session")
def releases(variants: Path) -> Path:
    """Return the folder of a release's template, and of what it is compared with (see `releases.py`)."""
    return variants / "releases"


@pytest.fixture(scope="session")
def emulator_template(variants: Path) -> Template:
    """Return the template for an emulator on this machine."""
    return Template(variants / "emulator" / "TrainGuard.template.json")
