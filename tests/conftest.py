"""How the tests are spread over workers, and how property tests search."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
EMULATOR = Path("tests", "localstack")

# No example is timed: machines are noisy. In CI the search is the same each time, elsewhere it goes on to new examples.
settings.register_profile("trainguard", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("trainguard")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests together, and all tests on the emulator: it is started, and deployed to, once."""
    for item in items:
        place = item.path.relative_to(ROOT)
        group = EMULATOR if EMULATOR in place.parents else place
        item.add_marker(pytest.mark.xdist_group(str(group)))
