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
from trainguard.errors import ForeignKeyError
from trainguard.polling.calls import written_object


def outcome_of(target: Target, body: bytes = b"x", seconds: float = 5.0) -> Outcome:
    outcome = Outcome()
    take(target, body, outcome, seconds)
    return outcome


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_given_what_is_well_formed_when_read_then_it_is_not_refused(target: Target) -> None:
    with target.around():
        for body in target.seeds():
            outcome = outcome_of(target, body)
            assert (outcome.read[target.name], outcome.defects) == (1, {})


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_given_twenty_mutated_inputs_when_read_then_each_is_read_or_refused(target: Target) -> None:
    rng, seeds = random.Random(1), [each[:20_000] for each in target.seeds()]
    with target.around():
        for _ in range(20):
            assert outcome_of(target, mutated(rng.choice(seeds), rng, seeds)).defects == {}


def test_given_the_stacks_functions_when_targets_are_listed_then_each_function_is_one() -> None:
    functions = {f"function {each.parent.name}" for each in Path("lambdas").glob("*/handler.py")}
    assert functions == {target.name for target in FUNCTION_TARGETS}


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_given_seconds_of_mutated_inputs_when_read_then_each_is_read_or_refused(target: Target) -> None:
    assert fuzz([target], seconds=2.0, seed=2).defects == {}


def test_given_an_error_without_a_name_when_fuzzed_then_it_is_a_defect_and_a_named_one_is_not() -> None:
    def read(body: bytes) -> None:
        if body == b"x":
            raise ForeignKeyError("x", "expected y")
        raise KeyError(body)

    target = Target("t", lambda: [b"x"], read)
    assert outcome_of(target).refused == {"t": 1}
    (defect,) = outcome_of(target, b"y").defects.values()
    assert (defect.what, defect.body) == ("KeyError: b'y'", b"y")


def test_given_a_parser_that_hangs_when_fuzzed_then_it_is_a_defect() -> None:
    (defect,) = outcome_of(Target("t", lambda: [b"x"], lambda _: time.sleep(5.0)), seconds=0.05).defects.values()
    assert defect.what == "HangError: longer than 0.05 s"


def test_given_a_parser_that_takes_memory_without_end_when_fuzzed_then_it_is_a_defect() -> None:
    with bounded(64):
        (defect,) = outcome_of(Target("t", lambda: [b"x"], lambda _: bytearray(256 * 1024**2))).defects.values()
    assert defect.what.startswith("MemoryError")


@pytest.mark.parametrize("detail", [{"bucket": 1.5}, {"bucket": {"name": "b"}, "object": [1]}, {"object": "x"}])
def test_given_an_event_whose_parts_are_no_objects_when_read_then_it_names_nothing(detail: object) -> None:
    assert written_object({"detail": detail}) is None
