"""What a custom rule may say, at the bounds of each field, and what it is shown."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

from tests.support.own_rules import OwnRule
from trainguard.core.errors import RuleLoadError
from trainguard.core.finding import Fact, Patience
from trainguard.core.records import Status
from trainguard.engine.streams.rule_runner import shown
from trainguard.engine.streams.sandbox import sandboxed
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.rule_inputs import LateView
from trainguard.rules.rule_result import Measure, RuleResult

SAID = RuleResult(Status.OK, "so.")
FACT = Fact(name="speed", value=7.0, unit="rpm")


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({"reason": "r" * 1_001}, {"reason": "r" * 1_000}),
        ({"reason": ""}, {"reason": "no reason given."}),
        ({"advice": "a" * 1_001}, {"advice": "a" * 1_000}),
        ({"worst": "w" * 121, "kind": "k" * 121}, {"worst": "w" * 120, "kind": "k" * 120}),
        ({"progress": Patience(seen=1, needed=2)}, {}),
        ({"measured": 3}, {"measured": 3.0}),
        ({"measured": np.float64(2.5), "threshold": np.int64(7)}, {"measured": 2.5, "threshold": 7.0}),
        ({"measure": Measure("m" * 121, "u" * 121)}, {"measure": Measure("m" * 120, "u" * 120)}),
        ({"measure": Measure("what", cast("Any", None))}, {"measure": Measure("what", "")}),
        ({"affected_share": 0.0, "wasted_share": 1.0, "confidence": 1}, {"confidence": 1.0}),
        ({"score": 50.0, "needs_longer": cast("Any", 1)}, {"score": None, "needs_longer": False}),
        ({"facts": (FACT,) * 12, "clause": "c" * 1_001}, {"clause": "c" * 1_000}),
        ({"data_points": 0}, {}),
        ({"data_points": np.int64(7)}, {"data_points": 7}),
        ({"pooled": (0, 3)}, {}),
        ({"onset": -5.0, "until": 0.0}, {}),
        ({"gpus": tuple("g" * 121 for _ in range(64))}, {"gpus": tuple("g" * 120 for _ in range(64))}),
        ({"gpus": ()}, {}),
        ({"gpus": (None,)}, {"gpus": ("",)}),
        ({"time_left_s": 0.0}, {}),
        ({"oversized": True, "idle_node": "idle"}, {}),
        ({"idle_node": "never used"}, {}),
        ({"details": {"a": (1, 2)}}, {"details": {"a": [1, 2]}}),
        ({"details": {"a": "b" * (8_192 - 8)}}, {}),
    ],
)
def test_result_is_accepted_and_cut_to_the_room_of_a_row(fields: dict[str, Any], taken: dict[str, Any]) -> None:
    result = sandboxed("Own", replace(SAID, **fields))
    assert result == replace(SAID, **(fields | taken))
    assert {type(value) for value in (result.measured, result.threshold)} <= {float, type(None)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "OK"),
        ("status", Status.DISABLED),
        ("oversized", 1),
        ("idle_node", "busy"),
        ("reason", 7),
        ("kind", 7),
        ("past_reason", 7),
        ("progress", "1/2"),
        ("facts", {"a": 1}),
        ("facts", ("a",)),
        ("facts", (FACT,) * 13),
        ("facts", (replace_struct(FACT, value=float("nan")),)),
        ("facts", (replace_struct(FACT, value=[1]),)),
        ("advice", b"bytes"),
        ("worst", 0),
        ("measured", True),
        ("measured", "3"),
        ("threshold", float("inf")),
        ("measure", "rpm"),
        ("measure", Measure(cast("Any", 7))),
        ("affected_share", -0.001),
        ("wasted_share", 1.001),
        ("confidence", float("nan")),
        ("data_points", -1),
        ("data_points", True),
        ("data_points", 2.0),
        ("pooled", (1,)),
        ("pooled", (1, 2, 3)),
        ("pooled", [1, 2]),
        ("pooled", (1, -2)),
        ("pooled", (-1, 2)),
        ("onset", "noon"),
        ("time_left_s", -0.001),
        ("gpus", ["gpu0"]),
        ("gpus", ("gpu0",) * 65),
        ("gpus", (1,)),
        ("details", {"a": "b" * (8_192 - 7)}),
        ("details", {"a": object()}),
        ("details", ["a"]),
    ],
)
def test_result_no_row_can_hold_names_the_field(name: str, value: Any) -> None:
    with pytest.raises(RuleLoadError) as refused:
        sandboxed("Own", replace(SAID, **{name: value}))
    assert (refused.value.rule, refused.value.field) == ("Own", name)


@pytest.mark.parametrize("said", [None, "so.", {"status": "OK"}])
def test_given_what_is_no_judgement_when_said_then_it_is_refused(said: Any) -> None:
    with pytest.raises(RuleLoadError, match="judgement"):
        sandboxed("Own", said)


class Pair(NamedTuple):
    """A tuple with names, which is shown as it is."""

    values: Any


@dataclass(frozen=True)
class Shown:
    """What a rule may be shown: arrays in all places."""

    array: Any
    inside: tuple[Any, ...]
    named: dict[str, Any]
    text: str = "text"
    kind: type = int
    made: list[int] = field(default_factory=lambda: [1], init=False)
    COUNT: ClassVar[int] = 3


def test_arrays_shown_to_a_custom_rule_are_read_only() -> None:
    array = np.zeros(3)
    whole = Shown(array, (array, "a", Shown(array, (), {})), {"a": array, "b": (array,)}, kind=Shown)
    seen = shown(OwnRule(), whole)
    held = [seen.array, seen.inside[0], seen.inside[2].array, seen.named["a"], seen.named["b"][0]]
    assert [each.flags.writeable for each in held] == [False] * 5
    assert all(np.shares_memory(each, array) for each in held)
    assert (seen.text, seen.kind, seen.inside[1], seen.made) == ("text", Shown, "a", [1])
    pair = Pair(array)
    assert shown(OwnRule(), pair) is pair
    late = object.__new__(LateView)
    assert shown(OwnRule(), late) is late
    assert array.flags.writeable
    assert shown(LowGPUUtilization(), whole) is whole
