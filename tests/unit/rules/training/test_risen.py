"""Losses that rise for good or fall without bound, and scores that are lost: against the same conditions, plainly."""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.training.series_runs import run_series
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.rule_result import FactSheet
from trainguard.rules.training.divergence import TrainingDivergedParameters, rise, runaway, score_lost
from trainguard.rules.training.run_series import RunSeries
from trainguard.rules.training.series import Series
from trainguard.rules.training.step_rule import Check
from trainguard.rules.training.training_diverged import TrainingDiverged

LIMITS = TrainingDivergedParameters(lost=0.5, blow_up=3.0, score_lost=0.25)
FALLS = [8.0, 8.0, 4.0, *[2.0] * 8]


def medians(values: Sequence[float]) -> list[float]:
    inner = [median(values[at - 1 : at + 2]) for at in range(1, len(values) - 1)]
    return [*values[:1], *inner, *(values[-1:] if len(values) > 1 else [])]


def noise_of(values: Sequence[float]) -> float:
    bends = [abs(values[at - 1] - 2 * values[at] + values[at + 1]) for at in range(1, len(values) - 1)]
    return median(bends) / (0.6745 * math.sqrt(6.0)) if bends else 0.0


def tail_of(series: Series) -> int:
    return max(math.ceil(len(series.means) / 5), 1 if series.size > 1 else 3)


def windows(values: Sequence[float], count: int) -> list[float]:
    count = min(count, len(values))
    return [fmean(values[at : at + count]) for at in range(len(values) - count + 1)]


def rough_of(values: Sequence[float], *, down: bool = False) -> float:
    """Return the noise of values without those that only go up, or ``down``."""
    bends = []
    for left, middle, right in zip(values, values[1:], values[2:], strict=False):
        even = left <= middle <= right or (down and left >= middle >= right)
        bends.append(0.0 if even else abs(left - 2 * middle + right))
    return median(bends) / (0.6745 * math.sqrt(6.0)) if bends else 0.0


def plain_start_of(loss: Series) -> float:
    return loss.means[0] if loss.size == 1 else min(loss.means[0], sorted(loss.head)[1])


def plain_lost_of(means: Sequence[float], count: int, limits: TrainingDivergedParameters) -> float | None:
    split = len(means) - count
    low = min(means[:split])
    place, fallen = list(means).index(low), means[0] - low
    if (
        fallen <= 0.0
        or fallen < 0.2 * abs(means[0])
        or fallen <= 4.0 * rough_of(medians(means[: place + 1]), down=True)
    ):
        return None
    part = min(1.0, 0.75 * fallen / max(min(means[split:]) - low, 1e-300))
    for factor in (1.0, part):
        curve = [*means[: place + 1], *(low + factor * (each - low) for each in means[place + 1 :])]
        before = medians(curve[:split])
        lowest = min(windows(before, count))
        lost = lowest + max(limits.lost * (curve[0] - lowest), 4.0 * rough_of(before))
        if lowest < curve[0] and min(curve[split:]) > lost:
            return lost
    return None


def plain_rise_of(loss: Series, limits: TrainingDivergedParameters, fewest: int) -> tuple[str, float] | None:
    count = tail_of(loss)
    if len(loss.means) <= count or count * loss.size < fewest:
        return None
    short = len(loss.means) < 5
    times = limits.blow_up if max(loss.means) > 10.0 * abs(loss.first) else 10.0
    start, tail = plain_start_of(loss), loss.means[len(loss.means) - count :]
    before = medians(loss.means[: len(loss.means) - count])
    lost = plain_lost_of(loss.means, count, limits)
    conditions = (
        ("blown up", start + max(limits.blow_up * abs(start) - abs(start), 4.0 * rough_of(before)), not short),
        ("exploded", times * abs(loss.first), abs(loss.first) >= 0.001),
    )
    for kind, threshold, may in conditions:
        if may and all(value > threshold for value in tail):
            return kind, threshold
    return None if lost is None or short else ("lost", lost)


def plain_score_holds(score: Series, *, is_far: bool) -> bool:
    values = medians(score.means)
    reach, end = max(values) - min(values), fmean(values[-max(1, round(0.2 * len(values))) :])
    if is_far and end / (100.0 if score.most > 1.5 else 1.0) < 0.65:
        return False
    return reach > 0 and end > values[0] and end >= max(values) - max(0.05 * reach, noise_of(values))


def plain_score_lost(
    score: Series, losses: Sequence[Series], limits: TrainingDivergedParameters, fewest: int
) -> tuple[float, float] | None:
    count = tail_of(score)
    if len(score.means) < 5 + count or count * score.size < fewest:
        return None
    before, tail = medians(score.means[:-count]), score.means[-count:]
    reach = 100.0 if score.most > 1.5 else 1.0
    threshold = max(windows(before, count)) - max(limits.score_lost * reach, 4.0 * noise_of(before))
    judged = [loss for loss in losses if len(loss.means) > tail_of(loss)]
    rose = [fmean(each.means[-tail_of(each) :]) > min(windows(each.means, tail_of(each))) for each in judged]
    return (max(tail), threshold) if all(value < threshold for value in tail) and rose and all(rose) else None


def curve(draw: random.Random, *levels: float) -> list[float]:
    """Return pieces that stand at levels, some of them with a bend at each value."""
    rough = draw.choice([0.0, 0.0, 0.0, 0.25, 1.0])
    values = [level for level in levels for _ in range(draw.choice([1, 2, 3, 4, 6, 8, 12]))]
    return [value + rough * (place % 2) for place, value in enumerate(values)]


def reason_of(found: Check) -> str:
    last = Fact(name="step", value=found.step)
    return TrainingDiverged().text(FactSheet(Status.FIRED, found.kind or "", (last, *found.facts))).reason


def said(found: Check | None) -> Any:
    return None if found is None else (found.kind, found.tensor, found.value, found.threshold)


def test_rise_of_random_losses_and_scores_is_found_as_defined() -> None:
    found: Counter[str | None] = Counter()
    for seed in range(1_200):
        draw = random.Random(seed)
        start, low = draw.choice([-4.0, 0.0, 0.5, 4.0, 5.0, 8.0]), draw.choice([-8.0, 1.0, 2.0, 3.25, 4.0])
        high = draw.choice([0.0, 2.5, 4.5, 4.75, 5.0, 6.0, 8.0, 12.0, 12.5, 15.0, 24.0, 25.0, 500.0, 501.0])
        losses = {name: curve(draw, start, low, high, high, high) for name in ("a", "b")[: draw.choice([1, 1, 2])]}
        if seed % 8 == 0:
            losses = {"a": [0.001, *[4.0] * 40, *[draw.choice([1.0, 1.25, 5.0])] * draw.choice([5, 20])]}
        scores = {"acc": curve(draw, 0.0, *draw.choice([(10.0, 20.0, 19.0), (20.0, 18.0), (20.0, 0.0), (0.0, 0.0)]))}
        run, fewest = run_series(losses, draw.choice([{}, scores])), draw.choice([1, 3, 4, 12])
        limits = TrainingDivergedParameters(
            lost=draw.choice([0.25, 0.5]), blow_up=draw.choice([2.0, 3.0]), score_lost=0.25
        )
        series = [loss for _, loss in run.loss(next(iter(run.losses)))]
        plain = [plain_rise_of(each, limits, fewest) for each in series]
        expected = None
        least = min(series[0].means[-tail_of(series[0]) :])
        is_far = least > 10.0 * abs(plain_start_of(series[0])) > 0.0
        held = any(plain_score_holds(score, is_far=is_far) for _, score in run.score(next(iter(run.scores))))
        if None not in plain and not held:
            kind, threshold = plain[0] or ("", 0.0)
            loss = series[0]
            end = fmean(loss.means[-tail_of(loss) :])
            expected = kind, "a", end, threshold
            place = len(loss.means) - tail_of(loss)
            facts = {each.name: each.value for each in getattr(rise(run, limits, fewest), "facts", ())}
            assert facts["risen_after_step"] == loss.steps[place - 1]
            assert (facts["loss_least_since"], facts["loss_last"]) == (min(loss.means[place:]), end)
        assert said(rise(run, limits, fewest)) == expected, seed
        found[expected and expected[0]] += 1
    assert min(found[kind] for kind in ("blown up", "exploded", "lost", None)) >= 20


def test_random_scores_are_lost_as_defined() -> None:
    found: Counter[bool] = Counter()
    for seed in range(1_000):
        draw = random.Random(seed)
        scale = draw.choice([1.0, 1.0, 100.0])
        best, left = draw.choice([0.5, 0.75, 1.0]), draw.choice([0.0, 0.25, 0.375, 0.5, 0.75])
        scores = {"acc": [scale * each for each in curve(draw, 0.0, best, best, left, left, left)]}
        losses = {name: curve(draw, 4.0, 2.0, draw.choice([2.0, 2.5, 3.0])) for name in ("a", "b")[: draw.randrange(3)]}
        run, fewest = run_series(losses, scores), draw.choice([1, 3, 4, 12])
        score, series = run.score(next(iter(run.scores)))[0][1], [loss for _, loss in run.loss(next(iter(run.losses)))]
        plain = plain_score_lost(score, series, LIMITS, fewest)
        expected = None if plain is None else ("score lost", "acc", *plain)
        assert said(score_lost(run, LIMITS, fewest)) == expected, seed
        found[expected is None] += 1
    assert min(found.values()) >= 100


def test_random_negative_losses_fall_without_bound_as_defined() -> None:
    found: Counter[bool] = Counter()
    for seed in range(500):
        draw = random.Random(seed)
        last = draw.choice([-9.5, -10.0, -10.5, -20.0, -40.0, -40.5, 41.0])
        loss = curve(draw, *draw.choice([(1.0, -1.0), (-1.0, 0.5), (4.0, -2.0), (-4.0,)]), last, last)
        run, fewest = run_series({"loss": loss, "other": [1.0] * 9}), draw.choice([1, 3, 4, 12])
        series = run.loss(next(iter(run.losses)))[0][1]
        half, count = len(series.means) // 2, tail_of(series)
        threshold = -10.0 * max((abs(each) for each in series.means[:half]), default=0.0)
        long = len(series.means) >= 10 and count * series.size >= fewest
        fires = long and all(value < threshold for value in series.means[-count:])
        assert said(runaway(run, fewest)) == (("unbounded", "loss", loss[-1], threshold) if fires else None), seed
        found[fires] += 1
    assert min(found.values()) >= 30


def test_first_loss_decides_over_a_second_falling_without_bound() -> None:
    falls = [-1.0] * 6 + [-50.0] * 5
    assert runaway(run_series({"a": falls, "b": [1.0] * 11}), 3) is not None
    assert runaway(run_series({"b": [1.0] * 11, "a": falls}), 3) is None


def test_losses_and_scores_with_moving_targets_are_not_judged() -> None:
    for name, found in (("loss", True), ("critic_loss", False)):
        assert (rise(run_series({name: [1.0] * 5 + [9.0] * 3}), LIMITS, 3) is not None) is found
        assert (runaway(run_series({name: [-1.0] * 6 + [-50.0] * 5}), 3) is not None) is found
    for name, found in (("acc", True), ("critic_acc", False)):
        run = run_series({"loss": [2.0, 1.0, 1.0, 1.0, 1.5, 1.5, 1.5]}, {name: [0.9] * 6 + [0.1] * 3})
        assert (score_lost(run, LIMITS, 3) is not None) is found


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        ([1.0, 1.0, 3.5, 4.0, 4.5],
         ("loss was 1 at the start (step 10); after step 13 it was never below 3.5, with a mean of 4, above the "
         "threshold 3")),
        ([*FALLS, 6.0, 7.0, 7.5],
         ("loss was 8 at the start (step 10) and 2 at its lowest (step 19); after step 40 it was never below 6, with a "
         "mean of 6.83333, above the threshold 5")),
        ([1.0, *[3.0e6] * 39, *[2.0e6] * 24],
         (
                "loss was 1 at step 10; after step 157 no mean of its groups of 2 values was below 2e+06, with a mean "
                "of 2e+06, above the threshold 3"
            )),
    ],
)  # fmt: skip
def test_sentence_of_a_rise_has_its_start_and_result(losses: list[float], reason: str) -> None:
    found = rise(run_series({"loss": losses}), LIMITS, 3)
    assert found is not None
    assert reason_of(found) == f"Step {found.step}: {reason}."


def test_sentences_of_unbounded_loss_and_lost_score_have_numbers() -> None:
    found = runaway(run_series({"loss": [1.0, -1.0, -2.0, -2.0, -2.0, -9.0, -15.0, -21.0, -22.0, -23.5]}), 3)
    assert found is not None
    assert reason_of(found) == (
        "Step 37: loss falls without bound: it was 1 at the start (step 10) and -2 half-way (step 22), and is -23.5."
    )
    run = run_series(
        {"loss": [2.0, 1.0, 1.0, 1.0, 1.5, 1.5, 1.5]}, {"acc": [0.5, 0.75, 0.75, 0.75, 0.75, 0.4, 0.3, 0.2]}
    )
    lost = score_lost(run, LIMITS, 3)
    assert lost is not None
    assert reason_of(lost) == (
        "Step 31: acc had a mean of 0.75 over its best fifth of the run; after step 22 it was never above 0.4, below "
        "the threshold 0.5, and the loss rose."
    )


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ({}, True),
        ({"acc": [0.0, 0.0, 0.0, 0.0, *[20.0] * 8, 19.0, 19.0, 19.0]}, False),
        ({"acc": [0.0, 0.0, 0.0, 0.0, *[20.0] * 8, 19.0, 19.0, 18.5]}, True),
        ({"acc": [0.5] * 10}, True),
        ({"acc": [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]}, True),
        ({"acc": [0.5] * 10, "f1": [0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]}, False),
    ],
)
def test_rise_with_a_score_near_its_best_is_no_divergence(scores: Mapping[str, list[float]], found: bool) -> None:
    assert (rise(run_series({"loss": [*FALLS, 7.0, 7.0, 7.0]}, scores), LIMITS, 3) is not None) is found


def test_no_losses_means_no_rise_and_no_lost_score() -> None:
    run = run_series({}, {"acc": [0.75] * 6 + [0.0] * 3})
    assert (rise(run, LIMITS, 1), runaway(run, 1), score_lost(run, LIMITS, 1)) == (None, None, None)


@given(
    fall=st.lists(st.floats(0.1, 1.0), min_size=1, max_size=8),
    risen=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=30),
    worse=st.floats(1.0, 1e6),
)
def test_diverged_curve_that_rises_more_has_diverged(fall: list[float], risen: list[float], worse: float) -> None:
    """After its lowest value a curve rises ``worse`` times as far."""
    low = 1.0
    down = [low + 3.0 * each for each in sorted(fall, reverse=True)]

    def judged(factor: float) -> Check | None:
        return rise(run_series({"loss": [*down, low, *(low + factor * each for each in risen)]}), LIMITS, 3)

    if judged(1.0) is not None:
        assert judged(worse) is not None


@pytest.mark.parametrize("worse", [1.0, 2.0, 3.0, 10.0, 1e6])
@pytest.mark.parametrize("steeper", [1.2, 2.0, 4.0])
def test_steeper_or_larger_explosion_is_found(worse: float, steeper: float) -> None:
    losses = [2.0, 1.5, 1.45, *(1.4 + worse * 0.3 * steeper**step for step in range(9))]
    assert rise(run_series({"loss": losses}), LIMITS, 3) is not None


@pytest.mark.parametrize("at", [1, 2, 3, 7, 15])
@pytest.mark.parametrize("count", [10, 40, 600, 5_000])
def test_early_explosion_with_a_lasting_loss_is_found(at: int, count: int) -> None:
    draw = random.Random(at)
    high = [500.0 * draw.uniform(0.7, 1.4) for _ in range(max(count - at, 4))]
    assert rise(run_series({"loss": [*[2.3] * at, *high]}), LIMITS, 3) is not None


def test_small_growth_of_a_loss_from_0_is_no_explosion() -> None:
    """The loss of a policy that is compared with the one it began as; its noise covers the growth."""
    draw = random.Random(2)
    losses = [0.0, *(0.004 + draw.gauss(0.0, 0.003) for _ in range(40))]
    assert rise(run_series({"loss": losses}), LIMITS, 3) is None


def test_only_a_high_score_excuses_an_exploded_loss() -> None:
    losses = [2.5, 100.0, 6e4, 2e5, 600.0, 3e3, 900.0, 1.5e3, 4e4, 8e3]
    rises = [0.26, 0.3, 0.3, 0.3, 0.3, 0.31, 0.32, 0.33, 0.35, 0.35]
    assert rise(run_series({"loss": losses}, {"acc": rises}), LIMITS, 3) is not None
    assert rise(run_series({"loss": losses}, {"acc": [each + 0.6 for each in rises]}), LIMITS, 3) is None


def test_rise_begins_at_the_first_bad_value() -> None:
    series = Series()
    for place, value in enumerate([2.0, 1.5, 1.4, 1.6, 3.0, 5.0, 9.0]):
        series.add(place, value, 1_000.0 + 60.0 * place)
    found = rise(RunSeries(losses={Mode.TRAIN: {"loss": series}}), LIMITS, 3)
    assert found is not None
    assert found.onset == 1_240.0
