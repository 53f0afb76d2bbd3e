"""Spot restarts: when a job did not run, what that means for its initialization, and for what it costs."""

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.records import Status
from trainguard.engine.profiler.job_time import MOST_RUNS, SILENCE_US, interruptions, with_steps, without_steps
from trainguard.formats.profile.events import StepBatch
from trainguard.pricing.cost import CostEstimate, PaidTime
from trainguard.rules.max_initialization_time.rule import MaxInitializationTime, MaxInitializationTimeParameters
from trainguard.rules.rule_inputs import JobView
from trainguard.rules.rule_result import RuleResult
from trainguard.state.sample_window import INTERRUPTED_S, SampleWindowState

MINUTE = 60.0
RULE, PARAMETERS = MaxInitializationTime(), MaxInitializationTimeParameters()


def node(first: float | None, watermark_s: float, *gaps: tuple[float, float]) -> tuple[SampleWindowState, float]:
    return SampleWindowState(first_sample_at=first, gaps=list(gaps)), watermark_s


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], ()),
        ([node(None, 10.0)], ()),
        ([(SampleWindowState(first_sample_at=0.0, gaps=[(300.0, 600.0)]), None)], ()),
        ([node(500.0, 900.0), node(700.0, 1_000.0)], ()),
        ([node(0.0, 900.0)], ()),
        ([node(0.0, 900.0, (300.0, 600.0))], ((300.0, 600.0),)),
        ([node(0.0, 900.0, (300.0, 300.0 + INTERRUPTED_S))], ((300.0, 300.0 + INTERRUPTED_S),)),
        ([node(0.0, 900.0, (300.0, 299.0 + INTERRUPTED_S))], ()),
        ([node(0.0, 900.0, (300.0, 600.0)), node(0.0, 900.0)], ()),
        ([node(0.0, 900.0, (300.0, 600.0)), node(0.0, 950.0, (310.0, 580.0))], ((310.0, 580.0),)),
        ([node(0.0, 300.0), node(500.0, 900.0)], ((300.0, 500.0),)),
        ([node(0.0, 900.0), node(100.0, 200.0), node(950.0, 999.0)], ()),
        ([node(0.0, 900.0, (200.0, 400.0), (500.0, 700.0))], ((200.0, 400.0), (500.0, 700.0))),
    ],
)
def test_time_without_samples_on_any_node_is_an_interruption(
    nodes: list[tuple[SampleWindowState, float | None]], expected: tuple[tuple[float, float], ...]
) -> None:
    assert interruptions(nodes) == expected


def batch(*steps: tuple[int, int]) -> StepBatch:
    starts, durations = np.array(steps, dtype=np.int64).reshape(-1, 2).T
    return StepBatch("algo-1-7", "Step", starts, durations, ("?",) * len(steps))


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**8)), min_size=1, max_size=12), st.randoms())
def test_runs_of_steps_do_not_depend_on_order_or_batches(steps: list[tuple[int, int]], random: Random) -> None:
    at_once = with_steps([], [batch(*steps)])
    shuffled = list(steps)
    random.shuffle(shuffled)
    runs: list[tuple[int, int]] = []
    for step in shuffled:
        runs = with_steps(runs, [batch(step)])
    assert runs == at_once
    assert all(later[0] - earlier[1] > SILENCE_US for earlier, later in itertools.pairwise(runs))


@pytest.mark.parametrize(
    ("second", "runs"),
    [
        (125_000_000, [(0, 125_000_007)]),
        (125_000_001, [(0, 5_000_000), (125_000_001, 125_000_008)]),
        (1_000_000, [(0, 5_000_000)]),
    ],
)
def test_steps_up_to_two_minutes_apart_are_one_run(second: int, runs: list[tuple[int, int]]) -> None:
    assert with_steps([], [batch((0, 5_000_000), (second, 7))]) == runs
    assert with_steps([(0, 5_000_000)], [batch((second, 7))]) == runs
    assert with_steps([(second, second + 7)], [batch((0, 5_000_000))]) == runs


@pytest.mark.parametrize(("count", "joined"), [(16, 0), (17, 1), (18, 2)])
def test_more_than_16_runs_of_steps_drop_the_shortest_silences(count: int, joined: int) -> None:
    starts = [0]
    for number in range(1, count):
        starts.append(starts[-1] + (400 if number in {4, 5} else 900) * 1_000_000)
    runs = with_steps([], [batch(*((start, 1) for start in starts))])
    given_up = (4, 5)[:joined]
    assert [begin for begin, _ in runs] == [start for number, start in enumerate(starts) if number not in given_up]
    assert [end - 1 for _, end in runs] == [start for number, start in enumerate(starts) if number + 1 not in given_up]


def test_more_silences_than_are_kept_join_the_oldest_runs() -> None:
    steps = [(number * 10 * SILENCE_US, 1) for number in range(MOST_RUNS + 3)]
    runs = with_steps([], [batch(*steps)])
    assert len(runs) == MOST_RUNS
    assert runs[0] == (0, 30 * SILENCE_US + 1)
    assert runs[-1][0] == steps[-1][0]


def test_first_step_of_a_restart_survives_many_evaluations() -> None:
    restart = (20 * SILENCE_US, 1)
    evaluations = [(20 * SILENCE_US + number * 2 * SILENCE_US, 1) for number in range(1, 3 * MOST_RUNS)]
    runs: list[tuple[int, int]] = []
    for step in [(0, 1), (1, SILENCE_US), restart, *evaluations]:
        runs = with_steps(runs, [batch(step)])
    assert len(runs) == MOST_RUNS
    assert restart[0] in {start for start, _ in runs}


@pytest.mark.parametrize(
    ("run", "left"),
    [((90.0, 210.0), ()), ((100.0, 210.0), ((100.0, 200.0),)), ((90.0, 200.0), ((100.0, 200.0),)), ((0.0, 90.0), None)],
)
def test_missing_samples_with_ongoing_steps_are_no_interruption(
    run: tuple[float, float], left: tuple[tuple[float, float], ...] | None
) -> None:
    spans = ((100.0, 200.0),)
    assert without_steps(spans, [run]) == (spans if left is None else left)


def judged(
    *,
    first_step: float | None,
    watermark_s: float,
    gaps: tuple[tuple[float, float], ...],
    runs: tuple[tuple[float, float], ...] = (),
    closed: bool = False,
) -> RuleResult:
    """Judge a job whose times are in minutes since its start."""
    view = JobView(
        started_at=0.0,
        system_through=watermark_s * MINUTE,
        first_step_at=None if first_step is None else first_step * MINUTE,
        framework_expected=True,
        framework_seen=True,
        closed=closed,
        interruptions=tuple((start * MINUTE, end * MINUTE) for start, end in gaps),
        step_runs=tuple((start * MINUTE, end * MINUTE) for start, end in runs),
    )
    return RULE.judge(view, PARAMETERS)


def test_early_interruption_resets_initialization() -> None:
    said = judged(first_step=135, watermark_s=140, gaps=((10, 130),), runs=((135, 139),))
    assert (said.status, said.measured) == (Status.OK, 5.0)
    assert "5 min after the restart of the job" in said.reason
    waiting = judged(first_step=None, watermark_s=140, gaps=((10, 130),))
    assert (waiting.status, waiting.measured) == (Status.WARMING_UP, 10.0)
    late = judged(first_step=None, watermark_s=160, gaps=((10, 130),))
    assert late.status is Status.FIRED
    assert "restart" in late.reason


@pytest.mark.parametrize(("second_step", "status"), [(220.0, Status.OK), (220.1, Status.FIRED)])
def test_late_first_step_of_a_second_start_fires_for_it(second_step: float, status: Status) -> None:
    said = judged(first_step=5, watermark_s=300, gaps=((100, 200),), runs=((5, 99), (second_step, 290)))
    assert said.status is status
    assert said.measured == pytest.approx(second_step - 200.0)
    assert "after the restart of the job" in said.reason


def test_second_start_without_a_step_waits_and_then_fires() -> None:
    assert judged(first_step=5, watermark_s=210, gaps=((100, 200),), runs=((5, 99),)).status is Status.WARMING_UP
    assert judged(first_step=5, watermark_s=240, gaps=((100, 200),), runs=((5, 99),)).status is Status.FIRED


def test_delay_of_a_second_start_is_its_excess_over_threshold() -> None:
    said = judged(first_step=5, watermark_s=240, gaps=((100, 200),), runs=((5, 99),))
    assert (said.measured, said.threshold) == (40.0, 20.0)


@pytest.mark.parametrize(
    ("first_step", "second_step", "watermark_s", "said"),
    [
        (25, None, 222, "25 min after the training start"),
        (15, None, 205, "No step was seen in the 5 min since the restart of the job"),
        (15, 203, 300, "15 min after the training start"),
        (15, 218, 300, "18 min after the restart of the job"),
        (21, 222, 300, "22 min after the restart of the job"),
        (0, 200.5, 300, "30 s after the restart of the job"),
    ],
)
def test_firing_start_precedes_an_open_and_then_the_slower_one(
    first_step: float, second_step: float | None, watermark_s: float, said: str
) -> None:
    runs = ((first_step, 99.0),) if second_step is None else ((first_step, 99.0), (second_step, 290.0))
    assert said in judged(first_step=first_step, watermark_s=watermark_s, gaps=((100, 200),), runs=runs).reason


@pytest.mark.parametrize(("until", "said"), [(0.0, "training start"), (1.0, "restart of the job")])
def test_samples_missing_before_training_are_no_restart(until: float, said: str) -> None:
    assert f"after the {said}" in judged(first_step=5, watermark_s=9, gaps=((-20, until),), runs=((5, 9),)).reason


def test_steps_up_to_the_restart_leave_it_without_its_own() -> None:
    said = judged(first_step=5, watermark_s=230, gaps=((100, 200),), runs=((5, 200),))
    assert said.reason.startswith("No step was seen in the 30 min since the restart")


def test_late_first_start_is_still_reported_after_a_good_second() -> None:
    said = judged(first_step=50, watermark_s=300, gaps=((100, 200),), runs=((50, 99), (203, 290)))
    assert (said.status, said.measured) == (Status.FIRED, 50.0)
    assert "after the training start" in said.reason


def test_interrupted_time_without_instances_is_not_billed() -> None:
    whole = PaidTime("ml.g5.12xlarge", 0.0, 36_000.0, 2)
    spot = PaidTime("ml.g5.12xlarge", 0.0, 36_000.0, 2, unpaid_s=18_000.0)
    full, part = whole.estimate(), spot.estimate()
    assert isinstance(full, CostEstimate)
    assert isinstance(part, CostEstimate)
    assert part.spent == pytest.approx(full.spent / 2.0)


@pytest.mark.parametrize(("lasts", "status"), [(4.9, Status.OK), (5.0, Status.FIRED)])
def test_only_five_minutes_without_samples_or_steps_restart(lasts: float, status: Status) -> None:
    said = judged(first_step=5, watermark_s=300, gaps=((160, 160 + lasts),), runs=((5, 159),))
    assert said.status is status


def test_short_gap_in_a_long_initialization_does_not_reset_it() -> None:
    said = judged(first_step=50, watermark_s=100, gaps=((33, 35),), runs=((50, 99),))
    assert (said.status, said.measured) == (Status.FIRED, 50.0)
