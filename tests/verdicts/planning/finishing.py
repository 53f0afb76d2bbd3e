"""How far forecasts of the end are from it, at a part of the runs' time: of MLPerf's runs and of recorded ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tests.verdicts.planning.scaling import published
from trainguard.core.records import JobRecord
from trainguard.engine.streams.job_streams import StepProgress
from trainguard.engine.summary import outlook
from trainguard.planning.document import Lacking
from trainguard.planning.finish import Point, forecast_finish

# Of runs with fewer times too little can be said before their end.
FEWEST = 12


@dataclass(frozen=True, slots=True)
class Run:
    """A run's steps with their times since its start, seconds; the last one is its end."""

    name: str
    points: Sequence[Point]


@cache
def runs() -> list[Run]:
    """Return the runs of MLPerf Training: steps are parts of 100,000 of all samples."""
    return [
        Run(f"{each['benchmark']} {each['system']}", [(at, step) for at, step in each["points"]])
        for each in published()["runs"]
    ]


def logged() -> list[Run]:
    return [run for run in runs() if len(run.points) >= FEWEST]


@dataclass(frozen=True, slots=True)
class Forecast:
    """``error`` and ``half`` are by the run's time; both None where there are too few steps."""

    run: Run
    error: float | None
    held: bool = False
    half: float | None = None


def forecasts(found: Sequence[Run], part: float) -> Iterator[Forecast]:
    for run in found:
        end, total = run.points[-1]
        made = forecast_finish([point for point in run.points if point[0] <= part * end], total)
        if isinstance(made, Lacking):
            yield Forecast(run, None)
            continue
        held = made.end.low <= end <= made.end.high
        yield Forecast(run, (made.end.value - end) / end, held, (made.end.high - made.end.low) / 2.0 / end)


def warned_at(run: Run, limit: float) -> float | None:
    """Return at which part of the run's time the stack would warn of a limit, a part of it too; None of no warning."""
    end, total = run.points[-1]
    job = JobRecord("j", "arn:j", "b", "", time_limit_s=limit * end, total_steps=total)
    progress = StepProgress()
    for at, step in run.points:
        if at > limit * end:
            break
        found = outlook(job, progress, (at, step), 0.0)
        if found is not None and found[1]:
            return at / end
    return None
