"""However messages come, or not, and wherever evaluators die or race: one state, one effect a fire."""

import pytest
from hypothesis import given

from tests.support.examples import one_in
from tests.support.trials import Trial, check, delays_of_early, reference, trials
from trainguard.core.records import Status


def test_plain_delivery_fires_each_fault_once() -> None:
    state = reference("steady")
    rows = {name: held[0] for name, held in state.items() if isinstance(held, tuple)}
    assert state["executions"] == [("LowGPUUtilization", 0), ("StepOutlier", 0)]
    assert rows["LowGPUUtilization#algo-1"] is Status.FIRED
    assert rows["LowGPUUtilization#algo-2"] is Status.OK
    assert rows["StepOutlier"] is Status.FIRED
    assert rows["MaxInitializationTime"] is Status.OK


@pytest.mark.parametrize("late", [None, 200.0, 290.0])
@pytest.mark.parametrize("shape", ["early", "four early"])
def test_early_closed_files_with_late_messages_are_all_applied(shape: str, late: float | None) -> None:
    check(Trial(shape, delays_of_early(shape, late)))


@one_in(3)
@given(trials())
def test_any_delivery_gives_one_state_verdicts_and_effects(trial: Trial) -> None:
    check(trial)
