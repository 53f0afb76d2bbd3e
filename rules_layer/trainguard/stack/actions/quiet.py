"""Quiet hours: until when an alert waits."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from trainguard.core.job_policy import DAYS, QuietHours

LONGEST_S = 7 * 86_400.0
"""No alert waits for longer, however the quiet hours follow on each other."""


def quiet_until(hours: Sequence[QuietHours], now: float) -> float | None:
    """Return the end of the joined quiet hours around ``now``, epoch seconds; None without any."""
    until = now
    while until - now < LONGEST_S:
        ends = [end for each in hours for start, end in _about(each, until) if start <= until < end]
        if not ends:
            break
        until = max(ends)
    return min(until, now + LONGEST_S) if until > now else None


def _about(hours: QuietHours, moment: float) -> Iterator[tuple[float, float]]:
    """Yield start and end of the quiet times that can cover a moment: that of its day, and that of the day before."""
    zone = ZoneInfo(hours.timezone)
    today = datetime.fromtimestamp(moment, UTC).astimezone(zone).date()
    start, end = time.fromisoformat(hours.start), time.fromisoformat(hours.end)
    for day in (today - timedelta(days=1), today):
        if DAYS[day.weekday()] in hours.days:
            last = day if end > start else day + timedelta(days=1)
            yield _epoch(day, start, zone), _epoch(last, end, zone)


def _epoch(day: date, clock: time, zone: ZoneInfo) -> float:
    return datetime.combine(day, clock, tzinfo=zone).timestamp()
