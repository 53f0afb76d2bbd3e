"""How the tests are spread over workers, and how property tests search."""

import os
from pathlib import PurePosixPath

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

EMULATOR = PurePosixPath("tests/localstack")

# No example is timed: machines are noisy. In CI the search is the same each time, elsewhere it goes on to new examples.
settings.register_profile("trainguard", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("trainguard")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Keeps a file's tests together, and all tests on the emulator: it is started, and deployed to, once."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        return str(EMULATOR if EMULATOR in file.parents else file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile | None:
    """Spread the tests so for ``--dist loadscope``, and as xdist does for any other."""
    return ByFile(config, log) if config.getoption("dist") == "loadscope" else None
