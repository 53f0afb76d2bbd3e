"""Every expected first step of the trials, by the product's reader; four carry the original rules' own tests."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.steps import RULES, Outcome, parameters
from tests.support.tensor_trials import expected, trial_steps, trials
from trainguard.core.errors import RuleConfigError
from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.training.step_rule import RunView


def judged(rule: str, trial: str, given: dict[str, str], only: Sequence[StepView] | None = None) -> Outcome:
    each, values = RULES[rule], parameters(rule, **given)
    state = each.state_type()
    steps = trial_steps(trial) if only is None else only
    for step in steps:
        each.observe(state, step, values)
    return Outcome(state, each.judge(state, RunView(len(steps), closed=True), values))


FIRST = ("first_fire", "first_fire_OR", "first_fire_by_published_text")


def cases() -> list[Any]:
    """Return each expectation that names a step, or that none fires."""
    every = [
        (trial, rule, case)
        for trial, rules in expected().items()
        for rule, each in rules.items()
        for case in (each if isinstance(each, list) else [each])
        if rule != "trace" and "params" in case
    ]
    return [
        pytest.param(trial, rule, case["params"], case[key], id=f"{trial}-{rule}")
        for trial, rule, case in every
        for key in FIRST
        if key in case
    ]


@pytest.mark.parametrize(("trial", "rule", "given", "first"), cases())
def test_rule_first_fires_in_a_trial_where_expected(
    trial: str, rule: str, given: dict[str, str], first: int | None
) -> None:
    outcome = judged(rule, trial, given)
    assert (outcome.state.first.step if outcome.state.first else None) == first
    assert outcome.state.evaluated > 0
    assert outcome.state.unusable == 0


def test_every_expectation_is_checked() -> None:
    assert len(cases()) == 21
    assert {case.values[1] for case in cases()} | {"UnchangedTensor", "StalledTrainingRule"} >= {
        rule for rules in expected().values() for rule in rules if rule != "trace"
    }


def test_rules_answer_nan_gradients_as_the_original_ones() -> None:
    assert judged("ExplodingTensor", "exploding_test_invoker", {"collection_names": "gradients,weights"}).steps == [
        0,
        2,
    ]
    assert judged("VanishingGradient", "exploding_test_invoker", {}).steps == []


@pytest.mark.parametrize(("start", "end", "steps"), [(0, 2, []), (0, 3, [2]), (2, 3, [2]), (3, 6, [])])
def test_unchanged_check_of_a_range_uses_stored_history(start: int, end: int, steps: list[int]) -> None:
    given = {"tensor_regex": ".*", "start_step": str(start), "end_step": str(end)}
    assert judged("UnchangedTensor", "unchanged_test", given).steps == steps


def test_loss_test_from_13_has_its_reference_before_and_no_fire() -> None:
    outcome = judged("LossNotDecreasing", "loss_not_decreasing_test_default", {"start_step": "13"})
    assert (outcome.steps, outcome.state.evaluated) == ([], 1)
    assert "since step 4" in outcome.result.reason


def test_dead_layer_fires_above_half_only() -> None:
    percents = expected()["dead_relu"]["DeadRelu"]["percent_dead"]
    for step, percent in zip(trial_steps("dead_relu"), percents, strict=True):
        outcome = judged("DeadRelu", "dead_relu", {"tensor_regex": "conv0_relu_output"}, [step])
        assert outcome.result.measured == pytest.approx(percent)
        assert outcome.steps == ([step.step] if percent > 50 else [])


def test_all_zero_without_a_selection_is_a_configuration_fault() -> None:
    with pytest.raises(RuleConfigError, match="AllZero_collection_names is None, expected collections"):
        parameters("AllZero")


def test_replayed_gap_stalls_once_the_threshold_is_over() -> None:
    steps = trial_steps("stalled")
    outcome = judged("StalledTrainingRule", "stalled", {"threshold": "1800"})
    first = outcome.state.first
    assert first is not None
    assert (first.step, outcome.steps) == (3, [3])
    assert first.at == pytest.approx(steps[3].at + 1800.0)
    assert first.value == pytest.approx(1920.0, abs=1.0)


def test_rules_expected_of_trials_exist() -> None:
    assert set(expected()) <= set(trials())
    assert {rule for rules in expected().values() for rule in rules if rule != "trace"} <= set(RULES)


REAL: list[tuple[str, str, dict[str, str], int | None]] = [
    ("xgboost_metrics_LienHungChen", "LossNotDecreasing", {}, 100),
    ("xgboost_metrics_LienHungChen", "Overfit", {}, 0),
    ("xgboost_metrics_LienHungChen", "Overtraining", {}, 110),
    ("hook_xgboost_wine", "LossNotDecreasing", {}, None),
    ("hook_xgboost_wine", "Overfit", {}, 15),
    ("hook_xgboost_wine", "Overtraining", {}, None),
    ("hook_xgboost_wine", "ClassImbalance", {}, 0),
]


@pytest.mark.parametrize(("trial", "rule", "given", "first"), REAL, ids=[f"{case[0]}-{case[1]}" for case in REAL])
def test_rule_fires_on_real_series_where_it_did(
    trial: str, rule: str, given: dict[str, str], first: int | None
) -> None:
    state = judged(rule, trial, given).state
    assert (state.first.step if state.first else None) == first


def test_nan_in_xgboost_trees_is_no_explosion_by_default() -> None:
    assert judged("ExplodingTensor", "hook_xgboost_wine", {}).steps == []
    assert judged("ExplodingTensor", "hook_xgboost_wine", {"tensor_regex": "trees/"}).steps[0] == 0


def test_numbers_of_real_predictions_are_those_of_the_data() -> None:
    reason = judged("ClassImbalance", "hook_xgboost_wine", {}, trial_steps("hook_xgboost_wine")[:1]).result.reason
    assert reason.startswith(
        "Step 0: 105 of 138 samples of class 3 were predicted wrongly (predictions), a share of 0.76"
    )
