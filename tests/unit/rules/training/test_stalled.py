"""StalledTrainingRule: gaps between steps, and what the clock says about a run that goes on."""

import pytest

from tests.support.steps import RULES, Run, observed, parameters
from trainguard.core.records import Status
from trainguard.rules.training.stalled_training import StalledTrainingRule
from trainguard.rules.training.step_rule import RunView


def saved_at(*times: float, timed: bool = True) -> Run:
    run = Run()
    for step, at in enumerate(times):
        run.add(step, at=at, timed=timed)
    return run


@pytest.mark.parametrize(
    ("times", "fires", "sentence", "at"),
    [
        ([100.0], False, "it is the first saved step, and no time without one was measured yet.", 100.0),
        (
            [100.0, 1_900.0],
            False,
            "no step was saved for 30 min after step 0, until step 1; that is not above the threshold of 30 min.",
            1_900.0,
        ),
        (
            [100.0, 1_909.0],
            False,
            (
                "no step was saved for 30.1 min after step 0, until step 1; it is the first time between two steps, "
                "and tells how often this run saves one."
            ),
            1_909.0,
        ),
        (
            [100.0, 110.0, 1_919.0],
            True,
            "no step was saved for 30.1 min after step 1, until step 2; that is above the threshold of 30 min.",
            1_910.0,
        ),
        (
            [0.0, 2_200.0, 6_600.0],
            False,
            "no step was saved for 73.3 min after step 1, until step 2; that is not above the threshold of 73.3 min.",
            6_600.0,
        ),
        (
            [0.0, 2_200.0, 6_606.0],
            True,
            "no step was saved for 73.4 min after step 1, until step 2; that is above the threshold of 73.3 min.",
            6_600.0,
        ),
        (
            [0.0, 10.0, 86_410.0],
            False,
            "no step was saved for 24 h after step 1, until step 2; the run was stopped then, and resumed.",
            86_410.0,
        ),
        (
            [100.0, 50.0, 1_900.0],
            False,
            "no step was saved for 30 min after step 1, until step 2; that is not above the threshold of 30 min.",
            1_900.0,
        ),
    ],
)
def test_gap_above_the_threshold_began_at_it(times: list[float], fires: bool, sentence: str, at: float) -> None:
    outcome = observed("StalledTrainingRule", saved_at(*times))
    latest = outcome.state.latest
    assert latest is not None
    assert (outcome.result.reason.partition(": ")[2], latest.fires, latest.at, outcome.state.evaluated) == (
        sentence,
        fires,
        at,
        len(times),
    )
    assert latest.step == (len(times) - 2 if fires else len(times) - 1)
    advice = "on purpose, raise the threshold above the save interval"
    assert (advice in (outcome.result.advice or "")) is fires
    assert outcome.result.onset == (at if fires else None)


def test_files_without_times_are_noted_and_timed_steps_count() -> None:
    outcome = observed("StalledTrainingRule", saved_at(1.0, timed=False))
    assert outcome.result.status is Status.NOT_APPLICABLE
    assert outcome.result.reason.startswith("The file has no times: its 1 step all have that at which it was saved.")
    run = saved_at(1.0, 5_000.0, timed=False)
    assert observed("StalledTrainingRule", run).state.left_out == 2
    run.add(9, at=9.0)
    assert "it is the first saved step" in observed("StalledTrainingRule", run).result.reason
    assert observed("StalledTrainingRule", Run()).result.status is Status.NOT_APPLICABLE


@pytest.mark.parametrize("timed", [True, False])
def test_first_gap_begins_at_a_timed_step_before_the_range(timed: bool) -> None:
    run = saved_at(100.0, timed=timed)
    run.add(1, at=110.0)
    run.add(2, at=5_000.0)
    kind = observed("StalledTrainingRule", run, start_step=1).result.kind
    assert kind == ("stalled" if timed else "first gap")


def test_epochs_of_36_to_53_min_are_no_stall() -> None:
    times = [0.0]
    for minutes in (36, 41, 53, 38, 52, 36):
        times.append(times[-1] + 60.0 * minutes)
    assert observed("StalledTrainingRule", saved_at(*times)).steps == []


def test_next_gap_as_long_as_a_stall_is_a_stall_too() -> None:
    assert observed("StalledTrainingRule", saved_at(0.0, 10.0, 4_010.0, 4_020.0, 8_020.0)).steps == [1, 3]


@pytest.mark.parametrize(
    ("times", "progress", "now", "fires", "gap"),
    [
        ([], 1_000.0, 2_800.0, None, None),
        ([], 1_000.0, 2_801.0, True, 1_801.0),
        ([500.0], 1_000.0, 2_800.0, False, 1_800.0),
        ([2_000.0], 1_000.0, 3_801.0, True, 1_801.0),
        ([2_000.0], 2_500.0, 3_801.0, False, 1_301.0),
    ],
)
def test_clock_judges_by_the_newest_sign_of_life(
    times: list[float], progress: float, now: float, fires: bool | None, gap: float | None
) -> None:
    rule, values = StalledTrainingRule(), parameters("StalledTrainingRule", x=1)
    state = rule.state_type()
    for step in saved_at(*times).steps:
        rule.observe(state, step, values)
    result = rule.judge_at(state, RunView(len(times)), values, now=now, progress_at=progress)
    assert result.status is {None: Status.WARMING_UP, True: Status.FIRED, False: Status.OK}[fires]
    assert result.measured == gap
    assert result.onset == (max([progress, *times]) + 1_800.0 if fires else None)
    assert (result.advice is not None) is bool(fires)
    assert result.reason.endswith(" Parameter StalledTrainingRule_x is unknown and not used.")
    if fires is not None:
        beginning = "Step 0: no step was saved" if times else "No step was saved"
        assert result.reason.startswith(f"{beginning} for ")
        assert (result.threshold, result.data_points) == (1_800.0, len(times))
        assert "and training has not ended; that is" in result.reason
    closed = rule.judge_at(state, RunView(len(times), closed=True), values, now=now, progress_at=progress)
    assert closed.status is (Status.OK if times else Status.NOT_APPLICABLE)
    assert RULES["StalledTrainingRule"].parameters_type().stop_training_on_fire is False
