"""When a job reaches its last step: steady, with pauses, restarts, drifts, and with too little to say."""

import math

import pytest

from trainguard.planning.document import FinishForecast, Lacking
from trainguard.planning.finish import Point, forecast_finish
from trainguard.planning.text import said_finish

AT = 1_700_000_000.0


def steps(count: int, pace: float = 1.0, *, start: float = AT, first: int = 0) -> list[Point]:
    return [(start + pace * number, first + number) for number in range(count)]


def forecast(points: list[Point], total: int = 1_000) -> FinishForecast:
    found = forecast_finish(points, total)
    assert isinstance(found, FinishForecast)
    return found


def test_even_steps_end_when_they_would_in_a_narrow_interval() -> None:
    found = forecast(steps(501))
    assert (found.done, found.total, found.at) == (500, 1_000, AT + 500.0)
    assert found.end.value == pytest.approx(AT + 1_000.0)
    assert found.end.high - found.end.value == pytest.approx(5.0)


def test_slow_first_step_and_order_of_points_change_nothing() -> None:
    warm = [(AT - 600.0, 0), *steps(500, first=1)]
    assert forecast(warm[::-1]).end.value == pytest.approx(AT + 999.0, abs=2.0)


def test_pauses_that_come_again_are_counted_ahead() -> None:
    points = [(at + 20.0 * (step // 100), step) for at, step in steps(500)]
    found = forecast(points)
    assert found.end.low <= AT + 1_200.0 <= found.end.high
    assert found.end.high - found.end.low < 200.0


def test_steps_done_again_after_a_restart_count_once() -> None:
    points = [*steps(300), *steps(201, start=AT + 400.0, first=200)]
    found = forecast(points)
    assert found.done == 400
    truth = AT + 600.0 + 600.0
    assert found.end.low <= truth <= found.end.high


def test_paces_that_change_make_the_interval_wide() -> None:
    slowing = [(AT + step + step**2 / 1_000.0, step) for step in range(500)]
    found, even = forecast(slowing), forecast(steps(500))
    since_the_start = AT + 1_000.0 * (slowing[-1][0] - AT) / slowing[-1][1]
    assert found.end.value > since_the_start + 50.0
    assert found.end.high - found.end.low > 10.0 * (even.end.high - even.end.low)


@pytest.mark.parametrize(
    "points", [[], steps(2), [(AT, 5)] * 9, [(AT, each) for each in range(9)], [(math.nan, 1)] * 5]
)
def test_too_few_times_are_said_not_guessed(points: list[Point]) -> None:
    assert forecast_finish(points, 1_000) is Lacking.TOO_FEW_STEPS


@pytest.mark.parametrize(("limit", "misses"), [(400.0, False), (900.0, True), (997.0, False), (1_100.0, False)])
def test_a_limit_is_missed_where_even_the_early_bound_is_behind(limit: float, misses: bool) -> None:
    found = forecast_finish(steps(501), 1_000, AT + limit)
    assert isinstance(found, FinishForecast)
    assert found.misses_limit is misses
    assert ("before that" in said_finish(found)) is misses
