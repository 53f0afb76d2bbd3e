"""What a history of allocations says, against sums of one allocation after another."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainguard.kernels.memory.entries import KINDS, MemoryPurpose
from trainguard.kernels.memory.history import (
    MOST_HOLDERS,
    MemoryHistory,
    MemoryPhase,
    by_kind,
    chosen_moments,
    growth_of,
    holders_of,
    kinds_of,
    memory_entry,
)

PHASES = {
    "F": MemoryPhase.FORWARD,
    "B": MemoryPhase.BACKWARD,
    "O": MemoryPhase.OPTIMIZER,
    "S": MemoryPhase.SETUP,
    "?": MemoryPhase.UNKNOWN,
}
# Letter of the phase, size, first and last event, number of the place.
Life = tuple[str, int, int, int, int]


def history(lives: list[Life], count: int, freed_by: str = "", **more: Any) -> MemoryHistory:
    letters = letters_of(lives, count, freed_by)
    size, born, died, place = (np.array([life[at] for life in lives], dtype=np.int64) for at in (1, 2, 3, 4))
    allocated = np.array(
        [sum(life[1] for life in lives if life[2] <= event < life[3]) for event in range(count)], dtype=np.int64
    )
    said = {
        "device": 0,
        "source": "trace",
        "at": np.arange(count, dtype=np.int64) * 1_000,
        "allocated": allocated,
        "reserved": allocated * 2,
        "size": size,
        "born": born,
        "died": died,
        "phase": np.array([PHASES[life[0]] for life in lives], dtype=np.int64),
        "context": np.array([PHASES[letter] for letter in letters], dtype=np.int64),
        "place": place,
        "places": [(f"file.py:{number} f",) for number in range(4)],
    }
    return MemoryHistory(**{**said, **more})


def letters_of(lives: list[Life], count: int, freed_by: str) -> str:
    """Return the phase of each event: that of its allocation, else of who frees."""
    letters = list(freed_by or "?" * count)
    for life in lives:
        letters[life[2]] = life[0]
    return "".join(letters)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Life], int, str]:
    """Lives with at most one beginning an event, as allocators write them, and who frees at others."""
    count = draw(st.integers(1, 25))
    starts = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count))
    lives = []
    for born in sorted(starts):
        died = draw(st.integers(born + 1, count))
        lives.append((draw(st.sampled_from("FBOS?")), draw(st.integers(1, 1_000)), born, died, draw(st.integers(0, 3))))
    return lives, count, draw(st.text("FBO????", min_size=count, max_size=count))


def naive_kinds(lives: list[Life], count: int, freed_by: str) -> list[MemoryPurpose]:
    letters = letters_of(lives, count, freed_by)
    stretch, number, now = [], 0, ""
    for letter in letters:
        if letter not in ("?", now):
            number, now = number + bool(now), letter
        stretch.append(number)
    found = []
    for letter, _, born, died, _ in lives:
        same = died < count and stretch[born] == stretch[died]
        later = any(life[2] >= died and stretch[life[2]] == stretch[born] for life in lives)
        if letter == "B" and same and not later and letters[died] == "?":
            same = False
        if letter == "?":
            found.append(MemoryPurpose.UNATTRIBUTED)
        elif same:
            found.append(MemoryPurpose.WORKSPACE)
        elif letter == "F" and died == count and stretch[born] < stretch[-1] - 2:
            found.append(MemoryPurpose.UNATTRIBUTED)
        else:
            left = {"F": "activations", "B": "gradients", "O": "optimizer_state", "S": "parameters"}
            found.append(MemoryPurpose(left[letter]))
    return found


@given(histories())
def test_kinds_are_those_of_one_allocation_after_another(drawn: tuple[list[Life], int, str]) -> None:
    lives, count, freed_by = drawn
    made = history(lives, count, freed_by)
    kinds = kinds_of(made)
    expected = naive_kinds(lives, count, freed_by)
    assert [KINDS[kind] for kind in kinds.tolist()] == expected
    held = by_kind(made, kinds)
    for event in range(count):
        for place, kind in enumerate(KINDS):
            alive = (
                life[1] for life, of in zip(lives, expected, strict=True) if of is kind and life[2] <= event < life[3]
            )
            assert held[place, event] == sum(alive)
    assert (held.sum(axis=0) == made.allocated).all()


@given(histories())
def test_the_peak_its_holders_and_what_could_be_saved(drawn: tuple[list[Life], int, str]) -> None:
    lives, count, freed_by = drawn
    made = history(lives, count, freed_by)
    entry = memory_entry(made)
    kinds = naive_kinds(lives, count, freed_by)
    sizes = [sum(life[1] for life in lives if life[2] <= event < life[3]) for event in range(count)]
    peak = sizes.index(max(sizes))
    assert (entry.peak, entry.peak_at_ns, entry.peak_reserved) == (max(sizes), 1_000 * peak, 2 * max(sizes))
    groups: dict[tuple[str, int], list[int]] = {}
    for life, kind in zip(lives, kinds, strict=True):
        if life[2] <= peak < life[3]:
            groups.setdefault((kind.value, life[4]), []).append(life[1])
    shown = [(each.kind, each.where, each.bytes, each.blocks) for each in entry.holders]
    every = sorted(
        ((kind, [f"file.py:{place} f"], sum(held), len(held)) for (kind, place), held in groups.items()),
        key=lambda each: -each[2],
    )
    assert [each[2] for each in shown] == [each[2] for each in every[:MOST_HOLDERS]]
    assert all(each in every for each in shown)
    assert entry.holders_left_out == max(len(every) - MOST_HOLDERS, 0)
    assert entry.holders_left_out_bytes == sum(each[2] for each in every[MOST_HOLDERS:])
    assert sum(entry.kinds.values()) == entry.held == entry.peak

    def without(event: int, change: str) -> float:
        left = 0.0
        for life, kind in zip(lives, kinds, strict=True):
            if not life[2] <= event < life[3]:
                continue
            passing = kind == "workspace" and life[0] in "FB"
            part = {"recompute": kind != "activations", "half_batch": 0.5 if kind == "activations" or passing else 1}
            left += life[1] * part[change]
        return left

    saved = {each.change: each.saves_at_most for each in entry.estimates}
    for change in ("recompute", "half_batch"):
        expected = max(sizes) - max(without(event, change) for event in range(count))
        assert saved.get(change, 0) <= expected < saved.get(change, 0) + 1


def test_a_change_saves_at_a_failure_all_that_it_acts_on() -> None:
    lives: list[Life] = [("S", 100, 0, 5, 0), ("F", 40, 1, 5, 1), ("F", 60, 2, 3, 1), ("B", 1, 3, 5, 2)]
    failed = memory_entry(history(lives, 5, failed_at=4))
    assert (failed.moment, failed.held, failed.peak) == ("failure", 141, 200)
    assert {each.change: (each.acts_on, each.saves_at_most) for each in failed.estimates} == {
        "recompute": (40, 40),
        "half_batch": (40, 20),
    }


@given(
    st.lists(st.integers(0, 10**15), min_size=1, max_size=600).map(sorted),
    st.data(),
)
def test_the_curve_keeps_the_peak_of_each_part_of_the_time(times: list[int], data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=len(times), max_size=len(times)))
    moments = chosen_moments(np.array(times, dtype=np.int64), np.array(sizes, dtype=np.int64)).tolist()
    width = -(-(times[-1] - times[0] + 1) // 200)
    parts: dict[int, list[int]] = {}
    for place, time in enumerate(times):
        parts.setdefault((time - times[0]) // width, []).append(place)
    assert moments == [max(places, key=lambda place: (sizes[place], -place)) for _, places in sorted(parts.items())]
    assert len(moments) <= 200


def test_growth_is_at_marks_behind_the_warm_up() -> None:
    lives: list[Life] = [("F", 10, event, 30, 1) for event in range(0, 30, 3)]
    lives += [("B", 7, event, event + 3, 2) for event in range(1, 27, 3)]
    made = history(sorted(lives, key=lambda life: life[2]), 30, marks=np.arange(0, 30, 3), begins_with=5)
    growth = growth_of(made)
    assert growth is not None
    assert growth.at_steps == [int(made.allocated[mark - 1]) for mark in range(6, 30, 3)]
    # Of what was allocated from the third step to before the last one but one.
    assert (growth.where, growth.kept) == (["file.py:1 f"], 10 * 6)


def test_fewer_than_four_steps_behind_the_warm_up_say_nothing() -> None:
    lives: list[Life] = [("F", 10, 0, 9, 1)]
    assert growth_of(history(lives, 9, marks=np.arange(5))) is None
    assert growth_of(history(lives, 9, marks=np.arange(6))) is not None


def test_no_allocation_leaves_all_unattributed() -> None:
    made = history([], 2, allocated=np.array([5, 7], dtype=np.int64), is_relative=True)
    entry = memory_entry(made)
    assert entry.kinds == {kind.value: 7 * (kind is MemoryPurpose.UNATTRIBUTED) for kind in KINDS}
    assert (entry.holders, entry.estimates) == ([], [])
    assert holders_of(made, kinds_of(made), 1) == []
