"""Each condition of a run that learned nothing: every bound with the value on it, and a step to both sides."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.rules.training.curves import LIMITS, reason_of, run_of
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.learned_nothing import (
    at_chance,
    loss_at_chance,
    loss_without_score,
    score_stuck,
    stands,
    validation_at_chance,
    validation_never_better,
)
from trainguard.rules.training.series import noise
from trainguard.rules.training.step_rule import Check

TRAIN, EVAL = Mode.TRAIN, Mode.EVAL
FLAT = [1.0] * 12
HALF, FIFTH = math.log(2), math.log(5)
# A steady fall to 15 in the last quarter: by a sixteenth.
FADES = [16.0, 15.75, 15.5, 15.375, 15.25, 15.125, 15.0625, 14.9375]

SAW = [2.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 2.0]


def above(value: float) -> float:
    return math.nextafter(value, math.inf)


def zigzag(count: int, swing: float, first: float, level: float = 1.0) -> list[float]:
    return [first, *(level + swing * (-1) ** place for place in range(1, count))]


def stood(losses: Sequence[float], mode: Mode = TRAIN, name: str = "loss", **limits: Any) -> bool:
    """Whether a loss alone stands."""
    of = {name: losses}
    run = run_of(of) if mode is TRAIN else run_of(None, of)
    return stands(run, mode, replace(LIMITS, **limits)) is not None


def stood_beside(losses: Sequence[float], scores: Sequence[float], **limits: Any) -> bool:
    """Whether a loss stands beside a score."""
    return stands(run_of({"loss": losses}, score={"acc": scores}), TRAIN, replace(LIMITS, **limits)) is not None


LOW = [0.3] * 32


@pytest.mark.parametrize(
    ("losses", "given", "expected"),
    [
        ([1.0] * 4, {}, False),
        ([1.0] * 5, {}, True),
        ([1.0] * 6 + [0.0] + [1.0] * 6, {}, True),
        ([1.0] * 6 + [-0.01] + [1.0] * 6, {}, False),
        ([-1.0] * 6 + [0.0] + [-1.0] * 6, {}, True),
        ([0.99, 1.01, 1.01] * 4, {}, True),
        (FLAT, {"name": "policy_loss"}, False),
        (FADES, {"min_fall": 0.3125}, False),
        (FADES, {"min_fall": above(0.3125)}, True),
        (SAW, {}, True),
        ([4.0] + [3.75] * 31, {"min_fall": 0.0625}, False),
        ([4.0] + [3.76] * 31, {"min_fall": 0.0625}, True),
        ([4.0] + [5.0] * 31, {"min_fall": 0.25, "mode": EVAL}, True),
        ([4.0] + [5.01] * 31, {"min_fall": 0.25, "mode": EVAL}, False),
        ([4.0] + [5.01] * 31, {"min_fall": 0.25}, True),
        ([4.0, 3.0, 3.0] + [8.0] * 20, {"min_fall": 0.25}, False),
        ([4.0, 3.01, 3.01] + [8.0] * 20, {"min_fall": 0.25}, True),
        ([4.0, 0.5] + [8.0] * 20, {"min_fall": 0.25}, True),
        (zigzag(32, 0.14, 1.0, 1.3), {"mode": EVAL}, False),
        (zigzag(32, 0.05, 1.0, 1.08), {"mode": EVAL}, True),
        ([4.0 * each for each in zigzag(32, 0.0537, 1.0, 1.1)], {"mode": EVAL}, True),
        (zigzag(12, 0.0138, 0.99), {}, True),
        (zigzag(12, 0.0139, 0.99), {}, False),
        (zigzag(24, 0.0211, 0.99), {}, True),
        (zigzag(24, 0.0214, 0.99), {}, False),
    ],
)
def test_loss_alone_stands_without_a_fall_or_hiding_noise(
    losses: list[float], given: dict[str, Any], expected: bool
) -> None:
    assert stood(losses, **given) is expected


@pytest.mark.parametrize(
    ("losses", "scores", "given", "expected"),
    [
        ([4.0] + [3.75] * 31, LOW, {"min_fall": 0.0625}, False),
        ([4.0] + [3.76] * 31, LOW, {"min_fall": 0.0625}, True),
        ([20.0] + [17.0] * 31, LOW, {"min_fall": 0.25}, False),
        ([20.0] + [17.1] * 31, LOW, {"min_fall": 0.25}, True),
        (zigzag(32, 0.01, 1.047), LOW, {"min_fall": 0.01}, True),
        (zigzag(32, 0.01, 1.050), LOW, {"min_fall": 0.01}, False),
        (FLAT, [0.9] * 12, {}, False),
        (FLAT, [0.89] * 12, {}, True),
        (FLAT, [90.0] * 12, {}, False),
        (FLAT, [89.0] * 12, {}, True),
        (FLAT, [0.85, 0.75] * 4, {}, False),
        (FLAT, [0.85, 0.74] * 4, {}, True),
        (FLAT, [0.25] + [0.3125] * 7, {"min_gain": 0.0625}, False),
        (FLAT, [0.25] + [0.3125] * 7, {"min_gain": 0.0626}, True),
    ],
)
def test_loss_and_score_stand_if_neither_shows_learning(
    losses: list[float], scores: list[float], given: dict[str, Any], expected: bool
) -> None:
    assert stood_beside(losses, scores, **given) is expected


def test_standing_loss_names_its_levels_and_the_score() -> None:
    found = stands(run_of({"loss": FLAT, "aux": FLAT}, score={"acc": [0.25, 0.125] * 6}), TRAIN, LIMITS)
    assert found is not None
    assert reason_of(found) == (
        "loss stands: it was 1 at the start (step 0) and is 1 in the last quarter (until step 11), so it did not "
        "change; acc was 0.25 at the start (step 0) and is 0.1667"
    )
    assert (found.kind, found.tensor, found.value, found.threshold) == ("stands", "loss", 0.0, 0.05)
    risen = stands(run_of({"loss": [*FLAT, 1.25, 1.25, 1.25, 1.25]}), TRAIN, LIMITS)
    assert risen is not None
    assert reason_of(risen).endswith("is 1.25 in the last quarter (until step 15), so it rose by 25 %")
    assert stands(run_of({"a": FLAT, "b": [1.0, 0.5] * 6}), TRAIN, LIMITS) is None
    assert stands(run_of(None, {"a": FLAT}), TRAIN, LIMITS) is None
    assert stands(run_of({"a": FLAT}, held_score={"acc": [0.95] * 12}), TRAIN, LIMITS) is None
    held = stands(run_of({"a": [1.0] + [0.87] * 31}, held_score={"acc": LOW}), TRAIN, replace(LIMITS, min_fall=0.2))
    assert held is not None


def guessed(losses: Sequence[float], scores: Sequence[float], mode: Mode = TRAIN, **limits: Any) -> Check | None:
    if mode is TRAIN:
        return at_chance(
            run_of({"a": losses, "b": [HALF] * 9}, score={"accuracy": scores}), mode, replace(LIMITS, **limits)
        )
    return at_chance(run_of(None, {"a": losses}, held_score={"accuracy": scores}), mode, replace(LIMITS, **limits))


# A share that is below that of a guess at a loss of 9, and too low to be one exactly.
TINY = [5e-5] * 12


@pytest.mark.parametrize(
    ("losses", "scores", "given", "expected"),
    [
        ([HALF] * 5, [0.5] * 5, {}, True),
        ([HALF] * 4, [0.5] * 5, {}, False),
        ([HALF] * 5, [0.5] * 4, {}, False),
        ([HALF] * 12, [0.5] * 12, {"mode": EVAL}, True),
        ([10.0] + [9.0] * 11, TINY, {}, False),
        ([10.0] + [9.01] * 11, TINY, {}, True),
        ([9.0] * 12, TINY, {}, True),
        ([0.09] * 12, [0.9] * 12, {}, False),
        ([0.89 * 0.11] * 12, [0.89] * 12, {}, True),
        ([0.89 * 0.11] * 12, [0.889, 0.891] * 6, {}, False),
        ([0.2] * 12, [0.89] * 12, {}, False),
        ([HALF] * 12, [50.0] * 12, {}, True),
        ([HALF] * 12, [0.25] + [0.3125] * 11, {"min_gain": 0.0625}, False),
        ([HALF] * 12, [0.25] + [0.3125] * 11, {"min_gain": 0.0626}, True),
        ([0.1] * 12, [0.5] * 12, {}, True),
        ([3.0] * 12, [0.5] * 12, {}, False),
    ],
)
def test_score_of_a_guess_is_at_chance_beside_its_loss(
    losses: list[float], scores: list[float], given: dict[str, Any], expected: bool
) -> None:
    assert (guessed(losses, scores, **given) is not None) is expected


def test_chance_score_names_score_and_loss() -> None:
    found = guessed([HALF] * 12, [0.5, 0.25] * 6)
    assert found is not None
    assert (found.kind, found.tensor, found.threshold) == ("chance", "accuracy", None)
    assert found.value == pytest.approx(1 / 3)
    assert reason_of(found) == (
        "accuracy stays at the level of chance: 0.5 at the start (step 0), 0.3333 in the last quarter (until step 11), "
        "with a loss of 0.6931 there"
    )


def level(losses: Sequence[float], name: str = "loss", scores: Sequence[float] = (), **limits: Any) -> Check | None:
    return loss_at_chance(
        run_of({name: losses}, score={"accuracy": scores} if scores else {}), replace(LIMITS, **limits)
    )


# Noise of which the share of the level is known below.
NOISY = [FIFTH, *zigzag(31, 0.004, FIFTH, FIFTH)]


@pytest.mark.parametrize(
    ("losses", "given", "expected"),
    [
        ([9.0] * 4 + [FIFTH] * 10, {}, True),
        ([9.0] * 4 + [FIFTH] * 9, {}, False),
        ([9.0] * 5 + [FIFTH] * 15, {}, True),
        ([9.0] * 6 + [FIFTH] * 14, {}, False),
        ([0.01] * 4 + [FIFTH] * 12, {}, True),
        ([0.0] * 4 + [FIFTH] * 12, {}, False),
        ([9.0] * 4 + [FIFTH] * 12, {"name": "q_loss"}, False),
        ([9.0] * 4 + [FIFTH] * 12, {"scores": [0.2] * 12}, True),
        ([9.0] * 4 + [FIFTH] * 12, {"scores": [0.25] * 12}, False),
        ([9.0] * 4 + [FIFTH] * 12, {"scores": [20.0] * 12}, True),
        ([9.0] * 4 + [FIFTH * (1.0 - 1e-5 * place) for place in range(12)], {}, False),
        ([9.0] * 4 + [FIFTH * (1.0 + 1e-5 * place) for place in range(12)], {}, False),
    ],
)
def test_loss_at_the_logarithm_of_a_number_is_a_guess(
    losses: list[float], given: dict[str, Any], expected: bool
) -> None:
    assert (level(losses, **given) is not None) is expected


def test_noise_above_the_least_fall_at_guess_level_says_nothing() -> None:
    since = NOISY[8:]
    middle = fmean(since)
    share = noise(since) / middle
    exact = next(each for each in (share, above(share), -above(-share)) if each * middle == noise(since))
    assert level(NOISY, min_fall=exact) is not None
    assert level(NOISY, min_fall=exact - 1e-9) is None


def test_loss_at_chance_names_its_classes() -> None:
    found = level([9.0] * 4 + [FIFTH] * 12)
    assert found is not None
    assert (found.kind, found.tensor, found.threshold) == ("level", "loss", FIFTH)
    assert found.value == pytest.approx(FIFTH)
    assert reason_of(found) == (
        "loss was 9 at the start (step 0) and has stood at 1.6094 since step 4: ln 5 = 1.6094 is the cross entropy of "
        "a guess among 5 classes"
    )
    assert loss_at_chance(run_of({"a": FALLS, "b": [9.0] * 4 + [FIFTH] * 12}), LIMITS) is None


FALLS = [20.0 * 0.8**place for place in range(20)]


def unheld(losses: Sequence[float], scores: Sequence[float], **limits: Any) -> Check | None:
    run = run_of({"loss": FALLS}, {"val": losses, "aux": [HALF] * 20}, held_score={"acc": scores})
    return validation_at_chance(run, replace(LIMITS, **limits))


@pytest.mark.parametrize(
    ("losses", "scores", "given", "expected"),
    [
        ([HALF] * 5, [0.5] * 5, {}, True),
        ([HALF] * 4, [0.5] * 5, {}, False),
        ([HALF] * 5, [0.5] * 4, {}, False),
        ([HALF] * 6, [0.3] * 6, {}, False),
        ([3.0] * 6, [0.5] * 6, {}, False),
        ([3.0, HALF, HALF, 3.0, 3.0], [0.5] * 5, {}, True),
        ([3.0, HALF, 3.0, 3.0, 3.0], [0.5] * 5, {}, False),
        ([HALF] * 6, [50.0] * 6, {}, True),
        ([HALF] * 8, [0.375] + [0.4375] * 7, {"min_gain": 0.0625}, False),
        ([HALF] * 8, [0.375] + [0.4375] * 7, {"min_gain": 0.0626}, True),
    ],
)
def test_validation_is_at_chance_if_a_guess_at_its_lowest_loss(
    losses: list[float], scores: list[float], given: dict[str, Any], expected: bool
) -> None:
    assert (unheld(losses, scores, **given) is not None) is expected


def test_validation_at_chance_names_its_lowest_loss() -> None:
    found = unheld([3.0, HALF, HALF, 3.0, 3.0], [0.5] * 5)
    assert found is not None
    assert (found.kind, found.tensor, found.value, found.threshold) == ("validation", "acc", 0.5, None)
    assert reason_of(found) == (
        "acc stays at the level of chance: 0.5 at the start (step 0), 0.5 in the last quarter (until step 4); the loss "
        "of validation was never below 0.6931"
    )
    assert validation_at_chance(run_of(None, {"val": [HALF] * 6}, held_score={"acc": [0.5] * 6}), LIMITS) is None


UNTRAINED = {"a": [5.0] + [1.0] * 19}


def unseen(losses: Sequence[float], scores: Sequence[float] = (), **given: Any) -> Check | None:
    name, train, limits = given.pop("name", "val"), given.pop("train", UNTRAINED), replace(LIMITS, **given)
    held_score = {"acc": scores} if scores else {}
    return validation_never_better(run_of(train, {name: losses, "z": [99.0] * 20}, held_score=held_score), limits)


@pytest.mark.parametrize(
    ("losses", "scores", "given", "expected"),
    [
        ([6.1] * 5, [], {}, True),
        ([6.1] * 4, [], {}, False),
        ([6.1] * 5, [], {"train": {"a": [5.0] + [1.0] * 4}}, True),
        ([6.1] * 5, [], {"train": {"a": [5.0] + [1.0] * 3}}, False),
        ([6.0] * 9, [], {}, False),
        ([6.0] * 9, [60.0] + [50.0] * 8, {}, True),
        ([6.0] * 9, [60.0] + [50.1] * 8, {}, False),
        ([8.0] + [7.6] * 8, [], {}, True),
        ([8.0] + [7.5] * 8, [], {}, False),
        ([6.1] * 9, [], {"train": {"a": [20.0] + [16.0] * 19}}, False),
        ([24.1] * 9, [], {"train": {"a": [20.0] + [16.0] * 19}}, True),
        ([24.1] * 9, [], {"train": {"a": [20.0] + [16.1] * 19, "b": [5.0] + [1.0] * 19}}, False),
        ([6.1] * 9, [], {"train": {"a": [5.0] + [0.0] * 19}}, True),
        ([6.1] * 9, [], {"train": {"a": [5.0] + [-0.5] * 19}}, False),
        ([6.1] * 9, [], {"name": "td_loss"}, False),
        ([6.1] * 9, [], {"train": {"td_loss": [5.0] + [1.0] * 19}}, False),
        ([6.1] * 9, [0.25] + [0.3125] * 8, {"min_gain": 0.0625}, False),
        ([6.1] * 9, [0.25] + [0.3125] * 8, {"min_gain": 0.0626}, True),
    ],
)
def test_never_better_validation_is_prepared_differently(
    losses: list[float], scores: list[float], given: dict[str, Any], expected: bool
) -> None:
    assert (unseen(losses, scores, **given) is not None) is expected


def test_never_better_validation_names_both_losses() -> None:
    found = unseen([8.0] + [7.75] * 8)
    assert found is not None
    assert (found.kind, found.tensor, found.value, found.threshold) == ("unseen", "val", 7.75, 6.0)
    assert reason_of(found) == (
        "a was 5 at the start (step 0) and fell to 1, and val was never below 7.75: it was 8 at the start (step 0) and "
        "is 7.75 in the last quarter (until step 8)"
    )


def stuck(scores: Sequence[float], mode: Mode = TRAIN, losses: Sequence[float] = (), **limits: Any) -> Check | None:
    of = {"acc": scores}
    train = {"a": losses, "b": FALLS} if losses else {}
    run = run_of(train, score=of) if mode is TRAIN else run_of(train, held_score=of)
    return score_stuck(run, replace(LIMITS, **limits))


@pytest.mark.parametrize(
    ("scores", "given", "expected"),
    [
        ([0.3] * 10, {}, True),
        ([0.3] * 9, {}, False),
        ([0.3] * 9 + [0.301], {}, False),
        ([0.0] * 10, {}, False),
        ([1e-9] * 10, {}, True),
        ([0.89] * 10, {}, True),
        ([0.9] * 10, {}, False),
        ([0.64] * 10, {"mode": EVAL}, True),
        ([0.65] * 10, {"mode": EVAL}, False),
        ([30.0] * 10, {}, True),
        ([0.05] * 10, {"losses": [4.0] + [2.0] * 9}, True),
        ([0.04] * 10, {"losses": [4.0] + [2.0] * 9}, False),
        ([0.04] * 10, {"losses": [4.0] + [2.1] * 9}, True),
        ([0.3] * 10, {"min_gain": 0.0}, False),
        ([0.3] * 10, {"min_gain": 1e-9}, True),
    ],
)
def test_score_with_the_same_number_at_each_step_is_stuck(
    scores: list[float], given: dict[str, Any], expected: bool
) -> None:
    found = stuck(scores, **given)
    assert (found is not None) is expected
    if found is not None:
        assert reason_of(found).endswith("at each of 10 steps, from step 0 to 9, whatever the loss does")
        assert (found.kind, found.tensor, found.value, found.threshold) == ("stuck", "acc", scores[0], None)


@pytest.mark.parametrize(
    ("scores", "losses", "given", "expected"),
    [
        ([0.05] * 10, [4.0] + [2.0] * 9, {}, True),
        ([0.049] * 10, [4.0] + [2.0] * 9, {}, False),
        ([0.64] * 10, [4.0] + [2.0] * 9, {}, True),
        ([0.65] * 10, [4.0] + [2.0] * 9, {}, False),
        ([30.0] * 10, [4.0] + [2.0] * 9, {}, True),
        ([0.3] * 9, [4.0] + [2.0] * 9, {}, False),
        ([0.3] * 10, [4.0] + [2.01] * 9, {}, False),
        ([0.25] + [0.3125] * 9, [4.0] + [2.0] * 9, {"min_gain": 0.0625}, False),
        ([0.25] + [0.3125] * 9, [4.0] + [2.0] * 9, {"min_gain": 0.0626}, True),
    ],
)
def test_halved_loss_without_a_score_gain_learns_something_else(
    scores: list[float], losses: list[float], given: dict[str, Any], expected: bool
) -> None:
    found = loss_without_score(run_of({"a": losses, "b": FALLS}, score={"acc": scores}), replace(LIMITS, **given))
    assert (found is not None) is expected
    if found is not None:
        said = "a was 4 at the start (step 0) and fell to 2 in the last quarter, and acc did not gain"
        assert said in reason_of(found)
        assert (found.kind, found.tensor, found.threshold) == ("no gain", "acc", None)
        assert found.value == pytest.approx(scores[-1])
