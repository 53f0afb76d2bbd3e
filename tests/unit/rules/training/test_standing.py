"""Plateau against its definition, and what NotLearning says, measures and advises; both while a run goes on."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import pytest

from tests.support.steps import RULES, Run, observed, parameters
from tests.unit.rules.training.series_runs import run_series
from tests.unit.rules.training.test_risen import medians
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.rule_result import FactSheet, RuleResult
from trainguard.rules.training.not_learning import NotLearning
from trainguard.rules.training.run_series import Rate, RatedState, RunSeries
from trainguard.rules.training.series import unit, z_score
from trainguard.rules.training.step_rule import Check, RunView

FLAT = [8.0, 8.0625] * 10


def quarter(values: Sequence[float], *, end: bool = False) -> float:
    count = max(1, round(0.25 * len(values)))
    return fmean(values[-count:] if end else values[:count])


def plain_plateau(run: RunSeries, far: float, early: float, low_score: float) -> tuple[bool, float, int]:
    """Return whether it is one, the fall, and the place at which nine tenths of it were reached."""
    loss = run.loss(Mode.TRAIN)[0][1]
    values, start = medians(loss.means), loss.means[0]
    depth = start - min(values)
    reached = next(at for at, value in enumerate(values) if value <= start - 0.9 * depth)
    fallen, share, since = depth / abs(start), reached / len(values), loss.means[reached + 1 :]
    fires = 0.05 <= fallen < far and share <= early and loss.least >= 0.0 and len(since) >= 10
    fires = fires and z_score(since) > -1.96 and quarter(since) - quarter(since, end=True) <= 0.05 * depth
    for mode in (Mode.TRAIN, Mode.EVAL):
        for _, score in run.score(mode):
            high = quarter(score.means, end=True) / unit(score) >= low_score
            fires = fires and not high and z_score(score.means[round(share * len(score.means)) :]) < 1.96
    return fires, fallen, reached


def random_plateau(draw: random.Random) -> RunSeries:
    """Return a loss that falls early and stands about its best, with or without a score."""
    start, depth = draw.choice([10.0, 20.0, 20.0]), draw.choice([0.5, 1.0, 2.5, 5.0, 5.0, 10.0])
    between, above = start - draw.choice([0.875, 0.9, 0.9375]) * depth, draw.choice([0.0, 0.05, 0.05, 0.125]) * depth
    count = draw.choice([8, 9, 10, 11, 12, 15, 20])
    third = [1] * 3 + [0] * 3
    ends = draw.choice(
        [[0] * count, [draw.randrange(2) for _ in range(count)], [*third, *third], [1] * 2 + [0] * count]
    )
    losses = [start] * draw.choice([1, 2, 3, 5]) + [between] * draw.choice([0, 1, 2, 3, 4])
    losses += [start - depth + above * each for each in ends]
    score = draw.choice([[], [], [0.5, 0.25] * 9, [0.125, *[draw.choice([0.6875, 0.7, 0.75])] * 14]])
    score = draw.choice([score, [0.0, *[0.01 * place for place in range(12)]]]) if score else []
    run, scale = run_series({"loss": losses}), draw.choice([1.0, 100.0])
    mode = draw.choice([Mode.TRAIN, Mode.EVAL])
    run.scores = run_series({}, {"acc": [scale * each for each in score]}, mode).scores if score else {}
    return run


def test_plateau_of_random_losses_and_scores_is_found_as_defined() -> None:
    found: Counter[bool] = Counter()
    rule = RULES["Plateau"]
    for seed in range(800):
        draw = random.Random(seed)
        run = random_plateau(draw)
        given = {"far": draw.choice([0.25, 0.5, 2.0]), "early": draw.choice([0.25, 0.5]), "low_score": 0.7}
        fires, fallen, reached = plain_plateau(run, **given)
        check = rule.at_end(RatedState(run=run), parameters("Plateau", min_rows=5, **given))
        assert check is not None
        assert (check.fires, check.value, check.threshold) == (fires, fallen, given["far"]), seed
        loss = run.loss(Mode.TRAIN)[0][1]
        assert (check.step, check.tensor) == (loss.steps[-1], "loss")
        share = 100.0 * reached / len(loss.means)
        said = f"nine tenths of that were reached at step {loss.steps[reached]}, after {share:.3g} %"
        told = f", by {100.0 * fallen:.3g} %; {said} of the run" if fallen else " and was never lower"
        assert told in rule.said(check)
        found[fires] += 1
    assert min(found.values()) >= 60


@pytest.mark.parametrize(
    ("losses", "rate", "fell", "reached"),
    [
        ([10.0, 9.0, *[8.0] * 18], None, "10 at the start (step 10) and fell to 8, by 20 %",
         "at step 16, after 10 % of the run, and nothing was gained since."),
        ([10.0, *[5.0] * 19], 0.01, "10 at the start (step 10) and fell to 5, by 50 %",
         "at step 13, after 5 % of the run; the learning rate is 0.01."),
        ([-10.0, *[-12.0] * 19], None, "-10 at the start (step 10) and fell to -12, by 20 %",
         "at step 13, after 5 % of the run."),
    ],
)  # fmt: skip
def test_plateau_of_an_ended_run_states_the_fall(
    losses: list[float], rate: float | None, fell: str, reached: str
) -> None:
    rates = None if rate is None else Rate(rate, rate, rate)
    state, values = RatedState(run=run_series({"loss": losses}), rate=rates), parameters("Plateau")
    check = RULES["Plateau"].at_end(state, values)
    assert check is not None
    assert RULES["Plateau"].said(check) == f"Step 67: loss was {fell}; nine tenths of that were reached {reached}"
    assert RULES["Plateau"].at_end(RatedState(run=run_series({"loss": losses[:19]})), values) is None


def test_plateau_of_an_only_rising_loss_states_no_fall() -> None:
    state = RatedState(run=run_series({"loss": [2.0, *[3.38e13] * 19]}))
    check = RULES["Plateau"].at_end(state, parameters("Plateau"))
    assert check is not None
    assert (check.kind, check.fires) == ("never fell", False)
    assert RULES["Plateau"].said(check) == "Step 67: loss was 2 at the start (step 10) and was never lower."


def test_standing_loss_with_a_moving_target_is_no_plateau() -> None:
    for name, fires in (("loss", True), ("critic_loss", False)):
        state = RatedState(run=run_series({name: [10.0, 9.0, *[8.0] * 18]}))
        check = RULES["Plateau"].at_end(state, parameters("Plateau"))
        assert check is not None
        assert check.fires is fires


@pytest.mark.parametrize(
    ("first", "rate", "score", "fires"),
    [
        (1.5, 1e-4, None, False),
        (1.5, 1e-4, "mean_token_accuracy", False),
        (1.5, 1e-4, "accuracy", True),
        (10.8, 3e-4, None, True),
        (1.5, 1e-2, None, True),
        (1.5, None, None, True),
    ],
)
def test_fine_tune_at_its_floor_is_no_plateau(first: float, rate: float | None, score: str | None, fires: bool) -> None:
    losses = [first, 0.9 * first, *[0.8 * first] * 18]
    run = run_series({"loss": losses}, {} if score is None else {score: [0.5] * 20})
    state = RatedState(run=run, rate=None if rate is None else Rate(rate, rate, rate / 100.0))
    check = RULES["Plateau"].at_end(state, parameters("Plateau"))
    assert check is not None
    assert check.fires is fires


def live(rule: str, losses: Sequence[float], scores: Sequence[float] = (), **given: Any) -> Any:
    """Show a run that goes on, with validation after each step of training."""
    each, values, run = RULES[rule], parameters(rule, **given), Run()
    state = each.state_type()
    collections = {"losses": ["loss"], "metrics": ["acc"], "learning_rate": ["a_rate", "b_rate"]}
    for place, loss in enumerate(losses):
        saved = {"loss": [loss], "a_rate": [0.5], "b_rate": [7.0]} | ({"acc": [scores[place]]} if scores else {})
        each.observe(state, run.add(2 * place, saved, mode=Mode.TRAIN, collections=collections), values)
        held_out = run.add(2 * place + 1, {"loss": [loss]}, mode=Mode.EVAL, collections=collections)
        each.observe(state, held_out, values)
    return state


@pytest.mark.parametrize(("count", "checks"), [(19, 0), (20, 1), (22, 3), (32, 13), (33, 13), (34, 14)])
@pytest.mark.parametrize(("rule", "fires"), [("Plateau", False), ("NotLearning", True)])
def test_each_whole_training_block_of_a_long_run_is_judged(rule: str, fires: bool, count: int, checks: int) -> None:
    state = live(rule, (FLAT * 2)[:count], live_rows=20)
    assert (state.evaluated, state.fired) == (checks, checks if fires else 0)
    assert state.waiting == 2 * count


def test_plateau_of_a_running_job_fires_with_the_first_rate() -> None:
    state = live("Plateau", [10.0, 9.0, *[8.0] * 18], live_rows=20)
    assert state.steps == [38]
    assert RULES["Plateau"].said(state.latest).endswith(", and nothing was gained since; the learning rate is 0.5.")


@pytest.mark.parametrize(
    ("losses", "scores", "fires"),
    [
        (FLAT, [], True),
        ([8.0 - 0.001 * place for place in range(20)], [], False),
        ([8.0 + 0.001 * place for place in range(20)], [], True),
        (FLAT, [0.25] * 20, True),
        (FLAT, [0.25 + 0.001 * place for place in range(20)], False),
        (FLAT, [0.25 - 0.001 * place for place in range(20)], True),
    ],
)
def test_any_better_trend_defers_a_run_that_learned_nothing(
    losses: list[float], scores: list[float], fires: bool
) -> None:
    state = live("NotLearning", losses, scores, live_rows=20)
    assert bool(state.steps) is fires
    assert state.evaluated == 1
    result = RULES["NotLearning"].at_end(state, parameters("NotLearning"))
    assert result is not None
    assert result.fires


def ended(losses: Sequence[float], scores: Sequence[float] = (), **given: Any) -> RuleResult:
    run, collections = Run(), {"losses": ["loss"], "metrics": ["acc"]}
    for place in range(max(len(losses), len(scores))):
        saved = {"loss": losses[place : place + 1], "acc": scores[place : place + 1]}
        saved = {name: values for name, values in saved.items() if values}
        run.add(place, saved, mode=Mode.TRAIN, collections=collections)
    return observed("NotLearning", run, **given).result


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([20.0] * 20,
         "stands: it was 20 at the start (step 0) and is 20 in the last quarter (until step 19), so it did not change"),
        ([20.0, *[21.0] * 19],
         "stands: it was 20 at the start (step 0) and is 21 in the last quarter (until step 19), so it rose by 5 %"),
        ([20.0, *[22.0] * 19],
         "rises: it was 20 at the start (step 0) and is 22 in the last quarter (until step 19), so it rose by 10 %"),
        ([-20.0, *[-10.0] * 19],
         "rises: it was -20 at the start (step 0) and is -10 in the last quarter (until step 19), so it rose by 50 %"),
    ],
)  # fmt: skip
def test_loss_that_rose_considerably_is_said_to_rise(losses: list[float], said: str) -> None:
    result = ended(losses)
    assert (result.status, result.reason) == (Status.FIRED, f"Step 19: loss {said}.")


@pytest.mark.parametrize(
    ("losses", "scores", "status"),
    [
        ([8.0] * 4, [0.5] * 4, Status.NOT_APPLICABLE),
        ([8.0] * 5, [0.5] * 5, Status.FIRED),
        ([8.0] * 9, [], Status.NOT_APPLICABLE),
        ([8.0] * 10, [], Status.FIRED),
        ([8.0] * 4, [0.5, 0.75, 1.0, 1.0, 1.0], Status.OK),
        ([], [0.5, 0.75, 1.0, 1.0, 1.0], Status.OK),
        ([], [0.5, 0.75, 1.0, 1.0], Status.NOT_APPLICABLE),
        ([], [], Status.NOT_APPLICABLE),
        ([float("nan")] * 9, [0.25 * place for place in range(5)], Status.NOT_APPLICABLE),
    ],
)
def test_ended_run_is_judged_from_five_losses_or_scores_on(
    losses: list[float], scores: list[float], status: Status
) -> None:
    result = ended(losses, scores)
    assert result.status is status
    if status is Status.OK:
        name, first, last = ("loss", "8", "8") if losses else ("acc", "0.5", "1")
        stood = "did not change; acc was 0.5 at the start (step 0) and is 1"
        step, moved = (3, stood) if losses else (4, "rose by 100 %")
        assert result.reason == (
            f"Step {step}: {name} was {first} at the start (step 0) and is {last} in the last quarter (until step "
            f"{step}): it {moved}."
        )
        assert (result.worst, result.threshold, result.advice) == (name, None, None)


PLAIN_ADVICE = "Try to fit ten samples first"
KINDS: Mapping[str, tuple[str, str, str]] = {
    "stands": (
        "share of its first value by which the loss fell",
        "the model did not learn",
        PLAIN_ADVICE,
    ),
    "chance": ("score", "the model did not learn", PLAIN_ADVICE),
    "no gain": ("score", "the model did not learn", PLAIN_ADVICE),
    "stuck": ("score", "the model did not learn", PLAIN_ADVICE),
    "level": ("loss", "the model did not learn", PLAIN_ADVICE),
    "unseen": (
        "loss",
        "what the model learned did not hold",
        "Check that inputs and labels belong together",
    ),
    "validation": (
        "score",
        "what the model learned did not hold",
        "Check that inputs and labels belong together",
    ),
    "worsens": ("loss of validation", "what the model learned did not hold", "Keep the checkpoint of the"),
    "jumps": (
        "change of the loss of validation from value to value, as a share",
        "what the model learned did not hold for validation",
        "Check that validation runs in evaluation mode",
    ),
    "capped": (
        "loss that cannot fall further",
        "the loss could not fall as far as it should",
        "Check that the model's last layer gives logits",
    ),
    "slow": (
        "share of its first value by which the loss fell, at an even speed",
        "the model learned far too slowly",
        "Try a learning rate ten times higher",
    ),
}


NAMES = (
    "step change values classes floor jump score_best score_always loss_level stands_since_step validation_lowest "
    "validation_lowest_step validation_least validation_most validation_last_step"
)
ANY_FACTS = (
    *(Fact(name=name, value=2, series="x") for name in NAMES.split()),
    *(
        Fact(name=f"{prefix}_{name}", value=2, series=prefix)
        for prefix in ("loss", "score", "validation")
        for name in ("first", "first_step", "last", "last_step")
    ),
)


@pytest.mark.parametrize("kind", KINDS)
def test_each_finding_has_its_own_measure_clause_and_advice(kind: str) -> None:
    measure, clause, advice = KINDS[kind]
    found = RULES["NotLearning"].measure(Check(step=1, at=1.0, fires=True, kind=kind))
    assert found is not None
    assert found.what == measure
    words = NotLearning().text(FactSheet(Status.FIRED, kind, ANY_FACTS))
    assert words.clause.startswith(clause)
    assert (words.advice or "").startswith(advice)


def noisy(count: int, fall: float, noise: float) -> list[float]:
    """Return a loss at 1 that falls along a line, with noise of a standard deviation."""
    draw = random.Random(7)
    return [1.0 - fall * place / count + draw.gauss(0.0, noise) for place in range(count)]


def alone(losses: Sequence[float], rates: Sequence[float] = (), *, closed: bool = True, **given: Any) -> RuleResult:
    """Return the result of NotLearning for a loss of training alone, and its learning rate."""
    each, values, run = RULES["NotLearning"], parameters("NotLearning", **given), Run()
    state = each.state_type()
    collections = {"losses": ["loss"], "learning_rate": ["lr"]}
    for step, loss in enumerate(losses):
        saved = {"loss": [loss]} | ({"lr": [rates[step]]} if rates else {})
        each.observe(state, run.add(step, saved, mode=Mode.TRAIN, collections=collections), values)
    return each.judge(state, RunView(len(losses), closed=closed), values)


def test_fall_within_its_noise_is_not_known_yet() -> None:
    result = alone(noisy(64, 0.05, 0.3))
    assert (result.status, result.kind) == (Status.NOT_APPLICABLE, "uncertain")
    needed = next(int(fact.value) for fact in result.facts if fact.name == "values_to_tell")
    # A line through k values of this noise has the error 0.3 * sqrt(12 / k): of 0.05 / 1.64 at 1,162.
    assert 600 < needed < 2_400
    assert f"that takes about {needed:,} values" in result.reason
    assert alone(noisy(4_000, 0.3, 0.3)).kind == "learns"


def test_standing_fine_tune_alone_is_not_known() -> None:
    result = alone([1.4, 1.41] * 10, [2e-5] * 20)
    assert (result.status, result.kind) == (Status.NOT_APPLICABLE, "uncertain")
    assert "a score, or a loss of validation, says more" in result.reason


@pytest.mark.parametrize(("closed", "status"), [(True, Status.NOT_APPLICABLE), (False, Status.WARMING_UP)])
def test_recorded_warm_up_has_no_verdict_on_learning(closed: bool, status: Status) -> None:
    result = alone([10.0] * 40, [1e-7 * (place + 1) for place in range(40)], closed=closed, live_rows=8)
    assert (result.status, result.kind) == (status, "warm-up")


def test_rate_that_stands_after_its_warm_up_is_judged() -> None:
    rates = [1e-4 * min(place + 1, 10) for place in range(40)]
    assert alone([2.3, 2.301] * 20, rates).kind == "stands"
    assert alone([2.3, 2.301] * 20, [1e-4 * min(place + 1, 38) for place in range(40)]).kind == "warm-up"


def test_too_few_values_say_how_many_it_takes() -> None:
    result = alone([2.0, 1.5, 1.0])
    assert result.status is Status.NOT_APPLICABLE
    assert result.reason.startswith("It is not known yet: 3 values can be used, and it takes 10.")
