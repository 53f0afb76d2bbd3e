"""A run of the scheduler that dies after any of its calls: the next ones tell what it left."""

import pytest

from tests.support.delivery import Network
from tests.unit.engine.test_telling import live


def alerts(network: Network) -> list[tuple[str, str]]:
    """Return kind and alert id of every execution, in order."""
    started = network.world.executions.started.values()
    return [(str(payload["kind"]), str(payload["alertId"])) for payload in started]


@pytest.fixture(scope="module")
def undisturbed() -> list[tuple[str, str]]:
    return alerts(live())


@pytest.mark.parametrize("dying_after", [0, 1, 3, 6, 11])
def test_dying_runs_notify_once_and_lose_nothing(undisturbed: list[tuple[str, str]], dying_after: int) -> None:
    dying = live(dying_after=dying_after)
    assert dying.crashes > 0
    assert alerts(dying) == undisturbed
