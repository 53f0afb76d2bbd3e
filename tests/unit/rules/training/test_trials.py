"""Every expected first step of the trials, by the product's reader; four carry the original rules' own tests."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.steps import RULES, Outcome, parameters
from tests.support.tensor_trials import expected, trial_steps, trials
from trainguard.errors import RuleConfigError
from trainguard.rules.training.step_rule import RunView
from trainguard.tensors.step_view import StepView


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
def test_given_a_trial_when_a_rule_sees_it_then_it_first_fires_where_expected(
    trial: str, rule: str, given: dict[str, str], first: int | None
) -> None:
    outcome = judged(rule, trial, given)
    assert (outcome.state.first.step if outcome.state.first else None) == first
    assert outcome.state.evaluated > 0
    assert outcome.state.unusable == 0


def test_given_the_expectations_when_counted_then_none_was_passed_over() -> None:
    assert len(cases()) == 21
    assert {case.values[1] for case in cases()} | {"UnchangedTensor", "StalledTrainingRule"} >= {
        rule for rules in expected().values() for rule in rules if rule != "trace"
    }


def test_given_nan_gradients_when_seen_then_the_rules_answer_as_the_original_ones() -> None:
    assert judged("ExplodingTensor", "exploding_test_invoker", {"collection_names": "gradients,weights"}).steps == [
        0,
        2,
    ]
    assert judged("VanishingGradient", "exploding_test_invoker", {}).steps == []


@pytest.mark.parametrize(("start", "end", "steps"), [(0, 2, []), (0, 3, [2]), (2, 3, [2]), (3, 6, [])])
def test_given_unchanged_ones_when_a_range_is_checked_then_the_history_comes_from_the_stored_steps(
    start: int, end: int, steps: list[int]
) -> None:
    given = {"tensor_regex": ".*", "start_step": str(start), "end_step": str(end)}
    assert judged("UnchangedTensor", "unchanged_test", given).steps == steps


def test_given_the_loss_test_when_begun_at_13_then_the_reference_lies_before_and_nothing_fires() -> None:
    outcome = judged("LossNotDecreasing", "loss_not_decreasing_test_default", {"start_step": "13"})
    assert (outcome.steps, outcome.state.evaluated) == ([], 1)
    assert "since step 4" in outcome.result.reason


def test_given_half_a_layer_dead_when_seen_then_only_more_than_half_fires() -> None:
    percents = expected()["dead_relu"]["DeadRelu"]["percent_dead"]
    for step, percent in zip(trial_steps("dead_relu"), percents, strict=True):
        outcome = judged("DeadRelu", "dead_relu", {"tensor_regex": "conv0_relu_output"}, [step])
        assert outcome.result.measured == pytest.approx(percent)
        assert outcome.steps == ([step.step] if percent > 50 else [])


def test_given_no_selection_when_all_zero_is_set_up_then_its_configuration_is_at_fault() -> None:
    with pytest.raises(RuleConfigError, match="AllZero_collection_names is None, expected collections"):
        parameters("AllZero")


def test_given_a_gap_in_a_finished_run_when_replayed_then_the_stall_begins_when_the_threshold_was_over() -> None:
    steps = trial_steps("stalled")
    outcome = judged("StalledTrainingRule", "stalled", {"threshold": "1800"})
    first = outcome.state.first
    assert first is not None
    assert (first.step, outcome.steps) == (3, [3])
    assert first.at == pytest.approx(steps[3].at + 1800.0)
    assert first.value == pytest.approx(1920.0, abs=1.0)


def test_given_the_trials_when_listed_then_each_rule_that_is_expected_of_one_is_a_rule() -> None:
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
def test_given_real_series_when_a_rule_sees_them_then_it_fires_where_it_did(
    trial: str, rule: str, given: dict[str, str], first: int | None
) -> None:
    state = judged(rule, trial, given).state
    assert (state.first.step if state.first else None) == first


def test_given_xgboosts_trees_when_nothing_is_selected_then_their_nan_explodes_nothing() -> None:
    assert judged("ExplodingTensor", "hook_xgboost_wine", {}).steps == []
    assert judged("ExplodingTensor", "hook_xgboost_wine", {"tensor_regex": "trees/"}).steps[0] == 0


def test_given_real_predictions_when_judged_then_the_numbers_are_those_of_the_data() -> None:
    reason = judged("ClassImbalance", "hook_xgboost_wine", {}, trial_steps("hook_xgboost_wine")[:1]).result.reason
    assert reason.startswith(
        "Step 0: 105 of 138 samples of class 3 were predicted wrongly (predictions), a share of 0.76"
    )
