"""Shares of right answers and losses at the level of chance: each bound, on it and to both sides."""

import math

import pytest

from trainguard.rules.training.learned_nothing import classes_guessed, guesses, guesses_exactly, says_one_thing

# Its exponential is 2 exactly: a guess is right in half of the cases.
HALF = math.log(2)
# Cross entropy (over ln 2) and squared error of who says one half of two classes.
EVEN = 0.5, 0.25


def above(value: float) -> float:
    return math.nextafter(value, math.inf)


def below(value: float) -> float:
    return math.nextafter(value, -math.inf)


@pytest.mark.parametrize(
    ("share", "loss", "is_guess", "exactly"),
    [
        (0.5, HALF, True, True),
        (0.6, HALF, True, True),
        (above(0.6), HALF, False, False),
        (0.4, HALF, True, True),
        (below(0.4), HALF, True, False),
        (below(0.65), 0.0, True, False),
        (0.65, 0.0, False, False),
        (0.0, HALF, True, False),
        (-0.1, HALF, False, False),
        (0.0, 100.0, True, False),
        (2.0e-22, 60.0, True, True),
        (2.4e-22, 60.0, False, False),
    ],
)
def test_share_with_a_loss_no_better_than_a_guess_is_one(
    share: float, loss: float, is_guess: bool, exactly: bool
) -> None:
    assert (guesses(share, loss), guesses_exactly(share, loss)) == (is_guess, exactly)


@pytest.mark.parametrize(
    ("share", "guess"),
    [(0.5, HALF), (0.5, 0.25), (0.75, 0.1875), (0.75, 0.5623351446188083), (0.9, 0.09), (0.9, 0.3250829733914482)],
)
@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, True), (1.0499, True), (0.9501, True), (1.0501, False), (0.9499, False)]
)
def test_loss_within_five_percent_of_one_answer_to_all_is_named(
    share: float, guess: float, factor: float, expected: bool
) -> None:
    assert says_one_thing(share, guess * factor) is expected


@pytest.mark.parametrize(("share", "loss"), [(below(0.5), HALF), (1.0, 0.0), (1.5, 0.1), (0.25, 0.1875)])
def test_share_below_half_or_of_all_is_no_class_share(share: float, loss: float) -> None:
    assert says_one_thing(share, loss) is False


@pytest.mark.parametrize("classes", range(2, 13))
@pytest.mark.parametrize(
    ("factor", "close"), [(1.0, True), (1.00499, True), (0.99501, True), (1.00501, False), (0.99499, False)]
)
def test_loss_near_a_small_logarithm_gives_the_number_of_classes(classes: int, factor: float, close: bool) -> None:
    assert classes_guessed(math.log(classes) * factor) == (classes if close and classes <= 10 else None)
