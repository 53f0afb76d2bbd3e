"""Snapshots of PyTorch's allocator, of several versions and forms, cut and hostile ones."""

import gzip
import io
import json
import pickle
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.memory_snapshots import (
    FORWARD,
    LEAK,
    LOGITS,
    MIB,
    OPTIMIZER,
    SETUP,
    Allocator,
    Training,
    as_json,
    frame,
    pickled,
)
from trainguard.core.errors import KernelTraceError
from trainguard.kernels.memory import snapshot as reader
from trainguard.kernels.memory.entries import GpuMemory
from trainguard.kernels.memory.frames import own_frame
from trainguard.kernels.memory.snapshot import MemorySnapshot, read_snapshot
from trainguard.kernels.profile import snapshot_profile
from trainguard.kernels.readers.reading import read_any, read_recording

VERSIONS = ("1.13", "2.0", "2.12")


def read(body: bytes, name: str = "rank3_memory_snapshot.pickle") -> MemorySnapshot:
    found = read_recording(name, partial(io.BytesIO, body))
    assert isinstance(found, MemorySnapshot)
    return found


def memory_of(body: bytes) -> GpuMemory:
    (memory,) = snapshot_profile(read(body)).memory
    return memory


def trained(steps: int = 5, **more: Any) -> Allocator:
    training = Training(**more)
    training.setup()
    training.run(steps)
    return training.allocator


@pytest.mark.parametrize("version", VERSIONS)
def test_kinds_at_the_peak_are_what_the_loop_holds(version: str) -> None:
    """The last forward has four layers of activations and logits; backward's first buffer is passing."""
    memory = memory_of(pickled(trained(logits=65).snapshot(version)))
    assert {kind: size // MIB for kind, size in memory.kinds.items()} == {
        "parameters": 4 * 8,
        "gradients": 0,
        "optimizer_state": 8 * 8,
        "activations": 4 * 16 + 65,
        "workspace": 16,
        "unattributed": 0,
    }
    assert memory.peak == sum(memory.kinds.values())
    assert memory.clock == ("time" if version == "2.12" else "events")
    first = memory.holders[0]
    assert (first.kind, first.bytes, first.blocks, own_frame(first.where)) == (
        "activations", 65 * MIB, 1, "/app/model.py:77 head",
    )  # fmt: skip


def test_gradients_are_known_where_frees_have_no_stack() -> None:
    """As in older versions; the last buffer of backward then counts with them, as nothing says who frees it."""
    training = Training(workspace=60)
    training.setup()
    training.run(3)
    for address in training.gradients:
        training.allocator.free(address)
    snapshot = training.allocator.snapshot()
    for event in snapshot["device_traces"][0]:
        if event["action"].startswith("free"):
            event["frames"] = []
    curve = memory_of(pickled(snapshot)).curve
    assert max(curve.kinds["gradients"]) == (4 * 8 + 16) * MIB
    assert curve.kinds["gradients"][-1] == 0


@pytest.mark.parametrize("form", [pickled, as_json, partial(pickled, protocol=2), partial(pickled, protocol=0)])
def test_each_form_gives_the_same(form: Any) -> None:
    body = form(trained().snapshot())
    plain = memory_of(body)
    assert plain == memory_of(pickled(trained().snapshot()))
    assert plain == memory_of(gzip.compress(body))


def test_the_curve_is_what_the_events_add_up_to() -> None:
    allocator = trained(leak=2)
    history = read(pickled(allocator.snapshot())).histories[0]
    way = {"alloc": (1, 0), "free_requested": (-1, 0), "segment_alloc": (0, 1), "segment_free": (0, -1)}
    allocated, reserved, expected = 0, 0, []
    for event in allocator.events:
        if event["action"] in way:
            allocated += way[event["action"]][0] * event["size"]
            reserved += way[event["action"]][1] * event["size"]
            expected.append((event["time_us"] * 1_000, allocated, reserved))
    columns = (history.at, history.allocated, history.reserved)
    assert list(zip(*(each.tolist() for each in columns), strict=True)) == expected
    assert (expected[-1][1], expected[-1][2]) == (allocator.allocated, allocator.reserved)


@given(st.integers(1, 200))
def test_the_last_events_give_the_end_of_the_same_curve(most: int) -> None:
    allocator = trained(leak=2)
    whole = read(pickled(allocator.snapshot())).histories[0]
    allocator.most_events = most
    cut = read(pickled(allocator.snapshot())).histories[0]
    kept = sum(event["action"] != "free_completed" for event in allocator.events[-most:])
    for column in ("allocated", "reserved"):
        assert getattr(cut, column)[-max(kept, 1) :].tolist() == getattr(whole, column)[-max(kept, 1) :].tolist()
    held_at_end = sum(size for size, died in zip(cut.size, cut.died, strict=True) if died == len(cut))
    assert held_at_end == allocator.allocated


def test_blocks_from_before_the_recording_have_their_stack() -> None:
    allocator = Allocator(records=False)
    for frames in (SETUP, SETUP, OPTIMIZER, FORWARD):
        allocator.alloc(3 * MIB, frames)
    allocator.alloc(5 * MIB, [])
    allocator.records = True
    allocator.alloc(MIB, FORWARD)
    memory = memory_of(pickled(allocator.snapshot()))
    held = {kind: size // MIB for kind, size in memory.kinds.items() if size}
    assert held == {"parameters": 6, "optimizer_state": 3, "unattributed": 8, "activations": 1}
    assert memory.counts["earlier"] == 5


def test_without_any_stack_nothing_is_attributed() -> None:
    training = Training()
    training.setup()
    training.run(3)
    snapshot = training.allocator.snapshot()
    for event in snapshot["device_traces"][0]:
        event.pop("frames")
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            block.pop("frames", None)
    memory = memory_of(pickled(snapshot))
    assert memory.kinds["unattributed"] == memory.peak
    assert memory.estimates == []


def test_how_segments_are_divided_is_added_up() -> None:
    allocator = Allocator()
    held = [allocator.alloc(5 * MIB - 100, FORWARD) for _ in range(8)]
    for address in held[::2]:
        allocator.free(address)
    allocator.alloc(30 * MIB, LOGITS)
    allocator.free(allocator.alloc(3 * MIB, LOGITS))
    allocator.free(allocator.alloc(21 * MIB, LOGITS))
    snapshot = allocator.snapshot()
    snapshot["segments"][0]["blocks"][1]["state"] = "active_awaiting_free"
    parts = memory_of(pickled(snapshot)).fragments
    assert parts is not None
    rounded = 5 * MIB
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    states = Counter[str]()
    for block in blocks:
        states[block["state"]] += block["size"]
    assert (parts.reserved, parts.segments) == (92 * MIB, 4)
    assert (parts.allocated, parts.waiting, parts.free) == (
        states["active_allocated"], states["active_awaiting_free"], states["inactive"],
    )  # fmt: skip
    assert parts.allocated + parts.waiting + parts.free == parts.reserved
    # The last segment is free as a whole, so it could be given back.
    assert (parts.largest_free, parts.inactive_split) == (22 * MIB, 4 * rounded)
    assert parts.rounding == sum(
        block["size"] - block["requested_size"] for block in blocks if block["state"] == "active_allocated"
    )


def test_expandable_segments_are_mapped_and_unmapped() -> None:
    events = [
        {"action": "segment_map", "addr": 0, "size": 20 * MIB, "frames": []},
        {"action": "alloc", "addr": 0, "size": 15 * MIB, "frames": FORWARD},
        {"action": "segment_map", "addr": 20 * MIB, "size": 20 * MIB, "frames": []},
        {"action": "segment_unmap", "addr": 20 * MIB, "size": 20 * MIB, "frames": []},
    ]
    block = {"size": 20 * MIB, "requested_size": 15 * MIB, "address": 0, "state": "active_allocated", "frames": FORWARD}
    segment = {"device": 1, "address": 0, "total_size": 20 * MIB, "stream": 0, "blocks": [block]}
    body = {"segments": [segment], "device_traces": [[], events], "allocator_settings": {"expandable_segments": True}}
    (history,) = read(pickled(body)).histories
    assert (history.reserved // MIB).tolist() == [20, 20, 40, 20]
    assert (history.device, history.expandable_segments) == (1, True)


def test_each_device_has_its_own_history() -> None:
    first, second = trained().snapshot(), trained(allocator=Allocator(device=2), logits=9).snapshot()
    both = {
        "segments": first["segments"] + second["segments"],
        "device_traces": [first["device_traces"][0], *second["device_traces"][1:]],
    }
    profile = snapshot_profile(read(pickled(both)))
    assert [each.device for each in profile.memory] == [0, 2]
    assert [each.peak for each in profile.memory] == [memory_of(pickled(each)).peak for each in (first, second)]
    assert profile.rank == 3


def test_frames_are_of_a_person_first() -> None:
    assert own_frame([f"{each['filename']}:{each['line']} {each['name']}" for each in FORWARD]) == (
        "/app/model.py:31 forward"
    )
    assert own_frame(["aten::empty", "aten::layer_norm", "torch/nn/functional.py:9 f", "train.py:3 main"]) == (
        "train.py:3 main"
    )
    assert own_frame(["aten::empty", "aten::layer_norm", "aten::linear"]) == "aten::empty in aten::linear"
    assert own_frame([]) == ""


REFUSED = {
    "another pickle": (pickle.dumps({"weights": [1.0]}), "keys 'weights', expected segments and device_traces"),
    "a list": (pickle.dumps([1]), "list, expected segments"),
    "a model": (pickle.dumps(Counter(a=1)), r"a pickle with opcode b'\\x93' at byte .*expected plain values"),
    "no block": (pickle.dumps({"segments": [], "device_traces": [[]]}), "without a block or an event"),
    "broken JSON": (b'{"segments": [', "expected the JSON of a memory snapshot"),
    "deep JSON": (b'{"segments": ' + b"[" * 100_000, "expected the JSON of a memory snapshot"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_snapshot_is_refused_with_its_reason(name: str) -> None:
    body, reason = REFUSED[name]
    with pytest.raises(KernelTraceError, match=reason):
        read(body)


def test_where_a_trace_is_expected_a_snapshot_is_named() -> None:
    with pytest.raises(KernelTraceError, match="a memory snapshot, expected a trace: trainguard kernels reads"):
        read_any("x.pickle", partial(io.BytesIO, pickled(trained().snapshot())))


def test_a_snapshot_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainguard.kernels.readers.reading.MOST_SNAPSHOT_BYTES", 1_000)
    with pytest.raises(KernelTraceError, match="of over 1,000 bytes"):
        read(gzip.compress(pickled(trained().snapshot())))


def test_entries_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_EVENTS", 100)
    found = read(pickled(trained().snapshot()))
    assert found.tally["left_out"] > 0
    assert any("left out" in line for line in snapshot_profile(found).damaged)


def test_one_list_in_many_places_is_read_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million references to one segment of a thousand blocks would be a thousand million blocks."""
    monkeypatch.setattr(reader, "MOST_EVENTS", 200_000)
    segment = trained().snapshot()["segments"][0]
    segment["blocks"] = segment["blocks"] * 1_000
    events = [{"action": "alloc", "addr": 1, "size": 1, "frames": [FORWARD[0]] * 5_000}] * 100_000
    started = time.process_time()
    found = read(pickled({"segments": [segment] * 100_000, "device_traces": [events] * 9}))
    assert found.tally["left_out"] > 0
    assert time.process_time() - started < 10.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
SIZES = st.integers(-5, 1 << 70) | JSON
FRAMES = st.lists(
    st.fixed_dictionaries({}, optional={"filename": JSON, "line": JSON, "name": JSON})
    | st.just(frame("a.py", 1, "f"))
    | JSON,
    max_size=3,
)
EVENTS = st.fixed_dictionaries(
    {"action": st.sampled_from(["alloc", "free_requested", "segment_alloc", "segment_free", "oom", "snapshot"]) | JSON},
    optional={"addr": SIZES, "size": SIZES, "frames": FRAMES | JSON, "time_us": SIZES, "device_free": SIZES},
)
BLOCKS = st.fixed_dictionaries(
    {},
    optional={
        "size": SIZES, "requested_size": SIZES, "address": SIZES, "frames": FRAMES, "history": JSON,
        "state": st.sampled_from(["active_allocated", "inactive", "active_awaiting_free"]) | JSON,
    },
)  # fmt: skip
SEGMENTS = st.fixed_dictionaries(
    {}, optional={"device": SIZES, "address": SIZES, "total_size": SIZES, "blocks": st.lists(BLOCKS | JSON, max_size=4)}
)
SNAPSHOTS = st.fixed_dictionaries(
    {"segments": st.lists(SEGMENTS | JSON, max_size=4)},
    optional={
        "device_traces": st.lists(st.lists(EVENTS | JSON, max_size=8) | JSON, max_size=3) | JSON,
        "allocator_settings": JSON | st.just({"expandable_segments": True}),
    },
)


@given(SNAPSHOTS)
@example({"segments": [], "device_traces": [[{"action": []}, {"action": {}}]]})
def test_any_values_in_any_place_end_in_a_profile_or_an_error(body: dict[str, Any]) -> None:
    with suppress(KernelTraceError):
        profile = snapshot_profile(read_snapshot("x", pickled(body)))
        for memory in profile.memory:
            assert memory.held == sum(memory.kinds.values())
            assert min(memory.curve.allocated) >= 0
            assert all(min(sizes) >= 0 for sizes in memory.curve.kinds.values())
            assert all(0 < each.saves_at_most <= max(memory.held, memory.peak) for each in memory.estimates)


@given(st.binary(max_size=100), st.integers(0, 2_000))
def test_a_damaged_snapshot_is_read_or_refused(noise: bytes, place: int) -> None:
    whole = pickled(trained(1).snapshot())
    with suppress(KernelTraceError):
        snapshot_profile(read_snapshot("x", whole[:place] + noise + whole[place + len(noise) :]))


def test_the_end_of_a_leak_is_named() -> None:
    growth = memory_of(json.dumps(trained(8, leak=3).snapshot()).encode()).growth
    assert growth is not None
    assert own_frame(growth.where) == f"{LEAK[0]['filename']}:{LEAK[0]['line']} remember"
    assert {after - before for before, after in zip(growth.at_steps, growth.at_steps[1:], strict=False)} == {3 * MIB}
