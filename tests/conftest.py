"""How the tests are spread over workers."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests together, and all tests on the emulator: it is started, and deployed to, once."""
    for item in items:
        place = item.path.relative_to(ROOT)
        group = place.parts[0] if place.parts[0] == "localstack" else str(place)
        item.add_marker(pytest.mark.xdist_group(group))
