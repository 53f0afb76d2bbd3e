"""What rules say about a run: numbers of the finding, what they could not use, what was never saved, and what to do."""

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.steps import RULES, Run, Step, observed, parameters, reduced
from tests.unit.rules.training.random_runs import SET_UP, random_run
from trainguard.core.errors import TelemetryFormatError
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.family_rules import bare
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.registry import TRUSTED_RULES
from trainguard.rules.training.step_rule import RunView

NEVER = {"CreateXgboostReport"}
# They need longer runs, and one that has ended: what they say is tested with them.
TRUSTED = {bare(each.name) for each in TRUSTED_RULES}


def wide(reductions_only: bool = False, **how: Any) -> Run:
    """Return two steps in which every rule over tensors of numbers has something to look at."""
    run = Run(others={"other": Run()})
    names = ["g", "a_relu_input", "b_relu_input", "relu_output", "tanh_input", "hybridsequential0_input_0"]
    names += ["embedding0_input_0", "labels", "predictions"]
    for step in (0, 1):
        values = {name: np.arange(1.0, 25.0).reshape(2, 3, 4) + step for name in names}
        saved: dict[str, Any] = (
            {"reductions": {name: reduced(values[name]) for name in names}} if reductions_only else {}
        )
        run.add(
            step, {} if reductions_only else values, collections={"gradients": ["g"], "weights": ["g"]}, **saved, **how
        )
    return run


def test_fire_names_step_tensor_value_and_threshold() -> None:
    run = Run()
    collections = {"gradients": ["gradient/a", "gradient/b", "gradient/c"]}
    run.add(500, {"gradient/a": [1.0], "gradient/b": [3e-12], "gradient/c": [4e-9]}, collections=collections, at=77.0)
    result = observed("VanishingGradient", run).result
    assert result.status is Status.FIRED
    assert result.reason == (
        "Step 500: the mean absolute value of gradient/b is 3e-12, below the threshold 1e-07 "
        "(the worst of 2 such tensors, of 3 in all)."
    )
    assert (result.worst, result.measured, result.threshold, result.onset) == ("gradient/b", 3e-12, 1e-7, 77.0)
    assert result.advice is not None
    assert result.advice.startswith("Use activations")


def test_past_fire_is_remembered_by_a_rule_that_is_ok() -> None:
    run = Run()
    for step, value in enumerate((1.0, np.nan, 2.0)):
        run.add(step, {"loss": [value]})
    outcome = observed("ExplodingTensor", run)
    assert outcome.result.status is Status.OK
    assert (outcome.state.fired, outcome.steps, outcome.state.evaluated) == (1, [1], 3)
    assert outcome.state.first == outcome.state.firing


@cache
def fires(rule: str) -> list[tuple[int, RuleResult]]:
    """Return what a rule says in random runs at the steps at which it fires."""
    each, values, found = RULES[rule], parameters(rule, **SET_UP.get(rule, {})), []
    for seed in range(30):
        state = each.state_type()
        for step in random_run(seed).steps:
            each.observe(state, step, values)
            result = each.judge(state, RunView(1), values)
            if result.status is Status.FIRED:
                assert state.latest is not None
                found.append((state.latest.step, result))
    assert found
    return found


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in NEVER | TRUSTED])
def test_sentences_of_random_fires_have_numbers_and_short_advice(rule: str) -> None:
    for step, result in fires(rule):
        assert result.reason.startswith(f"Step {step}: ")
        assert result.reason.endswith(".")
        assert "None" not in result.reason
        if result.worst is not None:
            assert result.worst in result.reason
        assert result.advice is not None
        assert len(re.findall(r"[.?] [A-Z]|\.$", result.advice)) <= 2
        measures = RULES[rule].spec.measures
        if result.measured is not None:
            assert (result.measure or measures[0]) in measures


OVER_TENSORS = [rule for rule in RULES if rule not in NEVER | TRUSTED and RULES[rule].spec.text is not None]
PERCENTILES = {5.0, 95.0}
NUMBER = re.compile(r"(?<!\w)-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
PAST = re.compile(r"\b(was|were|had|held|made|differed|changed|rose|did)\b")


@pytest.mark.parametrize("rule", OVER_TENSORS)
def test_every_number_of_a_sentence_is_a_fact(rule: str) -> None:
    for _, result in fires(rule):
        assert result.kind
        assert len(result.facts) <= 12
        known = {number for fact in result.facts for number in (fact.value, fact.threshold)}
        names = {name for fact in result.facts for name in (fact.series, fact.value) if isinstance(name, str)}
        sentence = result.reason.replace(",", "")
        for name in sorted(names, key=len, reverse=True):
            sentence = sentence.replace(name, "")
        told = [float(number) for number in NUMBER.findall(sentence)]
        numbers = [number for number in known if isinstance(number, int | float)]
        places = [float(NUMBER.findall(fact.device or "")[0]) for fact in result.facts if fact.device]
        seconds = [each for fact in result.facts if fact.unit == "s" for each in (fact.value, fact.threshold)]
        times = [each / unit for each in seconds if isinstance(each, int | float) for unit in (60.0, 3_600.0)]
        allowed = [*numbers, *places, *times, 0.0, *(PERCENTILES if rule == "PoorWeightInitialization" else ())]
        for number in told:
            close = (abs(number - fact) <= 1e-3 * abs(fact) or number == fact for fact in allowed)
            assert any(close), (number, result.reason)
        assert PAST.search(result.past_reason or "")


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "StalledTrainingRule"])
def test_steps_without_required_tensors_say_what_to_record(rule: str) -> None:
    run = Run(others={"other": Run()})
    run.add(0, {"something": np.array(["text"], object)}, collections={"somewhere": ["something"]})
    result = observed(rule, run, **SET_UP.get(rule, {})).result
    assert result.status is Status.NOT_APPLICABLE
    assert result.reason.startswith("None of 1 saved step holds what the rule checks. ")
    assert "record" in result.reason
    assert observed(rule, Run(), **SET_UP.get(rule, {})).result.status is Status.NOT_APPLICABLE
    each, values = RULES[rule], parameters(rule, **SET_UP.get(rule, {}))
    assert each.judge(each.state_type(), RunView(0), values).status is Status.WARMING_UP


ENTRIES: dict[str, dict[str, Any]] = {
    "SaturatedActivation": {},
    "DeadRelu": {},
    "WeightUpdateRatio": {},
    "ClassImbalance": {},
    "CheckInputImages": {},
    "NLPSequenceRatio": {},
    "Confusion": {},
    "AllZero": {"collection_names": "gradients", "threshold": 50},
    "UnchangedTensor": {"collection_names": "gradients", "num_steps": 2, "rtol": 10},
    "SimilarAcrossRuns": {"other_trial": "other"},
}


@pytest.mark.parametrize("rule", ENTRIES)
def test_insufficient_reductions_give_no_all_clear(rule: str) -> None:
    run = wide(reductions_only=True)
    for step in run.steps:
        step.reductions = {name: {"mean": saved["mean"]} for name, saved in step.reductions.items()}
        run.others["other"].add(step.step, reductions=step.reductions)
    outcome = observed(rule, run, **ENTRIES[rule])
    assert outcome.state.evaluated == 0
    assert outcome.state.unusable > 0
    assert outcome.result.status is Status.ERROR
    assert re.search("only reductions were saved|entries were not saved", outcome.result.reason)


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        ("VanishingGradient", {}),
        ("ExplodingTensor", {}),
        ("PoorWeightInitialization", {"distribution_range": 100}),
        ("AllZero", {"collection_names": "gradients"}),
        ("TensorVariance", {"collection_names": "gradients", "max_threshold": 1}),
        ("DeadRelu", {}),
        ("SaturatedActivation", {"threshold_tanh_min": -1, "threshold_tanh_max": 90}),
    ],
)
def test_sufficient_reductions_answer_as_the_entries(rule: str, given: dict[str, Any]) -> None:
    full, saved = observed(rule, wide(), **given), observed(rule, wide(reductions_only=True), **given)
    assert full.state.evaluated == saved.state.evaluated == 2
    assert full.steps == saved.steps
    assert saved.state.unusable == 0


@pytest.mark.parametrize(
    ("saved", "fires", "unusable"),
    [
        ({"prod": np.inf, "min": 1.0, "max": 9.0}, False, 0),
        ({"prod": np.inf}, False, 1),
        ({"prod": 5.0}, False, 0),
        ({"sum": np.inf, "abs_max": 3e38}, False, 0),
        ({"mean": np.nan}, True, 0),
        ({"l2": np.inf, "min": -3e38, "max": 3e38}, False, 0),
        ({"l2": np.inf, "min": -3e38, "max": np.nan}, True, 0),
        ({"l2": np.inf, "min": 1.0}, True, 0),
        ({"max": np.inf, "mean": np.inf}, True, 0),
        ({"abs_mean": np.inf}, True, 0),
        ({"min": 0.0, "max": np.inf}, True, 0),
    ],
)
def test_overflowed_reduction_of_finite_entries_is_no_explosion(
    saved: dict[str, float], fires: bool, unusable: int
) -> None:
    run = Run()
    run.add(0, reductions={"t": saved})
    outcome = observed("ExplodingTensor", run)
    assert (bool(outcome.steps), outcome.state.unusable) == (fires, unusable)


def test_unusable_tensors_beside_good_ones_are_noted() -> None:
    run = Run()
    run.add(4, {"g": [1.0], "h": [1.0]}, collections={"gradients": ["g", "h"]}, broken={"h"})
    result = observed("VanishingGradient", run).result
    assert result.status is Status.OK
    assert result.reason.endswith(
        "Once a tensor could not be checked, because object 'h' cannot be read: the frame is cut off."
    )


@pytest.mark.parametrize("reductions_only", [False, True])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("StalledTrainingRule", "CreateXgboostReport")])
def test_selected_unreadable_tensors_put_the_rule_in_error(rule: str, reductions_only: bool) -> None:
    run = wide(reductions_only)
    more = [
        "trainguard/checksum/0",
        "loss",
        "trees/Node",
        "feature_importance/weight/f0",
        "train-rmse",
        "validation-rmse",
        "frozen",
    ]
    for step in run.steps:
        step.tensors |= {name: np.ones(1) for name in more}
        step.broken = frozenset(step.names)
        step.collections = {**step.collections, "losses": ["train-rmse", "validation-rmse"], "weights": ["loss"]}
        run.others["other"].add(step.step, dict(step.tensors), reductions=step.reductions)
    given = {"num_steps": 2} if rule == "UnchangedTensor" else {}
    outcome = observed(rule, run, **SET_UP.get(rule, {}), **given)
    assert outcome.result.status is Status.ERROR
    assert re.search("the frame is cut off|only reductions were saved", outcome.result.reason)


@pytest.mark.parametrize("reductions_only", [False, True])
@pytest.mark.parametrize(
    ("rule", "given", "value"),
    [
        ("VanishingGradient", {}, 0.0),
        ("ExplodingTensor", {}, np.nan),
        ("PoorWeightInitialization", {}, 0.0),
        ("AllZero", {"collection_names": "gradients"}, 0.0),
        ("TensorVariance", {"collection_names": "gradients", "min_threshold": 1}, 0.0),
        ("DeadRelu", {}, 0.0),
        ("SaturatedActivation", {"collection_names": "gradients"}, 99.0),
    ],
)
def test_rule_fires_despite_another_unreadable_tensor(
    rule: str, given: dict[str, Any], value: float, reductions_only: bool
) -> None:
    run, names, values = Run(), ["a_relu_output", "b_relu_output"], np.full((4, 3), value)
    saved = {name: reduced(values) for name in names} if reductions_only else {}
    tensors = {} if reductions_only else dict.fromkeys(names, values)
    for broken in names:
        run.add(len(run.steps), tensors, reductions=saved, collections={"gradients": names}, broken={broken})
    outcome = observed(rule, run, **given)
    assert (outcome.steps, outcome.state.unusable) == ([0, 1], 2)


def test_never_predicted_class_is_noted_in_the_sentence() -> None:
    run = Run()
    run.add(4, {"labels": [0, 1, 1], "predictions": [1, 1, 1]})
    assert observed("Confusion", run, max_off_diag=1).result.reason == (
        "Step 4: class 0 is a label and never predicted (predictions), a share of 0 that is right, below "
        "the threshold 0.9."
    )


def test_unreadable_step_time_is_counted_and_not_fatal() -> None:
    class Timeless(Step):
        @property
        def at(self) -> float:
            raise TelemetryFormatError("step 3", "no frame says when it was saved")

        @at.setter
        def at(self, value: float) -> None: ...

    step = Timeless(Run(), 3, Mode.GLOBAL, 3, 0.0, {"g": np.zeros(2)}, {"gradients": ["g"]})
    outcome = observed("VanishingGradient", Run([step]))
    assert outcome.result.status is Status.ERROR
    assert "no frame says when it was saved" in outcome.result.reason


def test_tensor_over_the_cap_without_entries_is_no_all_clear() -> None:
    run = Run()
    run.add(4, {"labels": [1, 2], "predictions": [1, 2]}, too_large={"labels"})
    result = observed("Confusion", run).result
    assert result.status is Status.ERROR
    assert "tensor labels at step 4: 1,000,000,000 bytes, expected at most 67,108,864" in result.reason


@pytest.mark.parametrize(
    ("rule", "tensors", "words"),
    [
        ("Confusion", {"labels": [0, 12], "predictions": [0, 1]}, "it holds class 12, expected classes from 0 to 9"),
        ("Confusion", {"labels": [0, -1], "predictions": [0, 1]}, "it holds class -1"),
        ("Confusion", {"labels": [0], "predictions": [0, 1]}, "it has 1 labels, and predictions 2 predictions"),
        ("ClassImbalance", {"labels": [0], "predictions": [0, 1]}, "it has 1 labels, and predictions 2 predictions"),
        ("ClassImbalance", {"labels": [0.0, np.nan], "predictions": [0, 1]}, "it holds values that name no class"),
        ("CheckInputImages", {"hybridsequential0_input_0": np.zeros(3)}, "its shape is (3,), which has no axis 1"),
        ("CheckInputImages", {"hybridsequential0_input_0": [[np.nan]]}, "it holds NaN or infinite values"),
        ("CheckInputImages", {"hybridsequential0_input_0": np.zeros((1, 999))}, "999 channels, expected at most 256"),
        ("TreeDepth", {"trees/Node": [np.nan]}, "it holds no node numbers"),
    ],
)
def test_nonsensical_values_are_named_and_not_judged(rule: str, tensors: dict[str, Any], words: str) -> None:
    run = Run()
    run.add(4, tensors)
    outcome = observed(rule, run, **({"category_no": 10} if rule == "Confusion" else {}))
    assert outcome.result.status is Status.ERROR
    assert words in outcome.result.reason
    assert "step 4" in outcome.result.reason


def test_missing_other_run_puts_the_rule_in_error() -> None:
    result = observed("SimilarAcrossRuns", random_run(0), other_trial="elsewhere").result
    assert result.status is Status.ERROR
    assert "run 'elsewhere'" in result.reason


def test_weight_of_another_shape_is_named() -> None:
    run = Run()
    run.add(0, {"w": [1.0]}, collections={"weights": ["w"]})
    run.add(1, {"w": [1.0, 2.0]}, collections={"weights": ["w"]})
    assert "tensor w has another shape at step 1 than at step 0" in observed("WeightUpdateRatio", run).result.reason


def test_too_few_steps_to_compare_are_waited_for() -> None:
    run = Run()
    run.add(0, {"w": [1.0]}, collections={"weights": ["w"], "losses": ["w"]})
    for rule, given in (
        ("WeightUpdateRatio", {}),
        ("LossNotDecreasing", {}),
        ("UnchangedTensor", {"tensor_regex": "w"}),
    ):
        each, values = RULES[rule], parameters(rule, **given)
        state = each.state_type()
        each.observe(state, run.steps[0], values)
        result = each.judge(state, RunView(1), values)
        assert result.status is Status.WARMING_UP
        assert result.reason.startswith("1 saved step holds what the rule checks, too few to compare. It checks")


def two_runs(one: Any, other: Any, **how: Any) -> Any:
    run = Run()
    run.others["other"] = Run()
    run.add(3, {} if how else {"w": one}, reductions={"w": one} if how else {})
    run.others["other"].add(3, {} if how else {"w": other}, reductions={"w": other} if how else {})
    return observed("SimilarAcrossRuns", run, other_trial="other").state.first


def test_difference_from_another_run_is_shown_with_its_tolerance() -> None:
    check = two_runs([1.0, 200.0, np.nan], [1.5, 200.25, np.nan])
    assert (check.value, check.threshold) == (0.5, pytest.approx(1.501e-5))
    told = RULES["SimilarAcrossRuns"].said(check)
    assert "w differs from that of run other at the same step, by 0.5; up to 1.501e-05 counts" in told
    reduced_ones = two_runs({"mean": 1.0, "max": 4.0}, {"mean": 1.0, "max": 6.0, "min": 0.0}, reductions=True)
    assert reduced_ones.value == 2.0
    for one, other in ((np.zeros(2), np.zeros(3)), (["a"], ["b"]), ([np.nan], [1.0])):
        without = two_runs(one, other)
        assert (without.value, without.threshold) == (None, None)
        told = RULES["SimilarAcrossRuns"].said(without)
        assert told == "Step 3: w differs from that of run other at the same step."


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ({"mean": np.nan, "l2": np.nan}, "the saved mean of w is NaN"),
        ({"abs_l2": np.inf}, "the saved l2 of absolute values of w is infinite"),
        ({"mean": np.nan, "min": 0.0, "max": np.inf}, "the saved max of w is infinite"),
    ],
)
def test_non_finite_reduction_is_named(saved: dict[str, float], said: str) -> None:
    run = Run()
    run.add(0, reductions={"w": saved})
    assert said in observed("ExplodingTensor", run).result.reason
