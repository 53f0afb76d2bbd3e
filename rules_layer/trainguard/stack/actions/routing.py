"""Whether an alert is sent, and when; a stop is notified at once, and a warning that comes too late stops nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from trainguard.core.brakes import Brake
from trainguard.core.finding import Severity
from trainguard.core.job_policy import DAYS, QuietHours
from trainguard.core.records import AlertKind
from trainguard.core.timestamps import epoch_of
from trainguard.stack.actions.request import AlertRequest

# No alert waits for longer, however the quiet hours follow on each other.
LONGEST_S = 7 * 86_400.0


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


STAGED = "staged: nobody paged"
MUTED = "muted: no alert sent"
LATE = "too late to warn: no alert sent"

# At least this share of a grace time must lie between the warning and the stop.
WARNED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Routing:
    """``withheld`` says why no alert is sent, ``wait_until`` (epoch seconds) when; with neither at once.

    ``brake`` is the one that silences it.
    """

    withheld: str | None = None
    wait_until: float | None = None
    brake: Brake | None = None


def silenced(brake: Brake) -> Routing:
    return Routing(withheld=f"silenced by {brake.words}: no alert sent", brake=brake)


def route(request: AlertRequest, *, now: float, brake: Brake | None = None) -> Routing:
    """Decide on an alert at ``now``, epoch seconds; ``brake`` is in force on its job and rule."""
    entry, alerts = request.fire.entry, request.fire.policy.alerts
    is_finding = entry.kind is not AlertKind.NOTICE
    if is_finding and alerts.is_staged(entry.finding.rule):
        return Routing(withheld=STAGED)
    stop_at, grace_s = request.decision.stop_at, request.fire.policy.stops.grace_s
    # A warning may have waited so long, for a function to be free, that little of the grace time is left.
    is_late = stop_at is not None and epoch_of(stop_at) - now < WARNED_SHARE * grace_s
    if entry.kind is AlertKind.WARNING and is_late:
        return Routing(withheld=LATE)
    if request.is_about_a_stop:
        return Routing()
    if brake is not None:
        return silenced(brake)
    if is_finding and alerts.is_muted(entry.finding.rule):
        return Routing(withheld=MUTED)
    is_urgent = entry.finding.severity == Severity.CRITICAL and entry.kind is not AlertKind.CLEARED
    return Routing(wait_until=None if is_urgent else quiet_until(alerts.quiet_hours, now))
