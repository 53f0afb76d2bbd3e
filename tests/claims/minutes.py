"""What each minute of a node brought: a minute is a file, and a point is complete once a later one has begun."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from tests.claims.context import Raw
from tests.claims.raw import Floats, Ints, Node
from tests.claims.work import CLOCK_S

POINT_SERIES = ("GPUUtilization", "CPUUtilization", "I/OWaitPercentage")


@dataclass(frozen=True, slots=True)
class Part:
    """The samples of a series in a minute: epoch seconds, and values, float64[N > 0] each."""

    times: Floats
    values: Floats


# By device.
Parts: TypeAlias = Mapping[str, Part]


@dataclass(frozen=True)
class Minute:
    """A file: ``rows`` are the places of the points that were complete with it; ``at`` is the time of the newest."""

    rows: Ints
    at: float
    series: Mapping[str, Parts]

    def of(self, metric: str) -> Parts:
        """Return a metric's samples by device."""
        return self.series.get(metric, {})

    @cached_property
    def further(self) -> set[str]:
        """The devices that have a sample beside those of points, and no instance of a device."""
        metrics = self.series.keys() - {*POINT_SERIES, "GPUMemoryUtilization"}
        return {device for metric in metrics for device in self.series[metric] if device and "." not in device}


def minutes_of(raw: Raw, node: Node, until: float = math.inf) -> list[Minute]:
    """Return a node's minutes whose newest complete point is of ``until``, epoch seconds, or before."""
    key = ("minutes", node.name)
    if key not in raw.cached:
        raw.cached[key] = _minutes(node)
    every: list[Minute] = raw.cached[key]
    return [minute for minute in every if minute.at <= until + CLOCK_S]


def _minutes(node: Node) -> list[Minute]:
    parts: dict[int, dict[str, dict[str, Part]]] = {}
    for (device, metric), series in node.series.items():
        for number in np.unique(series.files).tolist():
            mine = series.files == number
            parts.setdefault(number, {}).setdefault(metric, {})[device] = Part(series.times[mine], series.values[mine])
    last = max(parts) + 1
    times, complete = node.points.times, np.append(_first_files(node)[1:], last)
    found, at = [], -math.inf
    for number in sorted({*parts, last}):
        rows = np.flatnonzero(complete == number)
        at = max(at, float(times[rows[-1]])) if rows.size else at
        found.append(Minute(rows, at, parts.get(number, {})))
    return found


def _first_files(node: Node) -> Ints:
    """Return the file in which each point has its first sample."""
    times = node.points.times
    found = np.full(times.size, np.iinfo(np.int64).max)
    for metric in POINT_SERIES:
        for series in node.of(metric).values():
            np.minimum.at(found, np.searchsorted(times, series.times, side="right") - 1, series.files)
    return found
