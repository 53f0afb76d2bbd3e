"""The trusted rules: what fires, what does not, and what is just at a threshold."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.steps import RULES, Outcome, Run, observed
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.family_rules import bare
from trainguard.rules.training.registry import TRUSTED_RULES
from trainguard.rules.training.step_rule import RunView

NAN = math.nan
FLAT = [2.3 + 0.001 * (place % 3) for place in range(20)]
LEARNED = [2.3 * 0.7**place for place in range(20)]
SERIES = ("TrainingDiverged", "NotLearning", "Plateau")


def run_of(
    losses: Sequence[float] = (), scores: Sequence[float] = (), mode: Mode = Mode.TRAIN, run: Run | None = None
) -> Run:
    run = Run() if run is None else run
    for step in range(max(len(losses), len(scores))):
        tensors = {"loss": [losses[step]]} if step < len(losses) else {}
        tensors |= {"accuracy": [scores[step]]} if step < len(scores) else {}
        run.add(step, tensors, mode=mode, collections={"losses": ["loss"], "metrics": ["accuracy"]})
    return run


def judged(rule: str, losses: Sequence[float], scores: Sequence[float] = (), **given: Any) -> Outcome:
    return observed(rule, run_of(losses, scores), **given)


def fires(rule: str, losses: Sequence[float], scores: Sequence[float] = (), **given: Any) -> bool:
    return judged(rule, losses, scores, **given).result.status is Status.FIRED


def noisy(level: Callable[[int], float], count: int, spread: float, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [level(step) + draw.gauss(0.0, spread) for step in range(count)]


@pytest.mark.parametrize("rule", SERIES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e9])
def test_learning_run_fires_no_rule_at_any_scale(rule: str, scale: float) -> None:
    assert not fires(rule, [scale * loss for loss in LEARNED])
    assert not fires(rule, [scale * loss for loss in noisy(lambda step: 0.5 + 2 * 0.99**step, 900, 0.1)])


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e9])
def test_standing_loss_has_not_learned_at_any_scale(scale: float) -> None:
    outcome = judged("NotLearning", [scale * loss for loss in FLAT])
    assert outcome.result.status is Status.FIRED
    assert outcome.steps == [19]
    assert outcome.result.reason.startswith("Step 19: loss stands: it was ")


@pytest.mark.parametrize(
    ("count", "scores", "status"),
    [
        (4, [0.1] * 4, Status.NOT_APPLICABLE),
        (5, [0.1] * 5, Status.FIRED),
        (9, [], Status.NOT_APPLICABLE),
        (10, [], Status.FIRED),
    ],
)
def test_loss_alone_needs_ten_values_at_the_end(count: int, scores: list[float], status: Status) -> None:
    assert judged("NotLearning", FLAT[:count], scores).result.status is status


def with_rates(run: Run, rates: Sequence[float]) -> Run:
    for step, rate in zip(run.steps, rates, strict=True):
        step.tensors["lr"] = np.array([rate])
        step.collections = {**step.collections, "learning_rate": ["lr"]}
    return run


@pytest.mark.parametrize(
    ("rates", "status"),
    [
        ([1e-7 * (1 + step) for step in range(20)], Status.NOT_APPLICABLE),
        ([*[1e-7 * (1 + step) for step in range(19)], 1e-8], Status.FIRED),
        ([1e-2] * 20, Status.FIRED),
    ],
)
def test_run_that_ends_in_a_recorded_warm_up_is_not_judged(rates: list[float], status: Status) -> None:
    losses = [10.8 - 0.002 * (step % 3) for step in range(20)]
    assert observed("NotLearning", with_rates(run_of(losses), rates)).result.status is status


@pytest.mark.parametrize(
    ("level", "rate", "scores", "status"),
    [
        (1.4, 2e-4, [], Status.NOT_APPLICABLE),
        (1.4, 1e-3, [], Status.FIRED),
        (10.8, 2e-4, [], Status.FIRED),
        (1.4, 2e-4, [0.1] * 20, Status.FIRED),
    ],
)
def test_fine_tune_with_a_low_standing_loss_is_not_reported(
    level: float, rate: float, scores: list[float], status: Status
) -> None:
    run = with_rates(run_of([level + 0.001 * (step % 3) for step in range(20)], scores), [rate] * 20)
    assert observed("NotLearning", run).result.status is status


@pytest.mark.parametrize(
    ("metric", "first", "status"),
    [("mae", 5.0, Status.OK), ("f1", 5.0, Status.FIRED), ("f1", 500.0, Status.OK)],
)
def test_standing_accuracy_of_a_regression_says_nothing(metric: str, first: float, status: Status) -> None:
    run = run_of([first, *[0.3 * first - 0.001 * (step % 3) for step in range(19)]], [0.12] * 20)
    for step in run.steps:
        step.tensors[metric] = np.array([0.12])
        step.collections = {"losses": ["loss"], "metrics": ["accuracy", metric]}
    assert observed("NotLearning", run).result.status is status


@pytest.mark.parametrize(("fall", "found"), [(0.0, True), (0.009, True), (0.011, False), (0.06, False)])
def test_steady_fall_of_a_fifth_of_the_minimum_is_a_trend(fall: float, found: bool) -> None:
    """The last quarter has a mean of 35/39 of the whole fall."""
    assert fires("NotLearning", [1.0 - fall * 39 / 35 * step / 39 for step in range(40)]) is found


def test_noise_that_could_hide_a_fall_leaves_the_loss_unjudged() -> None:
    assert fires("NotLearning", noisy(lambda _: 1.0, 400, 0.02))
    assert not fires("NotLearning", noisy(lambda _: 1.0, 20, 0.3))


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ([-3.0] * 12, True),
        ([-3.0 - 0.2 * step for step in range(12)], False),
        ([0.01 * (-1) ** step for step in range(12)], False),
        ([0.0] * 12, True),
    ],
)
def test_negative_losses_count_by_size_and_sign_changes_do_not(losses: list[float], found: bool) -> None:
    assert fires("NotLearning", losses) is found


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ([0.1] * 20, True),
        ([0.1 + 0.03 * step for step in range(20)], False),
        ([0.97] * 20, False),
        ([0.85] * 20, True),
        ([0.85, 0.86] * 10, False),
    ],
)
def test_standing_loss_with_a_rising_or_high_score_has_learned(scores: list[float], found: bool) -> None:
    assert fires("NotLearning", FLAT, scores) is found


def test_loss_fallen_to_chance_with_a_chance_score_is_unlearned() -> None:
    fell = [50.0, 9.0, *[math.log(10)] * 18]
    outcome = judged("NotLearning", fell, [0.1 + 0.002 * (step % 2) for step in range(20)])
    assert outcome.result.status is Status.FIRED
    assert "stays at the level of chance" in outcome.result.reason
    better = judged("NotLearning", [50.0, 9.0, *[1.2] * 18], [0.1 + 0.002 * (step % 2) for step in range(20)])
    assert "accuracy did not gain by it" in better.result.reason


@pytest.mark.parametrize(("loss", "found"), [(0.67 * 0.33, True), (0.6342, True), (0.1, False)])
def test_score_and_loss_of_a_class_share_have_not_learned(loss: float, found: bool) -> None:
    assert fires("NotLearning", [5.0, *[loss] * 8], [0.67] * 9) is found


@pytest.mark.parametrize(("score", "count", "found"), [(0.3, 10, True), (0.3, 9, False), (0.0, 10, False)])
def test_constant_score_with_a_falling_loss_gives_one_answer(score: float, count: int, found: bool) -> None:
    assert fires("NotLearning", [100.0, 50.0, *[4.0] * (count - 2)], [score] * count) is found
    assert not fires("NotLearning", [100.0 * 0.9**step for step in range(count)], [score] * count)


def test_chance_validation_of_fitting_training_doubts_labels() -> None:
    run = run_of(LEARNED, [min(0.1 + 0.05 * step, 1.0) for step in range(20)])
    run_of([2.31 + 0.1 * step for step in range(20)], [0.1, 0.11] * 10, Mode.EVAL, run)
    result = observed("NotLearning", run).result
    assert result.status is Status.FIRED
    assert result.advice is not None
    assert "labels belong together" in result.advice
    assert result.kind == "validation"


def test_validation_or_scores_alone_decide() -> None:
    assert observed("NotLearning", run_of(FLAT, mode=Mode.EVAL)).result.status is Status.FIRED
    assert observed("NotLearning", run_of(LEARNED, mode=Mode.EVAL)).result.status is Status.OK
    assert observed("NotLearning", run_of((), [0.2 + 0.04 * step for step in range(20)])).result.status is Status.OK
    assert observed("NotLearning", run_of((), [0.2] * 20)).result.status is Status.FIRED


def test_short_or_improving_running_job_waits_with_not_learning() -> None:
    rule, values = RULES["NotLearning"], RULES["NotLearning"].parameters_type()

    def live(losses: Sequence[float]) -> list[int]:
        state = rule.state_type()
        for step in run_of(losses).steps:
            rule.observe(state, step, values)
        return list(state.steps)

    flat = noisy(lambda _: 1.0, 700, 0.05, seed=3)
    assert live(flat[:499]) == []
    assert live(flat)
    assert live(flat)[0] >= 499
    assert live([loss - 0.0001 * step for step, loss in enumerate(flat)]) == []


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL, Mode.GLOBAL])
@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_non_finite_loss_is_a_divergence_until_it_is_over(mode: Mode, value: float) -> None:
    outcome = observed("TrainingDiverged", run_of([1.0, 0.9, *[value] * 4, 0.8, 0.7, 0.6], mode=mode))
    assert (outcome.steps, outcome.result.status) == ([4, 5], Status.OK)
    assert "4 values of it were NaN or infinite, the first at step 2" in outcome.result.reason
    outcome = observed("TrainingDiverged", run_of([1.0, 0.9, value, value, 0.8, 0.7, 0.6], mode=mode))
    assert outcome.steps == []
    outcome = observed("TrainingDiverged", run_of([1.0, 0.9, value, value, value], mode=mode))
    assert outcome.result.status is Status.FIRED
    assert "from step 2 to 4, 3 recorded values" in outcome.result.reason


def test_nan_score_with_a_fine_loss_is_no_divergence() -> None:
    assert not fires("TrainingDiverged", LEARNED, [NAN] * 20)


@pytest.mark.parametrize(
    ("tail", "found"),
    [([1.7] * 6, True), ([1.05] * 6, False), ([1.7, 1.7, 0.2, 0.2, 0.2, 0.2], False), ([7.0] * 6, True)],
)
def test_loss_that_loses_half_of_its_fall_for_good_diverged(tail: list[float], found: bool) -> None:
    assert fires("TrainingDiverged", [2.0, 1.2, 0.8, 0.5, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, *tail]) is found


def test_loss_exploding_from_the_start_diverges_at_three_times() -> None:
    assert fires("TrainingDiverged", [1.0, 2.0, 3.1, 3.1, 3.1])
    assert not fires("TrainingDiverged", [1.0, 2.0, 3.0, 3.0, 3.0])


def test_excused_rise_of_a_loss_is_no_divergence() -> None:
    rise = [2.0, 1.0, 0.5, 0.3, 0.3, 0.5, 0.9, 1.4, 1.9, 2.0, 2.0, 2.0]
    assert fires("TrainingDiverged", rise)
    assert not fires("TrainingDiverged", rise, [0.1, 0.5, 0.7, 0.8, 0.85, 0.9, 0.9, 0.92, 0.93, 0.93, 0.94, 0.94])
    assert observed("TrainingDiverged", run_of(rise, mode=Mode.EVAL)).result.status is Status.OK
    moving = Run()
    for step, loss in enumerate(rise):
        moving.add(step, {"g_loss": [loss]}, mode=Mode.TRAIN, collections={"losses": ["g_loss"]})
    assert observed("TrainingDiverged", moving).result.status is Status.OK


def test_total_decides_if_one_of_two_parts_rises() -> None:
    run = Run()
    for step in range(20):
        losses = {"kl_loss": [0.1 + step], "rec_loss": [40.0 - step], "total_loss": [40.1 * 0.8**step]}
        run.add(step, losses, mode=Mode.TRAIN, collections={"losses": sorted(losses)})
    for rule in SERIES:
        assert observed(rule, run).result.status is Status.OK


def test_diverging_total_decides_over_a_falling_part() -> None:
    run = Run()
    for step in range(20):
        losses = {"kl_loss": [0.9**step], "loss": [1.0 + step]}
        run.add(step, losses, mode=Mode.TRAIN, collections={"losses": sorted(losses)})
    assert observed("TrainingDiverged", run).result.status is Status.FIRED


@pytest.mark.parametrize(
    ("level", "score", "found"),
    [(0.85, 0.4, True), (0.85, 0.71, False), (0.74, 0.4, False), (0.96, 0.4, False)],
)
def test_fall_that_stops_early_and_far_from_done_is_a_plateau(level: float, score: float, found: bool) -> None:
    losses = [1.0, level + 0.03, level + 0.02, *[level + 0.002 * (step % 2) for step in range(27)]]
    assert fires("Plateau", losses, [0.3, 0.35, *[score] * 28]) is found


def test_fall_that_goes_on_or_has_a_late_step_is_no_plateau() -> None:
    steps = [1.0, *[0.9 - 0.001 * step for step in range(40)]]
    assert not fires("Plateau", steps)
    assert not fires("Plateau", [1.0, *[0.9] * 15, *[0.82] * 15])
    assert not fires("Plateau", [1.0, *[0.85] * 18])
    assert fires("Plateau", [1.0, *[0.85] * 19])
    assert not fires("Plateau", [1.0, *[0.85 - 0.0001 * step for step in range(29)]])


def test_reason_of_a_plateau_states_the_learning_rate() -> None:
    run = run_of([1.0, 0.95, *[0.85] * 28])
    for step in run.steps:
        step.tensors["lr"] = np.array([1e-7])
        step.collections = {"losses": ["loss"], "learning_rate": ["lr"]}
    assert "the learning rate is 1e-07" in observed("Plateau", run).result.reason


def test_xgboost_metrics_are_train_or_validation_by_their_names() -> None:
    def boosted(train: Sequence[float], validation: Sequence[float], metric: str) -> Outcome:
        run, names = Run(), [f"train-{metric}", f"validation-{metric}"]
        for step, values in enumerate(zip(train, validation, strict=True)):
            tensors = {name: [value] for name, value in zip(names, values, strict=True)}
            run.add(step, tensors, collections={"metrics": names, "losses": [] if metric == "auc" else names})
        return observed("NotLearning", run)

    rising = [0.5 + 0.02 * step for step in range(20)]
    assert boosted([0.5] * 20, [0.5] * 20, "auc").result.status is Status.FIRED
    assert boosted(rising, rising, "auc").result.status is Status.OK
    assert boosted(LEARNED, FLAT, "rmse").result.status is Status.OK
    assert boosted(FLAT, FLAT, "rmse").result.status is Status.FIRED


def test_recovered_spikes_are_counted_without_an_alarm() -> None:
    losses = noisy(lambda step: 2.0 * 0.995**step, 300, 0.02)
    losses[100:103] = [9.0, 7.0, 5.0]
    losses[200] = 30.0
    outcome = judged("LossSpike", losses)
    assert (outcome.result.status, outcome.steps) == (Status.OK, [])
    assert "2 spikes that recovered; the largest began at step 200, reached 30" in outcome.result.reason
    assert "no spike" in judged("LossSpike", losses[:100]).result.reason
    assert "no spike" in judged("LossSpike", [*losses[:100], *[9.0] * 60, *losses[160:200]]).result.reason


def test_rank_with_a_differing_checksum_is_named_until_equal() -> None:
    run = Run()
    for step, sums in enumerate([[5.0] * 4, [6.0, 6.0, 6.0 + 1e-15 * 8, 6.0], [NAN] * 4, [7.0]]):
        run.add(step, {f"trainguard/checksum/{rank}": [value] for rank, value in enumerate(sums)})
    outcome = observed("RanksOutOfSync", run)
    assert outcome.steps == [1]
    assert outcome.state.first is not None
    first = outcome.state.first
    assert (first.tensor, first.kind) == ("trainguard/checksum/2", "apart")
    assert {fact.name: fact.value for fact in first.facts} == {
        "step": 1,
        "ranks": 4,
        "ranks_apart": 1,
        "ranks_alike": 3,
        "checksum": "6.0",
        "checksum_apart": "6.000000000000008",
    }
    assert outcome.result.status is Status.OK


@pytest.mark.parametrize("rule", TRUSTED_RULES, ids=lambda rule: bare(rule.name))
def test_state_of_a_long_run_of_many_series_is_at_most_6_kb(rule: Any) -> None:
    run, draw = Run(), random.Random(5)
    names = [f"model/part_{place:02d}_loss" for place in range(6)]
    gradients = [f"gradient/model.layers.{place:02d}.attention.weight" for place in range(40)]
    for step in range(600):
        mode = (Mode.TRAIN, Mode.EVAL)[step % 2]
        tensors = {name: [draw.random()] for name in (*names, "accuracy", "f1", "auc", *gradients)}
        tensors |= {f"trainguard/checksum/{rank}": [draw.random()] for rank in range(16)}
        collections = {"losses": names, "metrics": ["accuracy", "f1", "auc"], "gradients": gradients}
        run.add(10**9 + step, tensors, mode=mode, collections=collections)
    state = observed(bare(rule.name), run).state
    state.steps = []
    assert len(msgspec.msgpack.encode(state)) <= 6_144


@pytest.mark.parametrize("rule", TRUSTED_RULES, ids=lambda rule: bare(rule.name))
def test_ended_run_judged_again_has_the_same_answer_and_counts(rule: Any) -> None:
    outcome = observed(bare(rule.name), run_of(FLAT, [0.1] * 20))
    before = msgspec.msgpack.encode(outcome.state)
    again = rule.judge(outcome.state, RunView(20, closed=True), rule.parameters_type())
    assert (again, msgspec.msgpack.encode(outcome.state)) == (outcome.result, before)
