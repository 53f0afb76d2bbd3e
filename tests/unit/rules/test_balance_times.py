"""When a GPU began to stay behind, when it ceased to, and whether it stopped working."""

import numpy as np
import pytest

from tests.unit.rules.gpu_loads import judge
from tests.unit.rules.node_replay import JOB_START, NodeSeries, Replay, series
from trainguard.rules.load_balancing.times import FINE_S

POINTS_A_MINUTE = 6


def beside(*spans: tuple[float, float]) -> NodeSeries:
    """Return a busy GPU beside one that is at a level for so many minutes, point by point every 10 s."""
    low = np.concatenate([np.full(round(POINTS_A_MINUTE * minutes), level) for minutes, level in spans])
    return series(np.column_stack([np.full(low.size, 97.0), low]), interval_s=60.0 / POINTS_A_MINUTE)


def last_fire(result: Replay) -> tuple[float | None, float | None]:
    """Return onset and end, in minutes since the start, as the rule said when it fired last."""
    said = [each for each in result.results if each.gpus == ("gpu1",)][-1]
    return _minute(said.onset), _minute(said.until)


def _minute(at: float | None) -> float | None:
    return None if at is None else (at - JOB_START) / 60.0


@pytest.mark.parametrize("onset", [61.0, 67.0])
def test_onset_end_and_loss_of_a_past_gap_are_those_of_its_hour(onset: float) -> None:
    result = judge(beside((onset, 97.0), (60.0, 40.0), (60.0, 97.0)), closed=False)
    begin, end = last_fire(result)

    assert begin == pytest.approx(onset, abs=FINE_S / 60.0)
    assert end == pytest.approx(onset + 60.0, abs=FINE_S / 60.0)
    lost_min = result.state.lost / 1e4 / POINTS_A_MINUTE
    assert lost_min == pytest.approx((1.0 - 40.0 / 97.0) * 60.0 / 2.0, rel=0.1)


def test_gpu_that_worked_and_stopped_says_when_and_names_the_log() -> None:
    said = judge(beside((61.0, 97.0), (80.0, 0.0)), closed=False).last

    assert said.reason.startswith("gpu1 of algo-1 stopped working at about ")
    assert "dmesg" in (said.advice or "")
    assert "evenly" not in (said.advice or "")


def test_gpu_that_waits_or_never_worked_did_not_stop() -> None:
    for node in (beside((61.0, 97.0), (80.0, 40.0)), beside((140.0, 0.0))):
        assert "stopped working" not in judge(node, closed=False).last.reason


def test_a_gpu_that_stops_in_a_pause_of_all_stopped_before_it() -> None:
    busy, idle = np.full(POINTS_A_MINUTE * 30, 97.0), np.zeros(POINTS_A_MINUTE * 12)
    rest = np.full(POINTS_A_MINUTE * 60, 97.0)
    gpus = np.column_stack([np.concatenate([busy, idle, rest]), np.concatenate([busy, idle, np.zeros(rest.size)])])

    last = judge(series(gpus, interval_s=60.0 / POINTS_A_MINUTE)).last

    stopped = next(fact for fact in last.facts if fact.name == "stopped_at")
    assert stopped.start is not None
    assert stopped.end is not None
    assert stopped.start <= JOB_START + 1_800.0 <= stopped.end
    assert float(stopped.value) == pytest.approx(JOB_START + 1_800.0, abs=FINE_S)
