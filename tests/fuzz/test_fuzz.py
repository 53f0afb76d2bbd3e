"""Every parser takes what is well formed, and refuses the rest by name; the search for the rest finds what fails."""

import random
import time
from pathlib import Path

import pytest

from tests.fuzz.functions import FUNCTION_TARGETS
from tests.fuzz.mutate import mutated
from tests.fuzz.run import Outcome, bounded, fuzz, take
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from trainguard.core.errors import UnreadableKeyError
from trainguard.stack.polling.poll import written_object


def outcome_of(target: Target, body: bytes = b"x", seconds: float = 5.0) -> Outcome:
    outcome = Outcome()
    take(target, body, outcome, seconds)
    return outcome


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_well_formed_input_is_not_refused(target: Target) -> None:
    with target.around():
        for body in target.seeds():
            outcome = outcome_of(target, body)
            assert (outcome.read[target.name], outcome.defects) == (1, {})


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_twenty_mutated_inputs_are_read_or_refused(target: Target) -> None:
    rng, seeds = random.Random(1), [each[:20_000] for each in target.seeds()]
    with target.around():
        for _ in range(20):
            assert outcome_of(target, mutated(rng.choice(seeds), rng, seeds)).defects == {}


def test_each_function_of_the_stack_is_a_target() -> None:
    functions = {f"function {each.parent.name}" for each in Path("lambdas").glob("*/handler.py")}
    assert functions == {target.name for target in FUNCTION_TARGETS}


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seconds_of_mutated_inputs_are_read_or_refused(target: Target) -> None:
    assert fuzz([target], seconds=2.0, seed=2).defects == {}


def test_only_an_unnamed_error_is_a_defect() -> None:
    def read(body: bytes) -> None:
        if body == b"x":
            raise UnreadableKeyError("x", "expected y")
        raise KeyError(body)

    target = Target("t", lambda: [b"x"], read)
    assert outcome_of(target).refused == {"t": 1}
    (defect,) = outcome_of(target, b"y").defects.values()
    assert (defect.what, defect.body) == ("KeyError: b'y'", b"y")


def test_hanging_parser_is_a_defect() -> None:
    (defect,) = outcome_of(Target("t", lambda: [b"x"], lambda _: time.sleep(5.0)), seconds=0.05).defects.values()
    assert defect.what == "HangError: longer than 0.05 s"


def test_parser_with_unbounded_memory_is_a_defect() -> None:
    with bounded(64):
        (defect,) = outcome_of(Target("t", lambda: [b"x"], lambda _: bytearray(256 * 1024**2))).defects.values()
    assert defect.what.startswith("MemoryError")


@pytest.mark.parametrize("detail", [{"bucket": 1.5}, {"bucket": {"name": "b"}, "object": [1]}, {"object": "x"}])
def test_event_with_non_object_parts_names_nothing(detail: object) -> None:
    assert written_object({"detail": detail}) is None
