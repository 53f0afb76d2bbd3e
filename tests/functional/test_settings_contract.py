"""Documents of settings: read as they are now, told apart from none, and never half."""

import pytest

from tests.functional.worlds import World
from trainguard.adapters.memory.faults import Fault
from trainguard.adapters.memory.settings import DEFAULT_SETTINGS, DEPLOYED_DEFAULT, SETTINGS_PATH
from trainguard.adapters.memory.world import MemoryWorld
from trainguard.errors import PortUnavailableError


def test_given_a_deployment_when_its_names_are_read_then_the_path_ends_in_a_slash(world: World) -> None:
    assert (world.settings.default, world.settings.path) == (DEFAULT_SETTINGS, SETTINGS_PATH)
    assert world.settings.path.endswith("/")


def test_given_a_deployment_when_its_default_is_read_then_it_is_what_was_deployed(world: World) -> None:
    assert world.settings.read(world.settings.default) == DEPLOYED_DEFAULT


@pytest.mark.parametrize("document", ['{"evaluate": "tagged"}', "no JSON", '{"é": "«»\\u2028"}'])
def test_given_a_document_when_read_then_it_is_as_it_was_put_last(world: World, document: str) -> None:
    name = f"{world.settings.path}team-a/llm"
    world.put_settings(name, "{}")
    world.put_settings(name, document)
    assert world.settings.read(name) == document


def test_given_no_document_when_read_then_there_is_none(world: World) -> None:
    assert world.settings.read(f"{world.settings.path}nothing") is None
    world.remove_settings(world.settings.default)
    assert world.settings.read(world.settings.default) is None


def test_given_a_store_that_does_not_answer_when_read_then_it_is_no_missing_document() -> None:
    world = MemoryWorld()
    world.faults.schedule("SettingDocuments.read", Fault.FAIL_BEFORE)
    with pytest.raises(PortUnavailableError, match=r"SettingDocuments\.read"):
        world.settings.read(DEFAULT_SETTINGS)
    assert world.settings.read(DEFAULT_SETTINGS) == DEPLOYED_DEFAULT
