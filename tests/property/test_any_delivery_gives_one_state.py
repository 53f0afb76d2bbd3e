"""However messages come, or not, and wherever evaluators die or race: one state, one effect a fire."""

import pytest
from hypothesis import given, settings

from tests.support.trials import Trial, check, delays_of_early, reference, trials
from trainguard.records import Status


def test_given_the_job_delivered_plainly_when_it_ends_then_each_fault_has_fired_once() -> None:
    state = reference("steady")
    rows = {name: held[0] for name, held in state.items() if isinstance(held, tuple)}
    assert state["executions"] == [("LowGPUUtilization", 0), ("StepOutlier", 0)]
    assert rows["LowGPUUtilization#algo-1"] is Status.FIRED
    assert rows["LowGPUUtilization#algo-2"] is Status.OK
    assert rows["StepOutlier"] is Status.FIRED
    assert rows["MaxInitializationTime"] is Status.OK


@pytest.mark.parametrize("late", [None, 200.0, 290.0])
@pytest.mark.parametrize("shape", ["early", "four early"])
def test_given_files_closed_early_when_their_doorbells_are_late_or_lost_then_none_of_them_is_missing(
    shape: str, late: float | None
) -> None:
    check(Trial(shape, delays_of_early(shape, late)))


@settings(max_examples=80)
@given(trials())
def test_given_any_delivery_when_the_job_ends_then_state_verdicts_and_effects_are_the_same(trial: Trial) -> None:
    check(trial)


@pytest.mark.thorough
@settings(max_examples=10_000)
@given(trials())
def test_given_ten_thousand_deliveries_when_the_job_ends_then_state_verdicts_and_effects_are_the_same(
    trial: Trial,
) -> None:
    check(trial)
