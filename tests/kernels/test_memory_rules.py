"""Rules on memory: when they fire, their facts against the allocator's own state, and what they are silent about."""

from typing import Any

import pytest

from tests.support.memory_snapshots import (
    FORWARD,
    LEAK,
    LOGITS,
    MIB,
    SETUP,
    Allocator,
    Training,
    frame,
    pickled,
)
from trainguard.core.finding import Severity
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.memory.snapshot import read_snapshot
from trainguard.kernels.profile import snapshot_profile


def profile_of(allocator: Allocator, **settings: Any) -> SnapshotProfile:
    snapshot = allocator.snapshot()
    snapshot["allocator_settings"] |= settings
    return snapshot_profile(read_snapshot("snapshot.pickle", pickled(snapshot)))


def found_in(allocator: Allocator, **settings: Any) -> dict[str, KernelFinding]:
    return {each.id.removeprefix("kernels/"): each for each in profile_of(allocator, **settings).findings}


def facts(finding: KernelFinding) -> dict[str, Any]:
    return {fact.name: fact.value for fact in finding.facts}


def trained(steps: int = 12, limit: int = 80_000, **more: Any) -> Allocator:
    """Train until the end, or until memory runs out."""
    training = Training(Allocator(limit=limit * MIB), **more)
    training.setup()
    try:
        training.run(steps)
    except MemoryError:
        return training.allocator
    return training.allocator


@pytest.mark.parametrize("more", [{}, {"logits": 500}, {"state": 0}, {"layers": 12}, {"workspace": 64}])
@pytest.mark.parametrize("steps", [1, 5, 12])
def test_healthy_training_has_no_finding(steps: int, more: dict[str, int]) -> None:
    assert not found_in(trained(steps, **more))


def test_varying_batches_are_no_leak() -> None:
    training = Training()
    for step in range(30):
        training.activations = 8 + step % 7 * 4
        training.run(1)
    assert not found_in(training.allocator)


def test_a_leak_fires_with_its_place_and_rate() -> None:
    found = found_in(trained(leak=3))["GpuMemoryGrows"]
    assert facts(found) == {
        "growth_per_step": 3 * MIB,
        "steps": 8,
        "place": f"{LEAK[0]['filename']}:{LEAK[0]['line']} remember",
    }
    assert (found.severity, found.confidence, found.threshold) == (Severity.MEDIUM, "normal", 1e6)
    # Allocated in the third to the tenth of twelve steps, of which the first is no mark.
    assert found.evidence[0].what.endswith(" bytes kept, /app/metrics.py:9 remember")


def test_a_short_recording_of_a_leak_is_unsure() -> None:
    assert found_in(trained(9, leak=3))["GpuMemoryGrows"].confidence == "low"
    assert "GpuMemoryGrows" not in found_in(trained(7, leak=3))


def test_a_leak_that_fills_the_gpu_soon_is_severe() -> None:
    found = found_in(trained(400, leak=3, limit=600))
    assert found["GpuMemoryGrows"].severity is Severity.HIGH
    left = facts(found["GpuMemoryGrows"])["steps_left"]
    assert 0 <= left < 100
    assert "GpuMemoryRanOut" in found


def test_what_grows_and_falls_again_is_no_leak() -> None:
    training = Training()
    kept: list[int] = []
    for step in range(24):
        training.run(1)
        kept.append(training.allocator.alloc(3 * MIB, LEAK))
        while step % 6 == 5 and kept:
            training.allocator.free(kept.pop())
    assert not found_in(training.allocator)


def test_what_rises_and_falls_on_its_way_up_is_no_leak() -> None:
    training = Training()
    kept: list[int] = []
    for step in range(24):
        training.run(1)
        if step % 2:
            training.allocator.free(kept.pop())
        else:
            kept += [training.allocator.alloc(9 * MIB, LEAK) for _ in range(2)]
    assert not found_in(training.allocator)


def test_what_grows_at_first_alone_is_no_leak() -> None:
    training = Training(leak=30)
    training.run(8)
    training.leak = 0
    training.run(12)
    assert not found_in(training.allocator)


def test_a_failed_allocation_fires_with_what_was_held() -> None:
    allocator = trained(logits=300, limit=400)
    found = found_in(allocator)
    failed = allocator.events[-1]
    assert failed["action"] == "oom"
    assert facts(found["GpuMemoryRanOut"]) == {
        "requested": 300 * MIB,
        "allocated": allocator.allocated,
        "reserved": allocator.reserved,
        "device_free": failed["device_free"],
        "largest_kind": "activations",
        "place": "/app/model.py:31 forward",
    }
    assert found["GpuMemoryRanOut"].severity is Severity.HIGH
    assert "GpuMemoryFragmented" not in found


def fragmented() -> Allocator:
    """Every other block of 5 MiB is free: 100 MiB in all, and none is larger than 5."""
    allocator = Allocator(limit=200 * MIB)
    held = [allocator.alloc(5 * MIB, FORWARD if place % 2 else SETUP) for place in range(40)]
    for address in held[1::2]:
        allocator.free(address)
    return allocator


def test_an_allocation_that_fails_in_free_parts_fires() -> None:
    allocator = fragmented()
    with pytest.raises(MemoryError):
        allocator.alloc(60 * MIB, LOGITS)
    finding = found_in(allocator)["GpuMemoryFragmented"]
    assert facts(finding) == {"unused": 100 * MIB, "requested": 60 * MIB}
    assert "expandable_segments:True" in finding.recommendation
    assert [each.what for each in finding.evidence] == [
        "104,857,600 of 209,715,200 reserved bytes free at the end",
        "5,242,880 bytes in the largest free block",
        "104,857,600 free bytes beside blocks in use",
    ]
    told = found_in(allocator, expandable_segments=True)["GpuMemoryFragmented"]
    assert told.recommendation.startswith("expandable_segments is on")


def test_an_allocation_above_all_free_parts_is_not_their_fault() -> None:
    allocator = fragmented()
    with pytest.raises(MemoryError):
        allocator.alloc(101 * MIB, LOGITS)
    assert set(found_in(allocator)) == {"GpuMemoryRanOut"}


@pytest.mark.parametrize(("logits", "fires"), [(70, False), (80, True)])
def test_one_place_that_holds_much_fires_where_memory_is_short(logits: int, fires: bool) -> None:
    """Beside parameters of 32 and activations of 64 MiB two fifths of what is held are 64 MiB."""
    allocator = Allocator(limit=300 * MIB)
    training = Training(allocator)
    training.setup()
    for _ in range(4):
        allocator.alloc(16 * MIB, FORWARD[1:])
        allocator.alloc(4 * MIB, [frame("/app/model.py", 60, "mask")])
    allocator.alloc(logits * MIB, LOGITS)
    with pytest.raises(MemoryError):
        allocator.alloc(250 * MIB, FORWARD)
    finding = found_in(allocator).get("GpuMemoryHeld")
    assert (finding is not None) == fires
    if finding is not None:
        assert facts(finding) == {
            "held_share": round(logits / (32 + 64 + 16 + logits), 4),
            "held": logits * MIB,
            "held_kind": "activations",
            "place": "/app/model.py:77 head",
        }


def test_with_room_left_one_place_that_holds_much_is_silent() -> None:
    assert not found_in(trained(logits=5_000))
