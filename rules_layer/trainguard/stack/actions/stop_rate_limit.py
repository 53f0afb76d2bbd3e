"""The rate limit of stops within an hour: a rule that errs must not stop everything that trains in an account."""

from collections.abc import Mapping
from dataclasses import dataclass

HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Stop:
    """A granted stop: of which `StopCase.identity`, and when (epoch seconds)."""

    job: str
    at: float


def take(stops: Mapping[str, Stop], fire_id: str, job: str, *, now: float, limit: int) -> dict[str, Stop] | None:
    """Return the last hour's stops with this one, a job counted once; None when ``limit`` leaves no room for it."""
    recent = {each: stop for each, stop in stops.items() if now - stop.at < HOUR_S}
    is_counted = fire_id in recent or any(stop.job == job for stop in recent.values())
    if len(recent) + (not is_counted) > limit:
        return None
    return recent if is_counted else {**recent, fire_id: Stop(job, now)}
