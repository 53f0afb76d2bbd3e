"""PoorWeightInitialization: each of its three conditions on its threshold, which of them is worst, and what is said."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.steps import Outcome, Run, observed
from trainguard.core.records import Status
from trainguard.rules.training.tensors.weights import PoorWeightInitialization

RULE = "PoorWeightInitialization"
VARIANCE = "the variance of {} is {} times the least of the activation inputs, {}"
RANGE = "the range of {} (5th to 95th percentile) is {}, {}"
LOSS = "the loss ({}) has not fallen below its best for {}, {}"
INPUTS = {"a_relu_input": [-1.0, 1.0], "b_relu_input": [-2.0, 2.0]}
# Its percentiles 5 and 95 are 5 and 95.
WIDE = np.arange(101.0)


def one(tensors: Mapping[str, Any], **how: Any) -> Run:
    run = Run()
    run.add(7, tensors, collections={"gradients": ["g", "h", "i"], "losses": ["loss", "other"]}, **how)
    return run


def said(outcome: Outcome) -> str:
    """Return the newest sentence without its step."""
    return outcome.result.reason.partition(": ")[2]


@pytest.mark.parametrize(
    ("tensors", "given", "fires", "sentence"),
    [
        (INPUTS, {"threshold": 4}, False, VARIANCE.format("b_relu_input", 4, "not above the threshold 4.")),
        (INPUTS, {"threshold": 3.5}, True, VARIANCE.format("b_relu_input", 4, "above the threshold 3.5.")),
        (INPUTS, {"threshold": 0}, True, VARIANCE.format("b_relu_input", 4, "above the threshold 0.")),
        ({"a_relu_input": [1.0, 1.0], "b_relu_input": [2.0, 2.0]}, {}, False,
         VARIANCE.format("b_relu_input", 1, "not above the threshold 10.")),
        ({**INPUTS, "c_relu_input": [2.0, 2.0]}, {}, True,
         VARIANCE.format("b_relu_input", "inf", "above the threshold 10.")),
        ({"g": WIDE}, {"distribution_range": 90}, False, RANGE.format("g", 90, "not below the threshold 90.")),
        ({"g": WIDE}, {"distribution_range": 90.5}, True, RANGE.format("g", 90, "below the threshold 90.5.")),
        ({"g": WIDE, "h": WIDE / 2.0, "i": [math.nan]}, {"distribution_range": 45}, False,
         RANGE.format("h", 45, "not below the threshold 45.")),
        ({"g": [1.0], "h": np.zeros(0), "i": np.array(["x"], object)}, {}, True,
         RANGE.format("g", 0, "below the threshold 0.001.")),
        ({"loss": [1.0]}, {}, False, LOSS.format("loss", "0 saved steps", "below the threshold 5.")),
    ],
)  # fmt: skip
def test_sentence_of_the_first_step_has_what_was_measured(
    tensors: Mapping[str, Any], given: Mapping[str, Any], fires: bool, sentence: str
) -> None:
    outcome = observed(RULE, one(tensors), **given)
    assert (bool(outcome.steps), said(outcome), outcome.state.unusable) == (fires, sentence, 0)
    assert (
        outcome.result.measure
        is PoorWeightInitialization.spec.measures[[VARIANCE[:8], RANGE[:8], LOSS[:8]].index(sentence[:8])]
    )
    assert (outcome.result.advice or "Initialise each layer").startswith("Initialise each layer")


@pytest.mark.parametrize(
    "tensors",
    [
        {"a_relu_input": [1.0, 2.0]},
        {"a_relu_input": [1.0, 2.0], "b_relu_input": np.array(["x"], object)},
        {**INPUTS, "c_relu_input": [math.nan]},
        {"g": [math.nan], "loss": ["x"]},
    ],
)
def test_too_little_to_compare_is_not_judged(tensors: Mapping[str, Any]) -> None:
    outcome = observed(RULE, one(tensors))
    assert (outcome.state.evaluated, outcome.result.status) == (0, Status.NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("saved", "measured", "unusable"),
    [
        ({"g": {"min": 0.0, "max": 0.5}}, 0.5, 0),
        ({"g": {"min": -0.5, "max": 0.5}}, None, 1),
        ({"g": {"min": 0.0}}, None, 1),
        ({"g": {"max": 0.5}}, None, 1),
        ({"g": {"mean": 0.5}}, None, 1),
        ({"g": {"mean": 0.5}, "h": {"max": 0.5}, "i": {"l2": 0.5}}, None, 3),
        ({"g": {"mean": 0.5}, "h": {"min": 0.0, "max": 0.25}}, 0.25, 1),
        ({"g": {"min": 0.0, "max": 0.5}, "h": {"min": 0.0, "max": 2.0}}, 0.5, 1),
    ],
)
def test_reductions_decide_if_their_range_is_below_the_threshold(
    saved: Mapping[str, Mapping[str, float]], measured: float | None, unusable: int
) -> None:
    outcome = observed(RULE, one({}, reductions=saved), distribution_range=1)
    assert (outcome.result.measured, outcome.state.unusable) == (measured, unusable)
    assert bool(outcome.steps) is (measured is not None)
    if unusable:
        assert "at step 7 only reductions were saved" in outcome.result.reason


@pytest.mark.parametrize(
    ("losses", "steps", "waited"),
    [
        ([1.0, 1.0, 1.0, 0.5], [2], "0 saved steps, below"),
        ([1.0, 2.0, 0.75, 0.75], [], "1 saved step, below"),
        ([math.nan, 3.0, 3.0, math.nan], [3], "2 saved steps, not below"),
    ],
)
def test_losses_not_below_the_best_wait_for_patience(losses: Sequence[float], steps: list[int], waited: str) -> None:
    run = Run()
    for step, loss in enumerate(losses):
        run.add(step, {"loss": [loss], "other": [loss]}, collections={"losses": ["other", "loss"]})
    outcome = observed(RULE, run, patience=2)
    assert (outcome.steps, said(outcome)) == (steps, LOSS.format("loss", *f"{waited} the threshold 2.".split(", ")))
    assert (outcome.result.advice or "").startswith("Check the learning rate" if outcome.result.advice else "")
    assert outcome.result.measure is PoorWeightInitialization.spec.measures[2]
    assert observed(RULE, run, patience=2, steps=2).state.evaluated == 2


@pytest.mark.parametrize(
    ("threshold", "distribution_range", "patience", "worst", "kinds"),
    [
        (4, 90, 5, "b_relu_input", "variance"),
        (8, 80, 5, "g", "range"),
        (8, 100, 5, "g", "range"),
        (2, 100, 5, "b_relu_input", "variance range"),
        (3, 150, 5, "g", "variance range"),
        (3, 100, 1, "b_relu_input", "variance range loss"),
        (8, 80, 1, "loss", "loss"),
    ],
)
def test_all_conditions_are_named_and_largest_excess_is_worst(
    threshold: float, distribution_range: float, patience: int, worst: str, kinds: str
) -> None:
    run = one({"loss": [1.0]})
    run.add(8, {**INPUTS, "g": WIDE, "loss": [1.0]}, collections={"gradients": ["g"], "losses": ["loss"]})
    given = {"threshold": threshold, "distribution_range": distribution_range, "patience": patience}
    outcome = observed(RULE, run, **given)
    assert outcome.result.worst == worst
    clauses = [each.split()[1] for each in said(outcome).split("; ")]
    assert clauses == kinds.split()
    assert observed(RULE, run, steps=1, **given).state.evaluated == 1
