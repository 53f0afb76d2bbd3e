"""What a listing of a node's objects holds, and what it leaves out."""

import pytest

from trainguard.adapters.memory.world import MemoryWorld
from trainguard.families.profiler.listing import ProfileListing
from trainguard.layout import FUTURE_S, ProfileRoot, hour_folder
from trainguard.telemetry.keys import system_key

START = 1_795_248_000
ROOT = ProfileRoot("", "job")


def listing(*keys: str) -> ProfileListing:
    """Return the listing of a node of a bucket that got these objects at START."""
    world = MemoryWorld()
    world.objects.now = float(START)
    for key in keys:
        world.objects.put("b", key, b"", "")
    return ProfileListing(objects=world.objects, bucket="b", root=ROOT, node="algo-1")


def timeline(at: int, node: str = "algo-1") -> str:
    return f"{ROOT.framework}{hour_folder(at)}/{at}000000_7-{node}_pythontimeline.json"


@pytest.mark.parametrize(("ahead_s", "held"), [(FUTURE_S, True), (FUTURE_S + 60, False)])
def test_given_names_ahead_of_their_objects_when_listed_then_those_by_more_than_an_hour_are_no_times(
    ahead_s: float, held: bool
) -> None:
    now, ahead = START, START + int(ahead_s)
    minutes = [system_key(ROOT, "algo-1", at) for at in (now, ahead)]
    timelines = [timeline(at) for at in (now, ahead)]
    found = listing(*minutes, *timelines)
    assert [key for key, _, _ in found.minutes(None)] == (minutes if held else minutes[:1])
    assert [key for key, _, _ in found.framework()] == (timelines if held else timelines[:1])


def test_given_other_nodes_and_foreign_names_when_listed_from_a_time_on_then_only_the_nodes_own_are_held() -> None:
    foreign = [f"{ROOT.framework}{hour_folder(START)}/notes.txt", f"{ROOT.system}{hour_folder(START)}/notes.txt"]
    own = [timeline(START + at) for at in (0, 60, 120)]
    minutes = [system_key(ROOT, "algo-1", START + at) for at in (0, 60, 120)]
    others = [timeline(START + 60, "algo-2"), system_key(ROOT, "algo-2", START + 60)]
    found = listing(*own, *minutes, *others, *foreign)
    assert [key for key, _, _ in found.framework((START + 60) * 1_000_000)] == own[1:]
    assert [minute for _, minute, _ in found.minutes(START)] == [START, START + 60, START + 120]
