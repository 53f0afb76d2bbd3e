"""Recomputes the facts of StepOutlier."""

import math

from tests.claims.context import Context, Expected, Fact, Recompute
from tests.claims.durations import usual_distance
from tests.claims.loading import busy
from tests.claims.slow_events import compared
from tests.claims.step_series import StepSeries, all_series, left_out, most_severe
from tests.claims.timelines import last_file_without


def _last_file(context: Context) -> float:
    """Return up to which files were read when the finding was made.

    Its time ends with the newest step that counts: one more was read, but not the one after that.
    """
    named = context.first("process") or {}
    key = ("last file of steps", named["node"], named["value"], named["to"], context.parameters.get("mode"))
    if key not in context.raw.cached:
        series = _of(named, all_series(context))
        events = context.raw.job.events[series.node, series.process]
        later = (e for e in events if e.name == series.mode and e.end > named["to"] + 1e-6)
        context.raw.cached[key] = last_file_without(sorted(later, key=lambda e: e.end_us)[1:])
    found: float = context.raw.cached[key]
    return found


def _judged(context: Context) -> list[StepSeries]:
    """Return the series of the job as they were when the finding was made."""
    named = context.first("process") or {}
    key = ("step series", named["node"], named["value"], named["to"])
    if key not in context.raw.cached:
        context.raw.cached[key] = all_series(context, _last_file(context))
    series: list[StepSeries] = context.raw.cached[key]
    return series


def _of(named: Fact, series: list[StepSeries]) -> StepSeries:
    """Return the series that a finding names; raises KeyError where there is none."""
    return {(each.node, each.label): each for each in series}[named["node"], named["value"]]


def _named(context: Context) -> StepSeries:
    return _of(context.first("process") or {}, _judged(context))


def _process(context: Context, fact: Fact) -> Expected:
    """Return the process and mode whose steps are most severe."""
    labels = [each.label for each in most_severe(context, _judged(context)) if each.node == fact["node"]]
    return str(fact["value"]) if fact["value"] in labels else ", ".join(labels)


def _stddev(context: Context) -> float:
    return float(context.parameters["stddev"])


def _apart(context: Context, fact: Fact) -> Expected:
    """Return at which distance the slow steps come."""
    del fact
    series = _named(context)
    limit = series.slow_above_us(_stddev(context))
    return usual_distance(
        [int(step.arguments.get("step_num", -1)) for step in series.counted if step.length_us > limit]
    )


def _grown(context: Context) -> tuple[str, float, float]:
    named = context.first("process") or {}
    return compared(context, named["node"], _last_file(context)).grown or ("none", math.nan, math.nan)


def _least_busy(context: Context, fact: Fact) -> Expected:
    """Return the mean of the named GPU; NaN where another GPU in use is less busy."""
    node = context.node(fact)
    means = {gpu: busy(node, gpu, fact) for gpu in node.used_gpus or node.gpus}
    named = means.get(fact["device"], math.nan)
    return named if named <= min(means.values(), default=math.nan) + 0.1 else math.nan


STEP_OUTLIER: dict[str, Recompute] = {
    "process": _process,
    "steps": lambda context, _: float(len(_named(context).counted)),
    "slow_steps": lambda context, _: float(_named(context).outliers(_stddev(context))),
    "outlier_above": lambda context, _: _named(context).outlier_from_us(_stddev(context)) / 1e6,
    "median_step": lambda context, _: _named(context).binned.median / 1e6,
    "slow_time_share": lambda context, _: _named(context).slow_share,
    "mean_utilization": _least_busy,
    "grown_event": lambda context, _: _grown(context)[0],
    "event_in_slow_steps": lambda context, _: _grown(context)[1],
    "event_in_other_steps": lambda context, _: _grown(context)[2],
    "steps_apart": _apart,
    "series_not_judged": lambda context, fact: float(left_out(context, fact["node"], _last_file(context))),
}
