"""A loss that jumps far above that of a guess, and validation that never gets better while training is by heart."""

import math

import pytest

from tests.unit.rules.training.curves import LIMITS, reason_of, run_of
from trainguard.rules.training.learned_nothing import validation_never_better, worse_than_a_guess

HALF = math.log(2)
JUMPING = [15.0, 17.0] * 12


@pytest.mark.parametrize(
    ("losses", "scores", "found"),
    [
        ([20_000.0, *JUMPING], [0.1, 0.11] * 12, True),
        ([20_000.0, *[16.0, 16.1] * 12], [0.1, 0.11] * 12, False),
        ([20_000.0, *JUMPING], [0.1 + 0.02 * place for place in range(24)], False),
        ([20_000.0, *JUMPING], [0.01, 0.02] * 12, False),
        ([6.0, 5.0] * 12, [10.0, 11.0] * 12, True),
        ([4.5, 4.0] * 12, [10.0, 11.0] * 12, False),
        ([3.0, 3.3] * 12, [0.4, 0.42] * 12, False),
        ([*(24.0 - 0.3 * place + place % 2 for place in range(25))], [0.1, 0.11] * 12, False),
        (JUMPING[:8], [0.1, 0.11] * 4, False),
    ],
)
def test_loss_that_jumps_far_above_a_guess_is_named(losses: list[float], scores: list[float], found: bool) -> None:
    run = run_of({"loss": losses}, score={"accuracy": scores})
    assert (worse_than_a_guess(run, LIMITS) is not None) is found
    run.regression = True
    assert worse_than_a_guess(run, LIMITS) is None


def test_words_of_a_loss_far_above_a_guess() -> None:
    found = worse_than_a_guess(run_of({"loss": JUMPING}, score={"accuracy": [0.1] * 24}), LIMITS)
    assert found is not None
    assert reason_of(found) == (
        "accuracy never rose: it was 0.1 at the start (step 0) and is 0.1 in the last quarter (until step 23), and "
        "loss jumps about 17, where a guess has 2.303"
    )


@pytest.mark.parametrize(
    ("held", "train", "found"),
    [
        ([HALF + 0.01 * place for place in range(20)], [HALF * 0.8**place for place in range(20)], True),
        ([HALF + 0.01 * place for place in range(20)], [HALF * 0.95**place for place in range(20)], False),
        ([0.4 + 0.01 * place for place in range(20)], [0.4 * 0.8**place for place in range(20)], True),
        ([0.4 + 0.003 * place for place in range(20)], [0.4 * 0.8**place for place in range(20)], False),
        ([HALF, 0.6, *[HALF + 0.01 * place for place in range(18)]], [HALF * 0.8**place for place in range(20)], True),
        ([HALF, 0.6, 0.6, *[HALF + 0.1] * 17], [HALF * 0.8**place for place in range(20)], False),
    ],
)
def test_validation_never_better_learned_nothing(held: list[float], train: list[float], found: bool) -> None:
    run = run_of({"loss": train}, {"val_loss": held})
    assert (validation_never_better(run, LIMITS) is not None) is found
