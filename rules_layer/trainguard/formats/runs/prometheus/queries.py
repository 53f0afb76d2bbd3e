"""The query API of Prometheus: series over a time."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainguard.core.errors import ProfileSourceError
from trainguard.formats.runs.run import JsonApi

# Prometheus itself refuses more than 11,000 of a series.
MOST_POINTS = 10_000

MOST_SAMPLES = 20_000_000
_PATH = "api/v1/query_range"
_MOST_SERIES_OF_CLOUDWATCH = 500


@dataclass(frozen=True, slots=True)
class QueryRange:
    start: float
    end: float
    step: float


# Times in epoch seconds, and values.
Samples = list[tuple[float, float]]

# The labels of a series, and its samples.
Series = tuple[Mapping[str, str], Samples]


def range_query(api: JsonApi, expression: str, over: QueryRange) -> Iterator[Series]:
    """Ask for an expression over a time; a series comes once for each part of it. Raises as `JsonApi.get`."""
    begin, taken = over.start, 0
    while begin <= over.end:
        last = min(begin + (MOST_POINTS - 1) * over.step, over.end)
        query = {"query": expression, "start": f"{begin:.3f}", "end": f"{last:.3f}", "step": f"{over.step:g}"}
        for each in _series(api.place, api.get(_PATH, query)):
            taken += len(each[1])
            if taken > MOST_SAMPLES:
                raise ProfileSourceError(api.place, f"more than {MOST_SAMPLES:,} samples, expected one job")
            yield each
        begin = last + over.step


def _series(place: str, answer: Any) -> list[Series]:
    if not isinstance(answer, dict) or answer.get("status") != "success":
        message = answer.get("error", answer.get("status")) if isinstance(answer, dict) else type(answer).__name__
        raise ProfileSourceError(place, f"the answer is {message!r:.200}, expected success")
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
        except (TypeError, ValueError, LookupError, OverflowError) as fault:
            raise ProfileSourceError(place, f"a sample is {pair!r:.80}, expected a time and a number") from fault
        if math.isfinite(at) and math.isfinite(value):
            samples.append((at, value))
    return names, samples
