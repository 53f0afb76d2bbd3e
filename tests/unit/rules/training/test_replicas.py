"""RanksOutOfSync over hashes of tensors: who is named, and what is never compared."""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.steps import Outcome, Run, observed
from trainguard.core.records import Status

FOUR = ("a", "b", "c", "d")


def saved(hashes: Sequence[int], names: Sequence[str] = FOUR, **about: Any) -> dict[str, Any]:
    """Return what a rank saves of one set of tensors, by the end of its names; ``about`` changes fields."""
    of_set = {"of": "parameters", "ranks": "0-3", "copies": 4, "count": len(hashes), "layout": "-".join(names)}
    of_set |= {"sure": True, "moment": [7], "device": "cpu"}
    of_rank = {"version": 1, "at": 1e9, "mode_step": 0, "attempt": "0", "left_out": 0}
    of_set |= {name: about.pop(name) for name in list(about) if name in of_set}
    of_rank |= about
    listed = [[[name, "float32", [3]] for name in names]]
    return {
        "": np.array(hashes, np.int64),
        "/about": np.frombuffer(json.dumps({**of_rank, "sets": [of_set]}).encode(), np.uint8),
        "/tensors": np.frombuffer(zlib.compress(json.dumps(listed).encode()), np.uint8),
    }


def add(run: Run, step: int, ranks: Mapping[int, dict[str, Any]]) -> None:
    run.add(step, {f"trainguard/replicas/{rank}{end}": each for rank, of in ranks.items() for end, each in of.items()})


def of_steps(*steps: Mapping[int, dict[str, Any]]) -> Outcome:
    run = Run()
    for step, ranks in enumerate(steps):
        add(run, 10 * step, ranks)
    return observed("RanksOutOfSync", run)


def facts(outcome: Outcome) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for fact in outcome.result.facts:
        found.setdefault(fact.name, []).append(fact.value)
    return found


GOOD = saved([1, 2, 3, 4])
FLIPPED = saved([1, 2, 9, 4])
ALL = dict.fromkeys(range(4), GOOD)


def test_majority_names_rank_and_tensor_and_the_last_equal_step() -> None:
    outcome = of_steps(ALL, {**ALL, 2: FLIPPED}, {**ALL, 2: FLIPPED})
    found = facts(outcome)
    assert (outcome.result.status, outcome.result.kind) == (Status.FIRED, "bits differ")
    assert (found["rank"], found["tensor"], found["tensors_apart"]) == ([2], ["c"], [1])
    assert (found["since_step"], found["equal_step"], found["step"]) == ([10], [0], [20])
    assert outcome.result.worst == "c"
    assert "Go back to a checkpoint of step 0 or before" in (outcome.result.advice or "")


@pytest.mark.parametrize(
    "ranks",
    [
        {0: GOOD, 1: FLIPPED},
        {0: GOOD, 1: GOOD, 2: FLIPPED, 3: FLIPPED},
        {0: GOOD, 1: GOOD, 2: FLIPPED, 3: saved([1, 2, 8, 4])},
    ],
)
def test_copies_without_a_majority_are_named_and_none_accused(ranks: dict[int, dict[str, Any]]) -> None:
    outcome = of_steps(ranks)
    found = facts(outcome)
    assert (outcome.result.status, outcome.result.kind) == (Status.FIRED, "no majority")
    assert (found["rank"], found["tensor"]) == (list(ranks), ["c"])
    assert "no majority says which" in outcome.result.reason


def test_copies_that_differ_throughout_are_no_flipped_bit() -> None:
    outcome = of_steps({rank: saved([10 * rank + place for place in range(4)]) for rank in range(4)})
    assert (outcome.result.status, outcome.result.kind) == (Status.FIRED, "not kept equal")
    assert "not kept equal" in outcome.result.reason
    assert "local SGD" in (outcome.result.advice or "")


@pytest.mark.parametrize(
    "other",
    [
        {"mode_step": 1},
        {"attempt": "1"},
        {"moment": [8]},
        {"at": 1e9 + 31.0},
        {"layout": "other"},
        {"ranks": "0-7", "copies": 8},
        {"of": "buffers"},
        {"device": "cuda"},
    ],
)
def test_hashes_of_another_moment_or_layout_are_not_compared(other: dict[str, Any]) -> None:
    apart = saved([1, 2, 9, 4], **other)
    outcome = of_steps({**ALL, 2: apart})
    assert (outcome.result.status, outcome.result.kind) == (Status.OK, "copies equal")
    assert "not compared: " in outcome.result.reason
    alone = of_steps({0: GOOD, 2: apart})
    assert (alone.result.status, alone.result.kind) == (Status.NOT_APPLICABLE, "not compared")
    assert alone.state.fired == 0


def test_guessed_copies_fire_only_when_something_shows_they_are() -> None:
    first, second = saved([1, 2, 3, 4], sure=False), saved([5, 7, 8, 9], sure=False)
    trained, flipped = saved([2, 3, 4, 5], sure=False), saved([2, 9, 4, 5], sure=False)
    assert of_steps({0: first, 1: second}).result.kind == "not compared"
    assert of_steps({0: first, 1: first}, {0: trained, 1: flipped}).result.status is Status.OK
    assert (
        of_steps({0: first, 1: first}, {0: trained, 1: trained}, {0: trained, 1: flipped}).result.kind == "no majority"
    )
    assert of_steps({0: trained, 1: trained, 2: flipped}).result.kind == "bits differ"
    assert of_steps({0: first, 1: saved([1, 6, 3, 4], sure=False), 2: second}).result.kind == "not compared"


def test_finding_ends_only_when_its_ranks_are_equal_again() -> None:
    without = dict.fromkeys((0, 1, 3), GOOD)
    assert of_steps({**ALL, 2: FLIPPED}, without).result.status is Status.FIRED
    assert of_steps({**ALL, 2: FLIPPED}, {0: GOOD}).result.status is Status.FIRED
    ended = of_steps({**ALL, 2: FLIPPED}, without, ALL)
    assert (ended.result.status, ended.steps) == (Status.OK, [0])


def test_worst_of_several_sets_is_the_one_with_a_culprit() -> None:
    pair: dict[str, Any] = {"ranks": "4,5", "copies": 2}
    outcome = of_steps({**ALL, 1: FLIPPED, 4: saved([1, 1, 1, 1], **pair), 5: saved([1, 1, 1, 2], **pair)})
    found = facts(outcome)
    assert (outcome.result.kind, found["rank"], found["sets_apart"]) == ("bits differ", [1], [2])


@pytest.mark.parametrize(
    ("end", "damaged"),
    [
        ("", np.array([1, 2, 3], np.int64)),
        ("", np.array([1.0, 2.0, 3.0, 4.0])),
        ("/about", np.frombuffer(b"{}", np.uint8)),
        ("/about", np.frombuffer(b"\xff[", np.uint8)),
        ("/about", np.frombuffer(GOOD["/about"].tobytes().replace(b'"version": 1', b'"version": 2'), np.uint8)),
        ("/about", np.array([1.0])),
    ],
)
def test_damaged_hashes_of_one_rank_leave_others_compared(end: str, damaged: Any) -> None:
    outcome = of_steps({**ALL, 1: FLIPPED, 3: {**GOOD, end: damaged}})
    assert (outcome.result.kind, facts(outcome)["rank"], facts(outcome)["unusable"]) == ("bits differ", [1], [1])


@pytest.mark.parametrize("names", [b"", b"x", zlib.compress(b"[]"), zlib.compress(b"0" * 10_000_000)])
def test_damaged_names_leave_the_ranks_named(names: bytes) -> None:
    broken = {"/tensors": np.frombuffer(names, np.uint8)}
    outcome = of_steps({rank: {**each, **broken} for rank, each in {**ALL, 1: FLIPPED}.items()})
    assert (outcome.result.kind, facts(outcome)["rank"], outcome.result.worst) == ("bits differ", [1], None)
