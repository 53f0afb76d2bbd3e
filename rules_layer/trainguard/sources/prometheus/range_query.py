"""Samples of a range query: a bounded number of points at a time, and what an answer of PromQL looks like."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainguard.errors import ProfileSourceError
from trainguard.sources.json_api import JsonApi

MOST_POINTS = 10_000
"""Of a series in one answer: Prometheus itself refuses more than 11,000."""

MOST_SAMPLES = 20_000_000
_PATH = "api/v1/query_range"
_MOST_SERIES_OF_CLOUDWATCH = 500


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From ``start`` to ``end``, epoch seconds, each ``step`` seconds."""

    start: float
    end: float
    step: float


class Series(NamedTuple):
    """The labels of a series, and its samples: times in epoch seconds, and values."""

    labels: Mapping[str, str]
    samples: list[tuple[float, float]]


def range_query(api: JsonApi, expression: str, over: TimeRange) -> Iterator[Series]:
    """Ask for an expression over a time; a series comes once for each part of the time.

    Raises
    ------
    ProfileSourceError
        When the expression is refused, the answer is none of PromQL, or holds more than is read.
    PortUnavailableError
        When the service does not answer.
    """
    begin, taken = over.start, 0
    while begin <= over.end:
        last = min(begin + (MOST_POINTS - 1) * over.step, over.end)
        query = {"query": expression, "start": f"{begin:.3f}", "end": f"{last:.3f}", "step": f"{over.step:g}"}
        for each in _series(api.place, api.get(_PATH, query)):
            taken += len(each.samples)
            if taken > MOST_SAMPLES:
                raise ProfileSourceError(api.place, f"more than {MOST_SAMPLES:,} samples, expected one job")
            yield each
        begin = last + over.step


def _series(place: str, answer: Any) -> list[Series]:
    if not isinstance(answer, dict) or answer.get("status") != "success":
        said = answer.get("error", answer.get("status")) if isinstance(answer, dict) else type(answer).__name__
        raise ProfileSourceError(place, f"the answer is {said!r:.200}, expected success")
    data = answer.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list):
        raise ProfileSourceError(place, "the answer has no result, expected a matrix")
    if len(result) == _MOST_SERIES_OF_CLOUDWATCH and ".amazonaws.com" in place:
        raise ProfileSourceError(place, "500 series, the most that CloudWatch gives: add matchers for one job")
    return [_one(place, each) for each in result]


def _one(place: str, entry: Any) -> Series:
    if not isinstance(entry, dict) or not isinstance(entry.get("values"), list):
        raise ProfileSourceError(place, "a series has no values, expected a matrix")
    labels = entry.get("metric")
    names = {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}
    samples = []
    for pair in entry["values"]:
        try:
            at, value = float(pair[0]), float(pair[1])
        except (TypeError, ValueError, LookupError) as fault:
            raise ProfileSourceError(place, f"a sample is {pair!r:.80}, expected a time and a number") from fault
        if math.isfinite(at) and math.isfinite(value):
            samples.append((at, value))
    return Series(names, samples)
