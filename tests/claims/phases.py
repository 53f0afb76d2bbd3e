"""Recomputes which phase of a framework's events takes more of the time in minutes with bottlenecks."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.claims.bottleneck import WINDOW_MINUTES, waits_of
from tests.claims.context import Context, Expected, Fact, Raw, Recompute
from tests.claims.raw import Event
from tests.claims.timelines import files_of, own_times

_MINUTE_US = 60_000_000
_TOLD_APART, _COMPARED = 8, 16
_OTHERS = "other"


@dataclass
class _Minute:
    """What a node's processes did in a minute: how many had events, and microseconds by phase, the largest eight."""

    processes: set[str] = field(default_factory=set)
    times: Counter[str] = field(default_factory=Counter)

    def add(self, process: str, times: Counter[str]) -> None:
        """Add what a file has of a process in it: what is not among the largest then is one sum."""
        self.processes.add(process)
        others = self.times.pop(_OTHERS, 0) + times.pop(_OTHERS, 0)
        ordered = sorted((self.times + times).items(), key=lambda item: (-item[1], item[0]))
        self.times = Counter(dict(ordered[:_TOLD_APART]))
        self.times[_OTHERS] = others + sum(time for _, time in ordered[_TOLD_APART:])


def _minutes_of(raw: Raw, node: str) -> dict[int, _Minute]:
    """Return the newest 30 minutes of a node's events."""
    key = ("phases", node)
    if key not in raw.cached:
        found: dict[int, _Minute] = defaultdict(_Minute)
        for process, events in files_of(raw.job, node):
            if all(each.phase == "DataLoaderWorker" for each in events):
                continue  # a worker of a loader, beside the training processes
            for minute, times in _by_minute(events).items():
                found[minute].add(process, times)
        raw.cached[key] = {minute: each for minute, each in found.items() if minute > max(found) - WINDOW_MINUTES}
    minutes: dict[int, _Minute] = raw.cached[key]
    return minutes


def _by_minute(events: list[Event]) -> dict[int, Counter[str]]:
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for each, own in zip(events, own_times(events), strict=True):
        for minute in range(each.start_us // _MINUTE_US, (each.end_us - 1) // _MINUTE_US + 1):
            start, end = max(each.start_us, minute * _MINUTE_US), min(each.end_us, (minute + 1) * _MINUTE_US)
            found[minute][each.phase] += round((end - start) * own / each.length_us)
    return found


@dataclass(frozen=True)
class _Sides:
    """The shares of the processes' time that phases took, percent: in minutes with bottlenecks, and in the others."""

    hit: dict[str, float]
    clean: dict[str, float]

    @property
    def grown(self) -> Iterator[str]:
        """The phases whose share is larger in minutes with bottlenecks, among those that differ most."""
        growth = {name: self.hit.get(name, 0.0) - self.clean.get(name, 0.0) for name in {*self.hit, *self.clean}}
        ordered = sorted(growth, key=lambda name: (-abs(growth[name]), name))[:_COMPARED]
        return (name for name in ordered if growth[name] > 0.0 and name != _OTHERS)


def _sides(context: Context) -> _Sides:
    """Compare the minutes of the newest 30 in which the node had samples that count, and events."""
    share = context.first("share_of_samples") or {}
    waits, minutes = waits_of(context, share), _minutes_of(context.raw, context.node(share).name)
    hit, clean = list[_Minute](), list[_Minute]()
    judged = waits.minutes[waits.judged].astype(int)
    for minute in np.unique(judged).tolist():
        if minute > judged.max() - WINDOW_MINUTES and minute in minutes:
            rows = waits.judged & (waits.minutes == minute)
            is_hit = 2 * int((waits.hits & rows).sum()) >= int(rows.sum())
            (hit if is_hit else clean).append(minutes[minute])
    return _Sides(_shares(hit), _shares(clean))


def _shares(minutes: list[_Minute]) -> dict[str, float]:
    times = sum((each.times for each in minutes), Counter[str]())
    available = _MINUTE_US * sum(len(each.processes) for each in minutes)
    return {name: 100.0 * time / available for name, time in times.items()}


def _phase(context: Context, fact: Fact) -> Expected:
    del fact
    return next(_sides(context).grown, "none")


def _time(*, hit: bool) -> Recompute:
    def recompute(context: Context, fact: Fact) -> Expected:
        del fact
        named, sides = context.first("grown_phase"), _sides(context)
        return (sides.hit if hit else sides.clean).get(str(named["value"]), 0.0) if named else math.nan

    return recompute


FACTS: dict[str, Recompute] = {
    "grown_phase": _phase,
    "phase_time_with": _time(hit=True),
    "phase_time_without": _time(hit=False),
}
