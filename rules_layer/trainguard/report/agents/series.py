"""Series of a job for agents: a few lines of a few points each."""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Literal, get_args

from trainguard.report.agents.foreign import foreign
from trainguard.report.document import Report
from trainguard.report.timeline.series import Band, Timelines, Values, bands_of

Quantity = Literal[
    "gpu_utilization", "gpu_memory_activity", "cpu", "io_wait", "host_memory", "network", "step_s", "loss", "metric"
]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)

MOST_POINTS = 60
_MOST_LINES = 4
_UNITS = {"network": "bytes_s", "step_s": "s", "loss": "", "metric": ""}
_OF_TRAINING = frozenset({"loss", "metric"})


def series_answer(report: Report, quantity: Quantity, *, points: int = 20, first: int = 0) -> dict[str, Any]:
    """Return four lines of a quantity from the ``first`` on, each of at most ``points`` points.

    A point is the mean of its part of the time; a line of training is over steps, any other over time.
    """
    points = max(2, min(points, MOST_POINTS))
    lines = list(_lines(report, quantity, points))
    held = sorted(name for name in QUANTITIES if next(_lines(report, name, 2), None) is not None)
    return {
        "job": foreign(report.job.name),
        "quantity": quantity,
        "unit": _UNITS.get(quantity, "pct"),
        "lines": lines[first : first + _MOST_LINES],
        "lines_left_out": max(len(lines) - first - _MOST_LINES, 0),
        **({} if lines else {"quantities": held}),
    }


def _lines(report: Report, quantity: Quantity, points: int) -> Iterator[dict[str, Any]]:
    return (_training if quantity in _OF_TRAINING else _timed)(report, quantity, points)


def _training(report: Report, quantity: Quantity, points: int) -> Iterator[dict[str, Any]]:
    for each in [] if report.training is None else report.training.series:
        if each.kind == quantity:
            steps = [part[0] for part in _parts(each.steps, points)]
            line = {"name": foreign(each.name), "mode": foreign(each.mode), "steps": steps}
            yield {**line, "mean": _joined(each.mean, points, fmean), "undefined_values": sum(each.undefined)}


def _timed(report: Report, quantity: Quantity, points: int) -> Iterator[dict[str, Any]]:
    held = report.timelines
    if held is None:
        return
    axis = {"start_epoch_s": held.axis.start, "point_s": held.axis.bucket_s * _width(held.axis.buckets, points)}
    for where, band in _bands(held, quantity):
        low = {} if band.low is None else {"low": _joined(band.low, points, min)}
        high = {} if band.high is None else {"high": _joined(band.high, points, max)}
        yield {**where, **axis, "mean": _joined(band.mean, points, fmean), **low, **high}


def _bands(held: Timelines, quantity: Quantity) -> Iterator[tuple[dict[str, Any], Band]]:
    if quantity == "step_s":
        for each in held.steps:
            where = {"node": foreign(each.node), "process": foreign(each.process), "mode": foreign(each.mode)}
            yield where, Band(mean=each.mean_s, low=each.low_s, high=each.high_s)
        return
    for node in held.nodes:
        for gpu, name, band in bands_of(node):
            if name == quantity.removesuffix("_activity"):
                yield {"node": foreign(node.node), **({} if gpu is None else {"gpu": foreign(gpu)})}, band


def _width(count: int, points: int) -> int:
    return max(1, math.ceil(count / points))


def _parts(values: Sequence[Any], points: int) -> Iterator[Sequence[Any]]:
    width = _width(len(values), points)
    return (values[at : at + width] for at in range(0, len(values), width))


def _joined(values: Values, points: int, of: Any) -> Values:
    parts = ([value for value in part if value is not None] for part in _parts(values, points))
    return [float(f"{of(part):.4g}") if part else None for part in parts]
