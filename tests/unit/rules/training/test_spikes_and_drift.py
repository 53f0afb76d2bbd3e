"""Spikes of the loss and norms that drift: each bound, on it and to both sides; and what is kept of a loss."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.steps import Outcome, Run, fired, observed
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.loss_not_decreasing import MOST_KEPT, LossHistory
from trainguard.rules.training.spikes_and_drift import GradientNormDriftState, LossSpikeState, SpikeLevel

CALM = [1.0] * 8
# Their median is 0, and the median of the distances from it 1: a deviation of 1.4826.
WIDE = [-1.0, 1.0] * 4

DEVIATION = 1.4826


def above(value: float) -> float:
    return math.nextafter(value, math.inf)


def of_losses(losses: Sequence[float], name: str = "loss", mode: Mode = Mode.TRAIN) -> Run:
    run = Run()
    for step, loss in enumerate(losses):
        run.add(step, {name: [loss]}, collections={"losses": [name]}, mode=mode, mode_step=step)
    return run


def spikes(losses: Sequence[float], **given: Any) -> LossSpikeState:
    state = observed("LossSpike", of_losses(losses), **given).state
    assert isinstance(state, LossSpikeState)
    return state


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ([*CALM, 1.5, 1.0], 0),
        ([*CALM, above(1.5), 1.0], 1),
        ([*CALM[:7], 9.0, 1.0], 0),
        ([*WIDE, 8.0 * DEVIATION, 0.0], 0),
        ([*WIDE, above(8.0 * DEVIATION), 0.0], 1),
        ([-2.0] * 8 + [-1.0, -2.0], 0),
        ([-2.0] * 8 + [-0.999, -2.0], 1),
        ([0.0] * 9 + [5.0, 0.0], 0),
        ([*CALM, 9.0], 0),
        ([*CALM, 9.0, 5.0], 1),
        ([*CALM, 9.0, above(5.0)], 0),
        ([*CALM, 5.0, 9.0, above(5.0)], 0),
        ([*CALM, 5.0, 9.0, 5.0], 1),
        ([*CALM, 9.0, 7.0, 5.0], 1),
        ([*WIDE, 20.0, 10.0], 1),
        ([*WIDE, 20.0, above(10.0)], 0),
        ([*WIDE, *[12.0, above(6.0)], 6.0], 1),
        ([*CALM, *[9.0] * 32, 1.0], 1),
        ([*CALM, *[9.0] * 33, 1.0], 0),
        ([*CALM, 9.0, 1.0, 9.0, 1.0], 2),
        ([*CALM, 9.0, math.nan, math.inf, 1.0], 1),
    ],
)
def test_loss_far_above_the_last_ones_that_recovers_is_a_spike(losses: list[float], found: int) -> None:
    assert spikes(losses).spikes == found
    assert spikes([*losses, *CALM[:1]]).window


@pytest.mark.parametrize(
    ("loss", "found"), [(DEVIATION * 3.0, 1), (above(DEVIATION * 3.0), 0), (above(DEVIATION * 3.0) + 0.1, 0)]
)
def test_low_spike_is_over_within_three_deviations(loss: float, found: int) -> None:
    assert spikes([*WIDE, 5.0, loss], deviations=2).spikes == found


def test_first_of_the_highest_spikes_is_named() -> None:
    run = of_losses([*CALM, 5.0, 1.0, 9.0, 8.0, 1.0, 9.0, 1.0])
    reason = observed("LossSpike", run).result.reason
    assert reason == (
        "Step 14: loss had 3 spikes that recovered; the largest began at step 10, reached 9, 8 above its level, and "
        "was over at step 12."
    )
    low = observed("LossSpike", of_losses([*CALM, 1.75, 1.0])).result.reason
    assert "loss had 1 spike that recovered; the largest began at step 8, reached 1.75, 0.75 above its level" in low
    assert observed("LossSpike", of_losses(CALM)).result.reason == "Step 7: loss had no spike."


def test_values_of_a_past_spike_are_no_level() -> None:
    assert spikes([*CALM, 9.0, 1.0, 1.25]).window == [*CALM, 1.25]
    assert spikes([*CALM, *[9.0] * 33]).window == [9.0]
    assert spikes([float(step % 2) for step in range(40)]).window == [float(step % 2) for step in range(8, 40)]


def test_loss_of_another_mode_or_name_is_no_spike() -> None:
    assert observed("LossSpike", of_losses([*CALM, 9.0, 1.0], mode=Mode.EVAL)).result.status is Status.NOT_APPLICABLE
    assert observed("LossSpike", of_losses([*CALM, 9.0, 1.0], mode=Mode.GLOBAL)).result.status is Status.OK
    run = Run()
    for step, loss in enumerate([*CALM, 9.0, 1.0]):
        tensors = {"a_loss": [loss], "loss": [1.0]} if step else {"loss": [1.0], "z_loss": [1.0]}
        run.add(step, tensors, collections={"losses": list(tensors)}, mode=Mode.TRAIN)
    run.add(99, {"a_loss": [1.0]}, collections={"losses": ["a_loss"]}, mode=Mode.TRAIN)
    outcome = observed("LossSpike", run)
    assert (outcome.result.reason, outcome.result.worst) == ("Step 9: loss had no spike.", "loss")


def test_level_has_the_mean_of_eight_and_a_decaying_newest_value() -> None:
    level = SpikeLevel()
    level.add(0.1)
    assert (level.first, level.newest, level.count) == (0.1, 0.1, 1)
    level = SpikeLevel()
    for value in [2.0, 4.0] * 4:
        level.add(value)
    assert (level.first, level.newest) == pytest.approx((3.0, 3.0))
    level.newest = 3.0
    for value, newest in ((11.0, 4.0), (4.0, 4.0), (-4.0, 3.0)):
        level.add(value)
        assert (level.first, level.newest) == pytest.approx((3.0, newest))
    assert level.count == 11


def test_norm_state_has_room_up_to_512_and_40_000_characters() -> None:
    def state_of(count: int, length: int) -> GradientNormDriftState:
        return GradientNormDriftState(norms={f"{place:0{length}d}": SpikeLevel() for place in range(count)})

    assert (state_of(511, 3).has_room("x"), state_of(512, 3).has_room("x")) == (True, False)
    assert (state_of(10, 3_990).has_room("x" * 100), state_of(10, 3_990).has_room("x" * 101)) == (True, False)


BROKEN = [1.0] * 8 + [1e3] * 8
# From 5 to 4 exactly: a fall of a fifth.
FLAT = [5.0] * 8 + [-3.0] + [4.0] * 7


def drifting(norms: Mapping[str, Sequence[float]], losses: Sequence[float], **given: Any) -> Outcome:
    run = Run()
    for step, loss in enumerate(losses):
        at = {name: [values[step]] for name, values in norms.items() if step < len(values)}
        run.add(
            step,
            {"loss": [loss], **at},
            mode=Mode.TRAIN,
            collections={"losses": ["loss"], "gradient_norm": sorted(at)},
        )
    return observed("GradientNormDrift", run, **given)


@pytest.mark.parametrize(
    ("norm", "losses", "fires"),
    [
        (BROKEN, FLAT, True),
        (BROKEN, [*FLAT[:-1], 3.99], False),
        (BROKEN, [-each for each in FLAT], True),
        (BROKEN, [-5.0] * 8 + [-13.0] + [-6.0] * 7, True),
        (BROKEN, [-5.0] * 8 + [-13.0] + [-6.0] * 6 + [-6.01], False),
        (BROKEN, [0.0] * 16, True),
        ([1.0] * 16, FLAT, False),
    ],
)
def test_drifting_norms_with_a_loss_fallen_by_a_fifth_are_fine(
    norm: list[float], losses: list[float], fires: bool
) -> None:
    outcome = drifting({"norm": norm}, losses, decades=1)
    assert (outcome.result.status is Status.FIRED) is fires
    change = outcome.result.facts[-2 if outcome.result.facts[-1].name == "left_out" else -1]
    assert (change.name, change.threshold) == ("change", -0.2)
    assert (float(change.value) < -0.2 - 1e-9) is (not fires and norm == BROKEN)
    assert outcome.result.kind == ("grows" if fires else "fine" if norm != BROKEN else "drifts while the loss falls")


def test_fewer_than_sixteen_losses_or_norms_are_not_compared() -> None:
    assert drifting({"norm": BROKEN}, FLAT[:15], decades=1).result.status is Status.NOT_APPLICABLE
    assert drifting({"norm": BROKEN}, FLAT[:15], decades=1).state.waiting == 15
    assert drifting({"norm": [math.nan] + [1.0] * 8 + [1e6] * 7}, FLAT, decades=1).result.status is Status.OK
    assert drifting({"norm": [1.0] * 8 + [1e6] * 7 + [1.0]}, FLAT, decades=1).result.status is Status.FIRED


def test_drift_names_the_norms_and_the_step_of_the_drift() -> None:
    outcome = drifting({"norm": [2.0] * 8 + [2e8] * 8, "same": [0.0] * 16}, FLAT, decades=4)
    assert outcome.result.reason == (
        "Step 15: norm is about 3.57e+05 and was 2 at the start, 5.25 decades apart, too far since step 15; "
        "the loss fell by 20 %, from about 5 to 4."
    )
    assert drifting({"same": [0.0] * 16}, FLAT).result.reason == (
        "Step 15: same is about 1e-30 and was 1e-30 at the start, 0 decades apart; the loss fell by 20 %, from about "
        "5 to 4."
    )
    both = drifting({"a": [1.0] * 8 + [1e9] * 32, "b": [1.0] * 8 + [1e9] * 32}, [5.0] * 40)
    assert ", too far since step 15, the first of 2 that drifted; the loss did not change" in both.result.reason
    assert both.result.worst == "a"
    assert (both.result.advice or "").startswith("Look at a first. Gradients that grow need clipping")
    assert both.result.clause == "gradients grew by orders of magnitude"


def test_vanishing_gradients_have_their_own_advice() -> None:
    result = drifting({"a": [1.0] * 8 + [1e-9] * 32}, [5.0] * 40).result
    assert (result.kind, result.clause) == ("shrinks", "gradients shrank by orders of magnitude")
    assert "Gradients that vanish need" in (result.advice or "")


def test_loss_fallen_by_15_percent_is_said_to_fall() -> None:
    losses = [1.65 - 0.25 * min(step / 100.0, 1.0) for step in range(127)]
    result = drifting({"norm": [1.7 - 0.008 * step for step in range(127)]}, losses).result
    assert "; the loss fell by 14" in result.reason


def test_returning_norm_counts_the_step_of_its_new_drift() -> None:
    norm = [1.0] * 8 + [1e9] * 12 + [1e-9] * 8 + [1e9] * 30
    outcome = drifting({"norm": norm}, [5.0] * len(norm))
    state = outcome.state
    assert isinstance(state, GradientNormDriftState)
    drifted = state.norms["norm"].drifted
    assert drifted is not None
    assert drifted > 28


def test_gradient_norm_is_the_saved_one_else_the_mean_size() -> None:
    for saved, expected in (({"l2": 3.0}, 3.0), ({"abs_l2": 4.0}, 4.0), ({"abs_mean": 5.0}, 5.0)):
        run = Run()
        for step in range(16):
            run.add(
                step,
                {"loss": [1.0]},
                reductions={"g": {**saved, "abs_mean": 5.0}},
                collections={"losses": ["loss"], "gradients": ["g"]},
            )
        assert f"g is about {expected:g} and was {expected:g}" in observed("GradientNormDrift", run).result.reason


def test_norms_use_only_the_total_training_loss() -> None:
    run = Run()
    for step in range(16):
        tensors = {"a_loss": [9.0 - 0.5 * step], "loss": [5.0], "norm": [BROKEN[step]]}
        of_step = {"losses": ["a_loss", "loss"], "gradient_norm": ["norm"]}
        run.add(2 * step, tensors, mode=Mode.TRAIN, collections=of_step)
        run.add(2 * step + 1, {"loss": [1.0], "norm": [1.0]}, mode=Mode.EVAL, collections=of_step)
    result = observed("GradientNormDrift", run, decades=1).result
    assert (result.status, result.reason.endswith("from about 5 to 5.")) == (Status.FIRED, True)


def test_kept_random_steps_look_back_on_the_same_step_as_all() -> None:
    random = np.random.default_rng(5)
    for _ in range(60):
        apart, history, every = int(random.integers(1, 12)), LossHistory(), list[tuple[int, float]]()
        step, watched = 0, int(random.choice([0, 0, 8]))
        for place in range(40):
            step += int(random.choice([1, 1, 2, 7]))
            past = [each for each in every if each[0] <= step - apart]
            due = history.checked is None or step - history.checked >= apart
            assert history.is_due(step, apart) is due
            if due:
                assert history.reference(step, apart) == (past[-1] if past else None)
            if due and past and place >= watched:
                history.checked = step
            every.append((step, float(step)))
            history.add(step, float(step), apart)
            later = [each for each in every if history.checked is not None and each[0] >= history.checked]
            begin = max(sum(each[0] <= step - apart for each in every) - 1, 0)
            kept = later if history.checked is not None else every[begin:]
            assert list(zip(history.steps, history.losses, strict=True)) == kept


@pytest.mark.parametrize(("count", "kept"), [(31, 31), (32, 32), (33, 17)])
def test_every_second_step_is_dropped_beyond_the_limit(count: int, kept: int) -> None:
    history = LossHistory()
    for step in range(count):
        history.add(step, float(-step), 1_000)
    assert len(history.steps) == kept <= MOST_KEPT
    assert [-loss for loss in history.losses] == history.steps
    assert (history.steps[0], history.steps[-1]) == (0, count - 1)
    if count > MOST_KEPT:
        assert history.steps == list(range(0, 33, 2))
        history.add(33, -33.0, 1_000)
        assert history.steps == [*range(0, 33, 2), 33]


def test_stored_histories_without_checks_have_none() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([]), type=LossHistory) == LossHistory([], [], None)


@pytest.mark.parametrize(
    ("losses", "given", "expected"),
    [
        ([2.0, 1.5], {"diff_percent": 25}, []),
        ([2.0, 1.5], {"diff_percent": 25.1}, [1]),
        ([2.0, 2.5], {"increase_threshold_percent": 25}, []),
        ([2.0, 2.5], {"increase_threshold_percent": 24.9}, [1]),
        ([-2.0, -1.5], {"increase_threshold_percent": 24.9}, [1]),
        ([-2.0, -2.5], {"diff_percent": 25}, []),
        ([2.0, 2.0], {"diff_percent": 0}, []),
        ([2.0, 2.0], {}, [1]),
        ([0.0, 0.0], {}, [1]),
        ([0.0, 1.0], {}, [1]),
        ([0.0, -1.0], {}, []),
        ([0.0, 1.0], {"diff_percent": 0}, []),
        ([2.0, 1.0, 1.0], {"num_steps": 2}, []),
        ([2.0, 1.0, 2.0], {"num_steps": 2}, [2]),
    ],
)
def test_fall_is_not_below_and_rise_is_above_its_threshold(
    losses: list[float], given: Mapping[str, Any], expected: list[int]
) -> None:
    assert fired("LossNotDecreasing", of_losses(losses), **{"num_steps": 1, **given}) == expected
