"""Documents of settings: read as they are now, distinguished from none, and never half."""

import pytest

from tests.functional.worlds import World
from tests.support.faults import Fault
from tests.support.memory import MemoryWorld
from trainguard.core.errors import PortUnavailableError
from trainguard.testing.memory import DEFAULT_SETTINGS, DEPLOYED_DEFAULT, SETTINGS_PATH


def test_settings_path_of_a_deployment_ends_in_a_slash(world: World) -> None:
    assert (world.settings.default, world.settings.path) == (DEFAULT_SETTINGS, SETTINGS_PATH)
    assert world.settings.path.endswith("/")


def test_default_of_a_deployment_is_as_deployed(world: World) -> None:
    assert world.settings.read(world.settings.default) == DEPLOYED_DEFAULT


@pytest.mark.parametrize("document", ['{"evaluate": "tagged"}', "no JSON", '{"é": "«»\\u2028"}'])
def test_document_is_read_as_last_put(world: World, document: str) -> None:
    name = f"{world.settings.path}team-a/llm"
    world.put_settings(name, "{}")
    world.put_settings(name, document)
    assert world.settings.read(name) == document


def test_given_no_document_when_read_then_there_is_none(world: World) -> None:
    assert world.settings.read(f"{world.settings.path}nothing") is None
    world.remove_settings(world.settings.default)
    assert world.settings.read(world.settings.default) is None


def test_unavailable_store_is_no_missing_document() -> None:
    world = MemoryWorld()
    world.faults.schedule("SettingDocuments.read", Fault.FAIL_BEFORE)
    with pytest.raises(PortUnavailableError, match=r"SettingDocuments\.read"):
        world.settings.read(DEFAULT_SETTINGS)
    assert world.settings.read(DEFAULT_SETTINGS) == DEPLOYED_DEFAULT
