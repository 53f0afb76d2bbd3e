"""Quiet hours: on the clock of their zone, over midnight, through changes of the clock, and one after another."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.job_policy import DAYS, QuietHours
from trainguard.stack.actions.alert import LONGEST_S, quiet_until

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def quiet(days: str, start: str, end: str) -> QuietHours:
    return QuietHours(days=tuple(days.split()), start=start, end=end, timezone="Europe/Berlin")


NIGHTS = quiet("mon tue wed thu fri", "22:00", "07:00")


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-18T21:59:59", None),
        ("2026-11-18T22:00:00", "2026-11-19T07:00:00"),
        ("2026-11-19T00:30:00", "2026-11-19T07:00:00"),
        ("2026-11-19T06:59:59", "2026-11-19T07:00:00"),
        ("2026-11-19T07:00:00", None),
        ("2026-11-21T03:00:00", "2026-11-21T07:00:00"),  # Saturday morning ends what began on Friday
        ("2026-11-21T23:00:00", None),
        ("2026-11-23T03:00:00", None),  # Monday morning: nothing began on Sunday
    ],
)
def test_quiet_night_includes_its_start_and_excludes_its_end(now: str, until: str | None) -> None:
    assert quiet_until([NIGHTS], at(now)) == (None if until is None else at(until))


def test_given_no_quiet_hours_when_asked_then_it_never_is() -> None:
    assert quiet_until([], at("2026-11-18T22:00:00")) is None


def test_equal_start_and_end_make_the_whole_day_quiet() -> None:
    sunday = quiet("sun", "00:00", "00:00")
    assert quiet_until([sunday], at("2026-11-22T12:00:00")) == at("2026-11-23T00:00:00")


def test_adjacent_quiet_hours_last_until_the_end_of_the_last() -> None:
    weekend = [quiet("fri", "18:00", "00:00"), quiet("sat sun", "00:00", "00:00"), quiet("mon", "00:00", "08:00")]
    assert quiet_until(weekend, at("2026-11-20T19:00:00")) == at("2026-11-23T08:00:00")


def test_endless_quiet_hours_delay_an_alert_by_a_week_at_most() -> None:
    always = quiet(" ".join(DAYS), "00:00", "00:00")
    now = at("2026-11-18T22:10:00")
    assert quiet_until([always], now) == now + LONGEST_S


@pytest.mark.parametrize(("night", "hours"), [("2026-03-28", 8), ("2026-10-24", 10), ("2026-11-18", 9)])
def test_quiet_night_with_a_dst_change_ends_by_local_time(night: str, hours: int) -> None:
    every = quiet(" ".join(DAYS), "22:00", "07:00")
    now = at(f"{night}T22:00:00")
    until = quiet_until([every], now)
    assert until is not None
    assert until - now == hours * 3_600.0


@given(
    start=st.times().map(lambda each: each.strftime("%H:%M")),
    end=st.times().map(lambda each: each.strftime("%H:%M")),
    days=st.sets(st.sampled_from(DAYS), min_size=1),
    minutes=st.integers(0, 20 * 24 * 60),
)
def test_quiet_hours_end_when_nothing_is_quiet_or_after_a_week(
    start: str, end: str, days: set[str], minutes: int
) -> None:
    hours = [QuietHours(days=tuple(days), start=start, end=end, timezone="Europe/Berlin")]
    now = (datetime(2026, 10, 15, tzinfo=BERLIN) + timedelta(minutes=minutes)).timestamp()
    until = quiet_until(hours, now)
    if until is not None:
        assert now < until <= now + LONGEST_S
        assert until == now + LONGEST_S or quiet_until(hours, until) is None
