"""The ceiling on stops: how many within an hour, whatever jobs and rules ask for them.

A rule that errs, or a bucket whose profiles are all wrong, must not stop everything that trains in an account.
"""

from collections.abc import Mapping
from dataclasses import dataclass

HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop that was granted: of which job, as `StopCase.identity` names it, and when (epoch seconds)."""

    job: str
    at: float


def admit(stops: Mapping[str, Stop], fire_id: str, job: str, *, now: float, limit: int) -> dict[str, Stop] | None:
    """Return the stops of the last hour with that of a fire among them; None when ``limit`` leaves no room for it.

    A job is counted once: several rules often fire on it within the same minute, and each asks.

    Parameters
    ----------
    stops : Mapping
        The stops granted so far, by fire.
    fire_id : str
    job : str
        Names one job of all that were ever created, in any account and Region.
    now : float
        Epoch seconds; what was granted an hour ago or longer no longer counts.
    limit : int
        How many stops an hour may have.
    """
    recent = {each: stop for each, stop in stops.items() if now - stop.at < HOUR_S}
    is_counted = fire_id in recent or any(stop.job == job for stop in recent.values())
    if len(recent) + (not is_counted) > limit:
        return None
    return recent if is_counted else {**recent, fire_id: Stop(job, now)}
