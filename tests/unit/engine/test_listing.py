"""What a listing of a node's objects holds, and what it leaves out."""

import pytest

from tests.support.memory import MemoryWorld
from trainguard.core.errors import TelemetryFormatError
from trainguard.core.layout import FUTURE_S, ProfileRoot, hour_folder
from trainguard.engine.family import ObjectSource
from trainguard.engine.profiler.listing import SharedNames, system_minutes, trace_of, traces_without_metadata
from trainguard.formats.profile.keys import FrameworkKey, parse_key, system_key

START = 1_795_248_000
ROOT = ProfileRoot("", "job")


def bucket(*keys: str) -> ObjectSource:
    """Return a bucket that got these objects at START."""
    world = MemoryWorld()
    world.objects.now = float(START)
    for key in keys:
        world.objects.put("b", key, b"", "")
    return ObjectSource(world.objects, "b", ROOT, 1_000)


def timelines_of(found: ObjectSource, from_us: int | None = None) -> list[str]:
    names = SharedNames(found.objects).of_node(found.bucket, found.root, "algo-1", from_us, None, None)
    return [key for key, _, _ in names]


def timeline(at: int, node: str = "algo-1") -> str:
    return f"{ROOT.framework}{hour_folder(at)}/{at}000000_7-{node}_pythontimeline.json"


@pytest.mark.parametrize(("ahead_s", "held"), [(FUTURE_S, True), (FUTURE_S + 60, False)])
def test_names_over_an_hour_ahead_of_their_objects_have_no_time(ahead_s: float, held: bool) -> None:
    now, ahead = START, START + int(ahead_s)
    minutes = [system_key(ROOT, "algo-1", at) for at in (now, ahead)]
    timelines = [timeline(at) for at in (now, ahead)]
    found = bucket(*minutes, *timelines)
    assert [key for key, _, _ in system_minutes(found, "algo-1", None)] == (minutes if held else minutes[:1])
    assert timelines_of(found) == (timelines if held else timelines[:1])


def test_listing_from_a_time_on_holds_only_names_of_the_node() -> None:
    foreign = [f"{ROOT.framework}{hour_folder(START)}/notes.txt", f"{ROOT.system}{hour_folder(START)}/notes.txt"]
    own = [timeline(START + at) for at in (0, 60, 120)]
    minutes = [system_key(ROOT, "algo-1", START + at) for at in (0, 60, 120)]
    others = [timeline(START + 60, "algo-2"), system_key(ROOT, "algo-2", START + 60)]
    found = bucket(*own, *minutes, *others, *foreign)
    assert timelines_of(found, (START + 60) * 1_000_000) == own[1:]
    assert [minute for _, minute, _ in system_minutes(found, "algo-1", START)] == [START, START + 60, START + 120]


def of_step(step: int, name: str) -> str:
    return f"{ROOT.tensorflow}{hour_folder(START)}/{step}/{name}"


def trace(step: int, node: str = "algo-1") -> str:
    return of_step(step, f"plugins/profile/2026_11_21_08_00_00/{node}.trace.json.gz")


def metadata(step: int, node: str = "algo-1") -> str:
    return of_step(step, f"{node}_{START}000000_{START + 5}000000.metadata")


@pytest.mark.parametrize(
    ("keys", "count"),
    [
        ([], 0),
        ([trace(1)], 1),
        ([trace(1), trace(2), metadata(2)], 1),
        ([trace(1), metadata(1)], 0),
        ([trace(1), metadata(1, "algo-2")], 0),
        ([trace(1, "algo-2")], 0),
        ([trace(1, "algo-2"), trace(1), metadata(2)], 1),
        ([of_step(1, "notes.txt")], 0),
    ],
)
def test_step_traces_in_a_folder_without_metadata_have_no_times(keys: list[str], count: int) -> None:
    assert traces_without_metadata(bucket(*keys), "algo-1") == count


@pytest.mark.parametrize(
    ("traces", "metadata_of", "found"),
    [
        ([trace(1)], ["algo-1"], trace(1)),
        ([trace(1, "host")], ["algo-1"], trace(1, "host")),
        ([trace(1, "host")], ["algo-1", "algo-2"], None),
        ([trace(1, "algo-2")], ["algo-1", "algo-2"], None),
        ([trace(1), trace(1, "algo-2")], ["algo-1", "algo-2"], trace(1)),
        ([trace(1, "host"), trace(1, "other")], ["algo-1"], None),
    ],
)
def test_trace_of_a_step_is_that_of_the_host_or_the_only_one(
    traces: list[str], metadata_of: list[str], found: str | None
) -> None:
    found_in = bucket(*traces, *(metadata(1, each) for each in metadata_of))
    parsed = parse_key(metadata(1))
    assert isinstance(parsed, FrameworkKey)
    if found is None:
        with pytest.raises(TelemetryFormatError, match="expected one TensorFlow trace for each"):
            trace_of(found_in, metadata(1), parsed)
    else:
        assert trace_of(found_in, metadata(1), parsed) == found
