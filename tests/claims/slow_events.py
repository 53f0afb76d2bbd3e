"""Which events take more of the time of slow steps than of the others, as docs/rules/StepOutlier.md defines it."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.claims.context import Context
from tests.claims.raw import Event
from tests.claims.step_series import LEFT_OUT, StepSeries, is_wanted
from tests.claims.timelines import files_of, is_operator, own_times

KEPT_NAMES, COMPARED = 64, 16

Spans = list[tuple[int, int]]


@dataclass
class Compared:
    """Time of a node's slow and other steps, microseconds, and of the events in them by name."""

    slow_us: int = 0
    other_us: int = 0
    in_slow: Counter[str] = field(default_factory=Counter)
    in_others: Counter[str] = field(default_factory=Counter)

    def shares(self) -> list[tuple[str, float, float]]:
        """Return the names whose shares of the time differ most, with the shares: of slow steps, and of the others."""
        if not self.slow_us or not self.other_us:
            return []
        names = sorted({*self.in_slow, *self.in_others})
        rows = [(name, self.in_slow[name] / self.slow_us, self.in_others[name] / self.other_us) for name in names]
        return sorted(rows, key=lambda row: -abs(row[1] - row[2]))[:COMPARED]

    @property
    def grown(self) -> tuple[str, float, float] | None:
        """The name whose share grows most in slow steps."""
        return next((row for row in self.shares() if row[1] > row[2]), None)


def compared(context: Context, node: str, last_file: float) -> Compared:
    """Return what goes with the slow steps of a node: a step is slow by the steps of its file and those before it."""
    key = ("slow events", node, last_file)
    if key not in context.raw.cached:
        context.raw.cached[key] = _compared(context, node, last_file)
    found: Compared = context.raw.cached[key]
    return found


def _compared(context: Context, node: str, last_file: float) -> Compared:
    found, steps = Compared(), dict[tuple[str, str], list[Event]]()
    for process, events in files_of(context.raw.job, node, last_file):
        modes = sorted({each.name for each in events if is_wanted(each.name, context.parameters.get("mode"))})
        for mode in modes:
            before = steps.setdefault((process, mode), [])
            new = [each for each in events if each.name == mode]
            chosen = new[max(LEFT_OUT - len(before), 0) :]
            before += new
            known = StepSeries(node, process, mode, before[LEFT_OUT:-1])
            if len(known.counted) > LEFT_OUT and chosen:
                _add(found, chosen, known.slow_above_us(context.parameters["stddev"]), events)
    return found


def _add(found: Compared, steps: list[Event], above_us: float, events: Sequence[Event]) -> None:
    spans = list(_disjoint(steps))
    slow = [span for step, span in zip(steps, spans, strict=True) if step.length_us > above_us]
    others = [span for step, span in zip(steps, spans, strict=True) if step.length_us <= above_us]
    found.slow_us += sum(end - start for start, end in slow)
    found.other_us += sum(end - start for start, end in others)
    found.in_slow = _most(found.in_slow + _times(slow, events))
    found.in_others = _most(found.in_others + _times(others, events))


def _disjoint(steps: Iterable[Event]) -> Iterator[tuple[int, int]]:
    """Yield from when to when each step ran alone: what overlaps is the earlier one's."""
    reached = -math.inf
    for step in steps:
        start = min(max(step.start_us, reached), max(step.end_us, reached))
        reached = max(step.end_us, reached)
        yield int(start), int(reached)


def _times(spans: Spans, events: Sequence[Event]) -> Counter[str]:
    """Return how long events ran within spans, by name or phase: of what is nested, the innermost."""
    times: Counter[str] = Counter()
    if not spans:
        return times
    ends = np.array([end for _, end in spans])
    for each, own in zip(events, own_times(events), strict=True):
        if "Step" in each.phase and not is_operator(each.phase):
            continue
        inside = 0
        for start, end in spans[int(np.searchsorted(ends, each.start_us, side="right")) :]:
            if start >= each.end_us:
                break
            inside += min(end, each.end_us) - max(start, each.start_us)
        time = round(inside * own / max(each.length_us, 1))
        if time:
            times[each.name if is_operator(each.phase) else each.phase] += time
    return times


def _most(times: Counter[str]) -> Counter[str]:
    """Return the names with the most time: more are not distinguished."""
    return Counter(dict(sorted(times.items(), key=lambda item: (-item[1], item[0]))[:KEPT_NAMES]))
