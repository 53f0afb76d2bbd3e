"""When a job ends, by the times of its steps: as `trainguard plan` and the stack forecast it."""

from trainguard.core.timestamps import epoch_of
from trainguard.planning.document import FinishForecast, Lacking
from trainguard.planning.finish import Point, forecast_finish
from trainguard.report.document import JobSummary
from trainguard.report.training.document import TrainingReport


def points_of(training: TrainingReport | None) -> list[Point]:
    """Return when which step was done, of the series of a training with most times."""
    series = [] if training is None else training.series
    found = max(series, key=lambda each: len(set(each.at)), default=None)
    return [] if found is None or len(set(found.at)) < 2 else list(zip(found.at, found.steps, strict=True))


def forecast_of(
    job: JobSummary, training: TrainingReport | None, total: int, limit_s: float | None
) -> FinishForecast | Lacking:
    """Forecast the end of ``total`` steps; ``limit_s`` seconds after its start the job is ended."""
    points = points_of(training)
    if not points:
        return Lacking.TIMED_STEPS
    begin = points[0][0] if job.started_at is None else epoch_of(job.started_at)
    found = forecast_finish(points, total, None if limit_s is None else begin + limit_s)
    return Lacking.STEPS_LEFT if isinstance(found, FinishForecast) and found.done >= total else found
