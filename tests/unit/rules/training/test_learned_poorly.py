"""Each condition of a run that learned poorly: every bound with the value on it, and a step to both sides."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.rules.training.curves import LIMITS, reason_of, run_of, series_of
from trainguard.rules.training.learned_poorly import capped, too_slow, validation_jumps, validation_worsens
from trainguard.rules.training.series import fall
from trainguard.rules.training.step_rule import Check

# At the lowest loss of validation, at step 5, it was 8, and at the end a quarter of it.
HALVED = [8.0] * 6 + [2.0] * 14


def worsens(held: Sequence[float], **given: Any) -> Check | None:
    train, name, of = given.get("train", HALVED), given.get("name", "val"), given.get("train_name", "loss")
    held_score = {"acc": given["score"]} if "score" in given else {}
    run = run_of({of: train, "z": HALVED}, {name: held, "y": DOUBLED}, held_score=held_score)
    return validation_worsens(run, LIMITS)


def rising(lowest: float, last: float, *, before: int = 5, rest: int = 14) -> list[float]:
    """Return losses that come to a minimum, of two values, and are higher in the rest."""
    return [lowest + 5.0] * before + [lowest, lowest] + [last] * (rest - 1)


DOUBLED = rising(4.0, 8.0)
LOST = [60.0] * 10 + [50.0] * 10


@pytest.mark.parametrize(
    ("held", "given", "expected"),
    [
        (DOUBLED, {}, True),
        (rising(4.0, 7.9), {}, False),
        (rising(3.0, 7.9), {}, False),
        (rising(3.0, 8.0), {}, True),
        (rising(5.0, 9.0), {}, False),
        (rising(5.0, 10.0), {}, True),
        (DOUBLED, {"train": [8.0] * 6 + [4.0] * 14}, True),
        (DOUBLED, {"train": [8.0] * 6 + [4.1] * 14}, False),
        (DOUBLED, {"train": [8.0] * 5 + [4.0] * 15}, False),
        (DOUBLED, {"train": [8.0] * 5 + [8.5] + [4.2] * 14}, True),
        (DOUBLED, {"train": [8.0] * 5 + [8.0] + [4.2] * 14}, False),
        (DOUBLED, {"train": [8.0] * 4 + [1.0, 8.0] + [4.0] * 14}, True),
        (DOUBLED, {"train": [2.0, *HALVED[1:]]}, True),
        (DOUBLED, {"train": [8.0, 9.0, *HALVED[2:]]}, True),
        (rising(4.0, 8.0, before=12, rest=7), {"train": [8.0] * 8 + [0.0, 8.0]}, True),
        ([9.0] * 5 + [4.0] * 7 + [8.0] * 8, {}, True),
        (rising(4.0, 8.0, before=4, rest=5), {}, True),
        (rising(4.0, 8.0, before=5, rest=4), {}, False),
        (DOUBLED, {"name": "q_loss"}, False),
        (DOUBLED, {"train_name": "q_loss"}, False),
        (DOUBLED, {"train": [8.0] * 6 + [2.0] * 4}, True),
        (DOUBLED, {"train": [8.0] * 6 + [2.0] * 3}, False),
        (DOUBLED, {"train": [8.0] * 6 + [0.0] * 14}, True),
        (DOUBLED, {"train": [8.0] * 6 + [-1.0] * 14}, False),
        (rising(4.0, 8.0, before=3, rest=6), {}, True),
        (rising(4.0, 8.0, before=2, rest=6), {}, False),
        (rising(4.0, 9.0, before=14, rest=5), {"train": [8.0] * 15 + [2.0] * 5}, True),
        (rising(4.0, 12.0, before=14, rest=4), {"train": [8.0] * 15 + [2.0] * 5}, False),
        (rising(4.0, 9.0, before=23, rest=8), {"train": [8.0] * 24 + [2.0] * 8}, True),
        (rising(4.0, 12.0, before=24, rest=7), {"train": [8.0] * 25 + [2.0] * 8}, False),
        (DOUBLED, {"score": [0.9] * 20}, False),
        (DOUBLED, {"score": [0.89] * 20}, True),
        (DOUBLED, {"score": [90.0] * 20}, False),
        (DOUBLED, {"score": [50.0] * 15 + [51.0] * 5}, False),
        (DOUBLED, {"score": [50.0] * 15 + [50.9] * 5}, True),
        (DOUBLED, {"score": [40.0] * 10 + [51.0] * 5 + [50.0] * 5}, True),
        (rising(10.0, 13.0), {"score": LOST}, True),
        (rising(10.0, 11.9), {"score": LOST}, False),
        (rising(10.0, 13.0), {"score": [60.0] * 10 + [50.1] * 10}, False),
        (rising(10.0, 13.0), {"score": [0.6] * 10 + [0.4] * 10}, True),
        (rising(10.0, 13.0), {"score": [60.0] * 5 + [50.0] * 5}, True),
        (rising(10.0, 13.0), {"score": [60.0] * 5 + [50.0] * 4}, False),
        (rising(10.0, 13.0), {"score": [60.0] * 10 + [45.0] * 7 + [60.0, 60.0, 0.0]}, False),
        (rising(10.0, 13.0), {"score": [60.0] * 10 + [45.0] * 7 + [59.0, 59.0, 0.0]}, True),
        (rising(10.0, 13.0), {"score": [60.0, 50.0] * 5 + [50.0, 40.0] * 5}, False),
        (rising(10.0, 13.0), {"score": [60.0, 56.0] * 5 + [48.0, 44.0] * 5}, True),
        (rising(10.0, 13.0), {"score": [50.0] * 4 + [60.0] * 4 + [50.0] * 7 + [48.0] * 5}, True),
        (rising(10.0, 13.0), {"score": [50.0] * 4 + [60.0] * 4 + [50.0] * 7 + [48.5] * 5}, False),
        (rising(10.0, 13.0), {}, False),
        (rising(0.0, 13.0), {"score": LOST}, False),
        (rising(0.1, 13.0), {"score": LOST}, True),
    ],
)
def test_lasting_worse_validation_beside_training_is_named(
    held: list[float], given: dict[str, Any], expected: bool
) -> None:
    assert (worsens(held, **given) is not None) is expected


def test_worse_validation_names_its_lowest_loss_and_scores() -> None:
    found = worsens(DOUBLED, score=[50.0] * 20)
    assert found is not None
    assert (found.kind, found.tensor, found.value, found.threshold) == ("worsens", "val", 8.0, 4.8)
    assert reason_of(found) == (
        "val was 4 at its lowest (step 5) and is 8 in the last quarter (until step 19), while loss went on to fall to "
        "2; acc stands at 50"
    )
    plain, lost = worsens(DOUBLED), worsens(DOUBLED, score=LOST)
    assert plain is not None
    assert reason_of(plain).endswith("went on to fall to 2")
    assert lost is not None
    assert reason_of(lost).endswith(", and acc was 60 in its best quarter and is 50")


TRAINED = [8.0] * 10 + [2.0] * 10
JUMPY = [8.0] * 10 + [8.0, 12.0] * 5


def swing(middle: float, by: float) -> list[float]:
    """Return ten values whose noise may be exactly the share of their middle that is the threshold."""
    return [middle - by, middle + by] * 5


def jumps(held: Sequence[float], train: Sequence[float] = TRAINED, **given: Any) -> Check | None:
    score = {"acc": given["score"]} if "score" in given else {}
    held_score = {"held_acc": given["held_score"]} if "held_score" in given else {}
    names = given.get("name", "val"), given.get("train_name", "loss")
    return validation_jumps(run_of({names[1]: train}, {names[0]: held}, score=score, held_score=held_score), LIMITS)


GOOD, BAD = [1.0] * 20, [0.75] * 20


@pytest.mark.parametrize(
    ("held", "train", "given", "expected"),
    [
        (JUMPY, TRAINED, {}, True),
        (JUMPY, [8.0] * 15 + [4.0] * 5, {}, True),
        (JUMPY, [8.0] * 15 + [4.1] * 5, {}, False),
        ([8.0] * 10 + [7.9, 12.0] * 5, TRAINED, {}, False),
        ([1.0] * 10 + [8.0, 12.0] * 5, TRAINED, {}, True),
        ([8.0, 12.0] * 5 + [10.0] * 10, TRAINED, {}, False),
        ([8.0] * 10 + [9.4, 10.6] * 5, TRAINED, {}, False),
        ([8.0] * 10 + [9.38, 10.62] * 5, TRAINED, {}, True),
        ([8.0] * 10 + [9.39, 10.61] * 5, TRAINED, {}, False),
        (JUMPY, [8.0] * 10 + [2.16, 1.84] * 5, {}, True),
        (JUMPY, [8.0] * 10 + [2.17, 1.83] * 5, {}, False),
        (JUMPY, [8.0, 4.0] * 5 + [2.0] * 10, {}, True),
        ([1.0] * 20 + [8.0, 12.0] * 10, [8.0] * 20 + [2.0] * 20, {}, False),
        ([1.0] * 20 + [8.0, 8.0, 9.12, 9.12] * 5, [8.0] * 20 + [2.0] * 20, {}, True),
        ([8.0] * 10 + swing(8.43248, 0.5224493181775605), [7.0] * 10 + [2.0] * 10, {}, True),
        ([12.0] * 10 + [12.0, 18.0] * 5, [9.8857] * 10 + swing(0.25 * 9.8857, -0.20416205057539075), {}, True),
        (JUMPY, [8.0, 9.0] + [8.0] * 8 + [2.0] * 10, {}, True),
        (JUMPY, [8.0, 7.0] + [8.0] * 8 + [2.16, 1.84] * 5, {}, True),
        (JUMPY, [8.0] * 7 + [4.0, 8.0, 4.0] + [2.0] * 6 + [2.5, 1.5, 2.5, 1.5], {}, True),
        (JUMPY[:10], TRAINED, {}, False),
        ([8.0] * 5 + [8.0, 12.0] * 3, TRAINED, {}, True),
        (JUMPY, TRAINED[:9], {}, False),
        (JUMPY, TRAINED, {"name": "d_loss"}, False),
        (JUMPY, TRAINED, {"score": GOOD}, True),
        (JUMPY, TRAINED, {"held_score": BAD}, True),
        (JUMPY, TRAINED, {"score": GOOD, "held_score": BAD}, True),
        (JUMPY, TRAINED, {"score": GOOD, "held_score": [0.76] * 20}, False),
        (JUMPY, TRAINED, {"score": GOOD, "held_score": [0.9] * 10 + [0.75] * 10}, True),
        (JUMPY, TRAINED, {"score": [0.5] * 10 + [1.0] * 10, "held_score": BAD}, True),
        ([5.0] * 10 + [5.0, 9.0] * 5, TRAINED, {"score": GOOD, "held_score": BAD}, True),
        ([5.0] * 10 + [5.0, 9.0] * 5, TRAINED, {"score": GOOD}, False),
        (JUMPY, TRAINED, {"score": [100.0] * 20, "held_score": [75.0] * 20}, True),
        (JUMPY, TRAINED, {"score": [100.0] * 20, "held_score": [76.0] * 20}, False),
    ],
)
def test_jumping_validation_never_near_training_is_named(
    held: list[float], train: list[float], given: dict[str, Any], expected: bool
) -> None:
    assert (jumps(held, train, **given) is not None) is expected


def test_jumping_validation_names_the_size_of_its_jumps() -> None:
    found = jumps(JUMPY)
    assert found is not None
    assert (found.kind, found.tensor, found.threshold) == ("jumps", "val", 0.15)
    assert found.value == pytest.approx(0.8 / (0.6745 * math.sqrt(6.0)))
    assert reason_of(found) == (
        "val jumps between 8 and 12 in the last half of the run (until step 19), by 48.4 % from one value to the next, "
        "while loss fell from 8 at the start (step 0) to 2"
    )


def below(value: float) -> float:
    return math.nextafter(value, -math.inf)


def floor(classes: int) -> float:
    return math.log(math.e + classes - 1.0) - 1.0


def double(classes: int, wrong: float, count: int = 20, *, above: float = 0.0) -> list[float]:
    """Return the loss of two softmaxes in a row that comes to its level at once."""
    left = floor(classes) + wrong + above
    return [floor(classes) + 0.9] * 2 + [left] * (count - 2)


def to_the_top(left: float, most: float, least: float = 0.05) -> list[float]:
    """Return a loss over the floor of ten classes: its level, its first value, and a low one early on."""
    return [floor(10) + each for each in (most, least, *[left] * 18)]


def stands(losses: Sequence[float], right: Sequence[float] | float, name: str = "loss") -> Check | None:
    scores = [right] * 20 if isinstance(right, float) else right
    return capped(run_of({name: losses, "z": double(10, 0.1)}, score={"acc": scores, "f1": [0.9] * 20}), LIMITS)


@pytest.mark.parametrize(
    ("losses", "right", "expected"),
    [
        (double(10, 0.1), 0.9, 10),
        (double(3, 0.1), 0.9, 3),
        (double(100, 0.1), 0.9, 97),
        (double(1000, 0.0), 1.0, 971),
        (double(10, 0.2), 0.8, 10),
        (double(10, 0.2), 0.79, None),
        (double(10, 0.0), 1.0, 10),
        (double(10, 0.0), 1.01, None),
        (double(10, 0.1), 90.0, 10),
        (double(10, 0.1, 10), 0.9, 10),
        (double(10, 0.1, 9), 0.9, None),
        (double(10, 0.1), [0.9] * 10, 10),
        (double(10, 0.1), [0.9] * 9, None),
        ([2.4] * 10 + [1.6] * 5 + [1.51] * 5, 0.9, None),
        ([1.0] * 20, 0.9, None),
        ([0.8] * 2 + [0.62] * 18, 0.9, None),
        ([0.0] * 2 + [1.5] * 18, 0.9, None),
        ([1e-9] * 2 + [2.4] * 2 + [1.5] * 16, 0.9, None),
        (double(99_999, 0.0, above=0.0299), 1.0, 99_990),
        (double(100_000, 0.0, above=0.029998), 1.0, 100_000),
        (double(100_000, 0.0, above=0.030005), 1.0, None),
        ([2_000.0] * 2 + [1_000.0] * 18, 0.9, None),
        (double(3, 0.2, above=-0.1199), 0.8, 3),
        (double(3, 0.2, above=-0.1201), 0.8, None),
        (to_the_top(0.0801, 1.0099), 0.8, 10),
        ([floor(10) + 1.0, *[floor(10) + 0.45 * (1.0 - 0.8) - 0.03 / 3.0] * 15], 0.8, 10),
        ([floor(10) + 1.0, *[below(floor(10) + 0.45 * (1.0 - 0.8) - 0.03 / 3.0)] * 15], 0.8, None),
        (to_the_top(0.0799, 1.0099), 0.8, None),
        (to_the_top(0.0801, 1.0101), 0.8, None),
        (to_the_top(0.1621, 1.0101, 0.09), 0.8, 11),
        (to_the_top(0.1617, 1.0101, 0.09), 0.8, None),
        (to_the_top(0.15, 1.0099, 0.0001), 0.8, 10),
        (to_the_top(0.15, 1.0099, -0.0001), 0.8, None),
        ([floor(10) + 0.25] * 2 + [floor(10) + 0.0299] * 18, 1.0, 10),
        ([2.125] * 10 + [1.5625] * 5 + [1.5] * 5, 0.9, 9),
        ([2.125] * 10 + [1.563] * 5 + [1.5] * 5, 0.9, None),
        ([floor(10) + 0.2501] * 2 + [floor(10) + 0.0299] * 18, 1.0, 10),
        ([floor(10) + 0.2499] * 2 + [floor(10) + 0.0299] * 18, 1.0, None),
        ([2.4] * 10 + [1.589] * 5 + [1.5] * 5, 0.9, 10),
        ([2.4] * 10 + [1.591] * 5 + [1.5] * 5, 0.9, None),
    ],
)
def test_classes_are_found_for_a_loss_of_two_softmaxes(losses: list[float], right: float, expected: int | None) -> None:
    found = stands(losses, right)
    assert (None if found is None else found.threshold) == (None if expected is None else floor(expected))
    if found is not None:
        assert f" of {expected:,} classes that is the level of outputs" in reason_of(found)
        assert (found.kind, found.tensor) == ("capped", "loss")
        assert found.value == pytest.approx(losses[-1])
    assert stands(losses, right, "pg_loss") is None


# From a guess among ten classes, at an even speed, by a tenth.
FAR = [2.3 - 0.01 * step for step in range(24)]

GUESSES = [0.1] * 24


ON_THE_BOUND = [2.322 - 0.0043 * 2.322 * step for step in range(24)]
# It falls by four deviations of its noise exactly.
ON_THE_BOUND[1:] = [value + 0.018883397693455484 * (-1) ** place for place, value in enumerate(ON_THE_BOUND[1:])]


def slow(train: Sequence[float] = FAR, **given: Any) -> Check | None:
    scores, held_scores = given.get("score", GUESSES), given.get("held_score", GUESSES)
    name, held = given.get("name", "loss"), given.get("held", FAR)
    score = {"acc": scores, "f1": GUESSES} if scores else {}
    held_score = {"held_acc": held_scores} if held_scores else {}
    limits = replace(LIMITS, min_fall=given.get("min_fall", 0.05))
    return too_slow(run_of({name: train}, {"val": held}, score=score, held_score=held_score), limits)


def in_quarters(*falls: float, start: float = 2.3) -> list[float]:
    """Return losses whose quarters, of six values each, have means that differ by these falls; none is a trend."""
    levels = [start - sum(falls[:place]) for place in range(4)]
    return [level + 0.001 * (2.5 - place) for level in levels for place in range(6)]


@pytest.mark.parametrize(
    ("train", "given", "expected"),
    [
        (FAR, {}, True),
        (FAR[:20], {}, True),
        (FAR[:19], {}, False),
        (FAR, {"held": FAR[:20]}, True),
        (FAR, {"held": FAR[:19]}, False),
        (FAR, {"score": []}, False),
        (FAR, {"held_score": []}, False),
        (FAR, {"score": [0.2] * 24}, False),
        (FAR, {"score": [10.0] * 24}, True),
        (FAR, {"score": [0.1] * 12 + [0.49] * 12}, True),
        (FAR, {"score": [0.1] * 12 + [0.5] * 12}, False),
        (FAR, {"held_score": [0.1] * 12 + [0.49] * 12}, True),
        (FAR, {"held_score": [0.1] * 12 + [0.5] * 12}, False),
        (FAR, {"name": "vf_loss"}, False),
        (FAR, {"score": [0.1] + [0.3] * 23}, True),
        ([2.29, 2.31, *FAR[2:]], {"score": [0.1205] * 24}, True),
        ([2.3 - 0.2 * step / 512 for step in range(512)], {"held": FAR}, True),
        ([0.01 if step == 99 else 2.3 - 0.2 * step / 512 for step in range(512)], {"held": FAR}, True),
        ([0.0 if step == 99 else 2.3 - 0.2 * step / 512 for step in range(512)], {"held": FAR}, False),
        (ON_THE_BOUND, {}, True),
        (FAR, {"min_fall": 0.17}, True),
        (FAR, {"min_fall": 0.18}, False),
        ([value - 0.9 for value in FAR], {"score": [0.25] * 24}, True),
        ([value - 0.95 for value in FAR], {"score": [0.25] * 24}, False),
        (in_quarters(0.05, 0.05, 0.05), {}, True),
        (in_quarters(0.125, 0.09375, 0.0625), {}, True),
        (in_quarters(0.125, 0.09375, 0.06), {}, False),
        (in_quarters(0.0625, 0.09375, 0.125), {}, True),
        (in_quarters(0.0625, 0.09375, 0.13), {}, False),
        (in_quarters(0.08, 0.0, 0.08), {}, False),
        (in_quarters(0.08, -0.01, 0.08), {}, False),
        ([value + 0.1 * (-1) ** place for place, value in enumerate(FAR)], {}, False),
        ([2.3, *[value + 0.0155 * (-1) ** place for place, value in enumerate(FAR[1:])]], {}, True),
        ([2.3, *[value + 0.02 * (-1) ** place for place, value in enumerate(FAR[1:])]], {}, False),
    ],
)
def test_slow_even_fall_from_chance_is_too_slow(train: list[float], given: dict[str, Any], expected: bool) -> None:
    found = slow(train, **given)
    assert (found is not None) is expected
    if found is not None:
        assert (found.kind, found.tensor, found.threshold) == ("slow", given.get("name", "loss"), 0.15)


def test_too_slow_run_names_what_it_covered() -> None:
    found, exact = slow(), 2.0 * fall(series_of(FAR))
    assert slow(min_fall=exact) is not None
    assert slow(min_fall=math.nextafter(exact, math.inf)) is None
    assert found is not None
    assert found.value == pytest.approx((2.3 - 2.095) / 2.3)
    assert reason_of(found) == (
        "loss was 2.3 at the start (step 0) and is 2.095 in the last quarter (until step 23): it fell at an even "
        "speed, by 8.91 %; acc is 0.1"
    )
