"""Forecasts the end of a running job of known length, and notifies once of a time limit that it will miss.

A false warning costs trust, so the early bound of the forecast must be behind the limit at three further parts of the
steps, and a fifth of them be done: ``python -m tests.verdicts.planning`` counts false and missed warnings.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.core.finding import Fact, Finding, Severity
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry
from trainguard.engine.streams.job_streams import Progress
from trainguard.planning.document import FinishForecast, Lacking
from trainguard.planning.finish import Point, forecast_finish
from trainguard.planning.text import said_finish

# Stands where a rule's name would.
TIME_LIMIT = "TimeLimit"
LEAST_DONE = 0.2
HELD = 3

_ADVICE = (
    "Save a checkpoint before the limit, and raise it or train fewer steps: a job that reaches its limit is ended, and "
    "what it did since the last checkpoint is lost. `trainguard plan` says what more nodes would take."
)


@dataclass(frozen=True, slots=True)
class Outlook:
    """A new forecast in words, and a warning where it is due."""

    words: str
    warnings: Sequence[OutboxEntry] = ()


def outlook(job: JobRecord, progress: Progress, newest: Point | None, started_at: float | None) -> Outlook | None:
    """Take the newest step into ``progress``; return a new forecast, None where nothing is new or known."""
    total, limit_s = job.total_steps, job.time_limit_s
    if total is None or newest is None or job.closing or not progress.add(newest, total):
        return None
    limit_at = None if limit_s is None or started_at is None else started_at + limit_s
    forecast = forecast_finish(progress.points, total, limit_at)
    if isinstance(forecast, Lacking) or forecast.done >= total:
        return None
    is_missed = forecast.misses_limit and forecast.done >= LEAST_DONE * total
    progress.misses = progress.misses + 1 if is_missed else 0
    if progress.misses < HELD or progress.warned:
        return Outlook(said_finish(forecast))
    progress.warned = True
    return Outlook(said_finish(forecast), [_warning(job, forecast)])


def _warning(job: JobRecord, forecast: FinishForecast) -> OutboxEntry:
    times = {"forecast": forecast.end.value, "forecast_low": forecast.end.low, "forecast_high": forecast.end.high}
    facts = [
        Fact(name=name, value=at, unit="time") for name, at in (*times.items(), ("limit", forecast.limit_at or 0.0))
    ]
    return OutboxEntry(
        fire_id=hashlib.sha256(repr((job.arn, TIME_LIMIT)).encode()).hexdigest()[:20],
        episode=0,
        enqueued_at=forecast.at,
        finding=Finding(
            rule=TIME_LIMIT,
            node=None,
            reason=said_finish(forecast),
            severity=Severity.HIGH,
            advice=_ADVICE,
            facts=(*facts, Fact(name="done", value=forecast.done), Fact(name="total", value=forecast.total)),
        ),
        kind=AlertKind.DEADLINE,
    )
