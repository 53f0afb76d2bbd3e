"""What rules keep of a run, and what the clock and the registry make of them."""

import re

import msgspec
import numpy as np
import pytest

from tests.support.steps import RULES, Run, fired, observed, parameters
from tests.unit.rules.training.random_runs import SET_UP, random_run
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.family_rules import TRAINING_NAMES, TRAINING_SETTINGS
from trainguard.rules.training.loss_not_decreasing import MOST_KEPT
from trainguard.rules.training.registry import PARAMETERS_TYPES, SPECS, TRAINING_RULES
from trainguard.rules.training.stalled_training import StalledTrainingRule
from trainguard.rules.training.step_rule import RunView


def test_state_of_long_runs_is_small_and_says_what_it_omits() -> None:
    run = Run()
    random = np.random.default_rng(1)
    for step in range(300):
        names = {f"loss{each}": [1.0 / (step + 1.0)] for each in range(40)}
        classes = random.integers(0, 5_000, 200)
        mode = Mode.TRAIN if step % 3 else Mode.EVAL
        run.add(
            step, {**names, "labels": classes, "predictions": classes}, collections={"losses": list(names)}, mode=mode
        )
    sizes = {}
    for rule, given in (
        ("LossNotDecreasing", {"num_steps": 50}),
        ("ClassImbalance", {}),
        ("Overfit", {}),
        ("Overtraining", {}),
    ):
        outcome = observed(rule, run, **given)
        sizes[rule] = len(msgspec.msgpack.encode(outcome.state))
        if rule in ("LossNotDecreasing", "ClassImbalance"):
            assert outcome.state.left_out > 0
            assert "beyond the first" in outcome.result.reason
    assert sum(sizes.values()) < 48_000, sizes


def test_repeatedly_firing_rule_keeps_32_beginnings() -> None:
    run = Run()
    for step in range(300):
        run.add(step, {"loss": [np.nan if step % 6 in (2, 3) else 1.0]}, collections={"losses": ["loss"]})
    outcome = observed("ExplodingTensor", run)
    assert outcome.state.onsets == [*range(2, 192, 6)]
    assert outcome.state.fired == 100


def test_reference_is_exact_beyond_the_kept_number_of_even_steps() -> None:
    run = Run()
    losses = np.random.default_rng(3).uniform(1.0, 2.0, 12 * MOST_KEPT)
    for step, loss in enumerate(losses):
        run.add(step, {"loss": [loss]}, collections={"losses": ["loss"]})
    apart = 3 * MOST_KEPT
    outcome = observed("LossNotDecreasing", run, num_steps=apart)
    assert outcome.state.evaluated == 3
    assert f"since step {2 * apart}, from {losses[2 * apart]:.6g} to {losses[3 * apart]:.6g}" in outcome.result.reason


@pytest.mark.parametrize("rule", RULES)
def test_state_stored_in_the_middle_yields_the_same_verdict(rule: str) -> None:
    for seed in range(4):
        run = random_run(seed)
        each, values = RULES[rule], parameters(rule, **SET_UP.get(rule, {}))
        state = each.state_type()
        for step in run.steps:
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=each.state_type)
            each.observe(state, step, values)
        each.judge(state, RunView(len(run.steps), closed=True), values)
        assert state == observed(rule, run, **SET_UP.get(rule, {})).state


@pytest.mark.parametrize(
    ("now", "closed", "status", "words"),
    [
        (2_900.0, False, Status.OK, "Step 1: no step was saved for 31.7 min"),
        (2_801.0, False, Status.OK, "not above the threshold of 30 min"),
        (2_802.0, False, Status.FIRED, "Step 1: no step was saved for 30"),
        (99_999.0, True, Status.OK, "until step 1"),
    ],
)
def test_clock_finds_a_stall_if_nothing_was_saved_for_too_long(
    now: float, closed: bool, status: Status, words: str
) -> None:
    rule, values = StalledTrainingRule(), parameters("StalledTrainingRule")
    run = Run()
    run.add(0, at=1_000.0)
    run.add(1, at=1_001.0)
    state = rule.state_type()
    for step in run.steps:
        rule.observe(state, step, values)
    progress = 1_200.0 if now == 2_900.0 else 1_001.0
    result = rule.judge_at(state, RunView(2, closed=closed), values, now=now, progress_at=progress)
    assert result.status is status
    if now != 2_900.0:
        assert words in result.reason


def test_clock_finds_a_stall_before_a_late_first_step() -> None:
    rule, values = StalledTrainingRule(), parameters("StalledTrainingRule", threshold=120)
    state = rule.state_type()
    early = rule.judge_at(state, RunView(0), values, now=1_100.0, progress_at=1_000.0)
    late = rule.judge_at(state, RunView(0), values, now=1_121.0, progress_at=1_000.0)
    assert (early.status, late.status) == (Status.WARMING_UP, Status.FIRED)
    assert late.reason.startswith(
        "No step was saved for 121 s since the rule began to wait, and training has not ended"
    )
    assert late.onset == 1_120.0


def test_clock_ends_a_stall_that_is_over() -> None:
    rule, values = StalledTrainingRule(), parameters("StalledTrainingRule", threshold=120)
    run = Run()
    run.add(0, at=990.0)
    run.add(1, at=1_000.0)
    run.add(2, at=1_500.0)
    state = rule.state_type()
    for step in run.steps:
        rule.observe(state, step, values)
    assert state.fired == 1
    assert rule.judge_at(state, RunView(3), values, now=1_510.0, progress_at=1_500.0).status is Status.OK


def test_registry_names_parameters_and_specs_of_the_same_rules() -> None:
    assert tuple(rule.name for rule in TRAINING_RULES) == TRAINING_NAMES
    assert tuple(PARAMETERS_TYPES) == tuple(SPECS) == (*TRAINING_NAMES, *TRAINING_SETTINGS)
    for rule in TRAINING_RULES:
        assert rule.name == f"training/{type(rule).__name__}" == rule.spec.name
        assert rule.parameters_type.__name__ in {f"{type(rule).__name__}Parameters", "StepParameters"}
        assert rule.spec.family == "training"
        assert set(rule.spec.parameters) == rule.parameters_type.settable() - {"scan_interval_us"}
        fields = re.findall(r"{(\w+)}", rule.spec.condition)
        assert set(fields) <= rule.parameters_type.settable()
        assert rule.spec.informs_only or rule.spec.text
        assert rule.clear_after_s(None, 0.5) == 0.0


def test_report_rule_never_fires() -> None:
    run = Run()
    run.add(0, {"train-rmse": [np.nan]}, collections={"metrics": ["train-rmse"]})
    outcome = observed("CreateXgboostReport", run)
    assert (outcome.result.status, fired("CreateXgboostReport", run)) == (Status.OK, [])
