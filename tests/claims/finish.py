"""Holds the forecast of a job's end against the times of its steps, as docs/plan.md defines it."""

import re
from collections.abc import Iterator
from typing import Any

from tests.claims.claim import Untrue
from tests.claims.times import epoch

WHERE = "finish"
_SAID = re.compile(
    r"([\d,]+) of ([\d,]+) steps .* were done at (\S+)\. .* forecast for (\S+), with 80 % from (\S+) to (\S+)\."
)
_LIMIT = re.compile(r"time limit (?:ends it|is|was) at (\S+?)[,.]? ")
WITHIN_S = 1.0


def finish_claims(
    report: dict[str, Any], total: int | None, limit_s: float | None, sentence: str | None
) -> Iterator[Untrue | None]:
    """Yield what is untrue of when the job will end; ``total`` and ``limit_s`` are what its owner wrote."""
    said, steps = report["finish"], _steps(report)
    runs = report["job"]["status"] not in {"Completed", "Failed", "Stopped"}
    may_be_said = runs and len(steps) >= 3 and max(steps.values()) < (total or 0)
    if said is None or not may_be_said or total is None:
        yield None if (said is None) is not may_be_said else Untrue(WHERE, str(said), "nothing can be known")
        return
    done, at = max(steps.values()), max(steps)
    yield _same("done", said["done"], done)
    yield _same("total", said["total"], total)
    yield _same("at", said["at"], at)
    end = at + (total - done) * _pace(steps)
    yield _same("end", said["end"]["value"], end)
    low, high = said["end"]["low"], said["end"]["high"]
    yield None if at <= low <= end <= high else Untrue(WHERE, f"from {low} to {high}", f"the end is {end}")
    started = report["job"]["started_at"]
    limit = None if limit_s is None else limit_s + (min(steps) if started is None else epoch(started))
    yield None if (limit is None) is (said["limit_at"] is None) else Untrue(WHERE, "a limit", str(limit))
    if limit is not None:
        yield _same("limit_at", said["limit_at"], limit)
    yield from _of_sentence(said, sentence)


def _of_sentence(said: dict[str, Any], sentence: str | None) -> Iterator[Untrue | None]:
    match = _SAID.match(sentence or "")
    if match is None:
        yield Untrue(WHERE, str(sentence), "it says no end")
        return
    numbers = [int(each.replace(",", "")) for each in match.groups()[:2]]
    times = [epoch(each) for each in match.groups()[2:]]
    yield from map(_same, ("done", "total"), numbers, (said["done"], said["total"]))
    end = said["end"]
    yield from map(_same, ("at", "end", "low", "high"), times, (said["at"], end["value"], end["low"], end["high"]))
    limit = _LIMIT.search(f"{sentence} ")
    yield None if (limit is None) is (said["limit_at"] is None) else Untrue(WHERE, str(sentence), "its limit")


def _steps(report: dict[str, Any]) -> dict[float, int]:
    """Return by time the highest step until then, of the series with most times."""
    series = (report["training"] or {"series": []})["series"]
    best: dict[str, Any] = max(series, key=lambda each: len(set(each["at"])), default={"at": [], "steps": []})
    if len(set(best["at"])) < 2:
        return {}
    reached: dict[float, int] = {}
    highest = -1
    for at, step in sorted(zip(best["at"], best["steps"], strict=True)):
        if step > highest and at not in reached:
            reached[at] = highest = step
    return reached


def _pace(steps: dict[float, int]) -> float:
    """Return the mean of the seconds a step since the first tenth of the steps, and since half of the rest."""
    first, done = min(steps.values()), max(steps.values())
    warm = {at: step for at, step in steps.items() if step >= first + 0.1 * (done - first)}
    if len(warm) < 2:
        warm = dict(sorted(steps.items())[-2:])
    begin = min(warm.values())
    half = max(step for step in warm.values() if step <= (begin + done) / 2.0 and step < done)
    when, at = {step: time for time, step in warm.items()}, max(warm)
    return sum((at - when[step]) / (done - step) for step in (begin, half)) / 2.0


def _same(name: str, given: float, truth: float) -> Untrue | None:
    within = 0.0 if name in {"done", "total"} else WITHIN_S
    return None if abs(given - truth) <= within else Untrue(WHERE, f"{name} = {given}", f"it is {truth}")
