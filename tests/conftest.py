"""How the tests are spread over workers, and how property tests search."""

import gc
import os
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

import pytest
import typer.testing
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

EMULATOR = PurePosixPath("tests/localstack")
# Folders whose files take long; those of `tests/unit` take the least, and come last, when a worker has time left.
LONGEST_FIRST = tuple(
    map(PurePosixPath, ("tests/localstack", "tests/browser", "tests/infra", "tests/functional", "tests/answers"))
)

LAST = PurePosixPath("tests/unit")

# No example is timed: machines are noisy. In CI the search is the same each time, elsewhere it goes on to new examples.
settings.register_profile(
    "short", max_examples=20, deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI"))
)
settings.register_profile("long", max_examples=1_000, deadline=None, print_blob=True)
settings.load_profile("short")


gc.disable()  # collected tests and imported modules stay to the end: the collector of garbage need not look at them


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def commands_built_once() -> Iterator[None]:
    """Let all tests that run a command share the parser of its options."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer.testing, "_get_command", cache(vars(typer.testing)["_get_command"]))
        yield


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Keeps a file's tests together, and all tests on the emulator: it is started, and deployed to, once."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        return str(EMULATOR if EMULATOR in file.parents else file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile | None:
    """Spread the tests so for ``--dist loadscope``, and as xdist does for any other."""
    if config.getoption("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False  # the number of a file's tests says nothing about their time
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a worker begin with the longest tests: who is done early takes short ones. Alone, the given order stays."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    above = PurePosixPath(item.nodeid.partition("::")[0]).parents
    first = next((turn for turn, folder in enumerate(LONGEST_FIRST) if folder in above), len(LONGEST_FIRST))
    return first + (LAST in above)
