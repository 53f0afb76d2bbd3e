"""Time spent in framework events, by phase and name, the shares of it that reports give, and what correlates.

The first match of a phase's name decides: it contains "cpu" (any case), "gpu", "Step", is one of the two sub-module
phases, or else Horovod where the event's file type is empty.

Kept defects of correlation: each query adds an event's full duration; operators include their children; the labels of
``ratio`` are swapped.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray, IntArray
from trainguard.managed.framework_stream import FrameworkWindow

SMALLEST_SHARE_PERCENT = 2.0
_SMALL_PART = 0.02

Sums = dict[str, float]


class Kind(IntEnum):
    CPU = 0
    GPU = 1
    STEP = 2
    FORWARD = 3
    BACKWARD = 4
    GENERAL = 5
    HOROVOD = 6


_OPERATORS = (Kind.CPU, Kind.GPU)
_BY_PHASE = (Kind.STEP, Kind.GENERAL)


@lru_cache(maxsize=4_096)
def kind_of(phase: str) -> Kind:
    """Return what an event of a phase is, Horovod apart."""
    lowered = phase.lower()
    if "cpu" in lowered:
        return Kind.CPU
    if "gpu" in lowered:
        return Kind.GPU
    if "Step" in phase:
        return Kind.STEP
    exact = {"Forward-SubModuleInternal": Kind.FORWARD, "Backward-SubModuleInternal": Kind.BACKWARD}
    return exact.get(phase, Kind.GENERAL)


def kinds_of(window: FrameworkWindow) -> IntArray:
    """Return the kind of each of the window's N events, int64[N]."""
    kinds = np.array([kind_of(phase) for phase in window.words.phases], dtype=np.int64)
    found = kinds[window.phases] if len(window) else window.phases
    return np.where(window.horovod & (found == Kind.GENERAL), int(Kind.HOROVOD), found)


@dataclass(slots=True)
class FrameworkTime:
    """Sums in microseconds, with keys in the order in which events were met.

    ``operators`` of CPU and GPU are by phase, then by name; ``sums`` of the other kinds by phase or by name.
    """

    operators: dict[Kind, dict[str, Sums]] = field(default_factory=lambda: {kind: {} for kind in _OPERATORS})
    sums: dict[Kind, Sums] = field(default_factory=lambda: {kind: {} for kind in Kind if kind not in _OPERATORS})

    def add(self, window: FrameworkWindow, kinds: IntArray, rows: IntArray, times: IntArray) -> None:
        """Add events ``rows`` (int64[n], in the order in which they are met), each ``times`` (int64[n]) over."""
        for kind in Kind:
            at = np.flatnonzero(kinds[rows] == kind)
            if at.size:
                self._add(window, kind, rows[at], times[at])

    def _add(self, window: FrameworkWindow, kind: Kind, rows: IntArray, times: IntArray) -> None:
        lasted = window.durations[rows] if kind is Kind.GENERAL else window.ends[rows] - window.starts[rows]
        phases, names = window.phases[rows], window.names[rows]
        if kind in _OPERATORS:
            keys = phases * len(window.words.names) + names
        else:
            keys = phases if kind in _BY_PHASE else names
        _, first, group = np.unique(keys, return_index=True, return_inverse=True)
        amounts = np.bincount(group, weights=lasted * times)
        for place in np.argsort(first).tolist():
            row = first[place]
            phase, name = window.words.phases[phases[row]], window.words.names[names[row]]
            if kind in _OPERATORS:
                sums, key = self.operators[kind].setdefault(phase, {}), name
            else:
                sums, key = self.sums[kind], phase if kind in _BY_PHASE else name
            sums[key] = sums.get(key, 0.0) + float(amounts[place])

    def report_keys(self) -> list[str]:
        """Return the report's keys that there are sums for, in its order."""
        keys = ["ratio"]
        keys += ["CPU", "CPU_total"] if self.operators[Kind.CPU] else []
        keys += ["GPU", "GPU_total"] if self.operators[Kind.GPU] else []
        keys += ["phase", "phase_time"]
        keys += ["general"] if self.sums[Kind.GENERAL] else []
        keys += ["forward_backward"] if self.sums[Kind.FORWARD] and self.sums[Kind.BACKWARD] else []
        keys += ["horovod"] if self.sums[Kind.HOROVOD] else []
        return keys

    def shares(self, *, labels_swapped: bool) -> dict[str, Any]:
        """Return all of the report's keys; ``labels_swapped`` gives CPU phases the GPU phases' ratios."""
        cpu, gpu = self.operators[Kind.CPU], self.operators[Kind.GPU]
        cpu_percent, cpu_total = _operator_shares(cpu)
        gpu_percent, gpu_total = _operator_shares(gpu)
        forward, backward = (sum(self.sums[kind].values()) for kind in (Kind.FORWARD, Kind.BACKWARD))
        totals = [sum(names.values()) for names in (*gpu.values(), *cpu.values())]
        horovod = self.sums[Kind.HOROVOD]
        total = sum(horovod.values())
        labels = [*cpu, *gpu] if labels_swapped else [*gpu, *cpu]
        return {
            "ratio": dict(zip(labels, _percent(totals), strict=True)),
            "CPU": cpu_percent,
            "CPU_total": cpu_total,
            "GPU": gpu_percent,
            "GPU_total": gpu_total,
            "phase": _percentages(self.sums[Kind.STEP]),
            "phase_time": {},
            "general": _percentages(self.sums[Kind.GENERAL]),
            "forward_backward": _percentages({"Forward pass": forward, "Backward pass": backward}),
            "horovod": _percentages({name: of for name, of in horovod.items() if of > 0 and of / total > _SMALL_PART}),
        }


def whole(number: float) -> float:
    """Return an int where the number is one: times are whole microseconds unless a trace has fractions."""
    return int(number) if float(number).is_integer() else float(number)


def _percent(numbers: list[float]) -> list[float]:
    """Return shares in percent; 0 of nothing, where the original divides by zero."""
    total = sum(numbers)
    return [number / total * 100.0 if total else 0.0 for number in numbers]


def _percentages(sums: Sums) -> Sums:
    return dict(zip(sums, _percent(list(sums.values())), strict=True))


def _operator_shares(operators: dict[str, Sums]) -> tuple[Sums, Sums]:
    """Sum operators over phases, leave out those of 2 % and less, rescale the rest; percent, and microseconds."""
    totals: Sums = {}
    for names in operators.values():
        for name, amount in names.items():
            totals[name] = totals.get(name, 0.0) + amount
    percent = {name: share for name, share in _percentages(totals).items() if share > SMALLEST_SHARE_PERCENT}
    return _percentages(percent), {name: whole(totals[name]) for name in percent}


class ManagedCorrelation:
    """Time of the events that queries selected, over the whole job.

    ``Details`` show what the last query wrote, so queries only reserve the keys that they would write first, and
    ``write`` fills them in.
    """

    def __init__(self) -> None:
        self._time = FrameworkTime()
        self._asked = False

    def ask(
        self, window: FrameworkWindow, begins: FloatArray, ends: FloatArray, details: dict[str, Any], *, strict: bool
    ) -> None:
        """Query for the events that overlap each interval, epoch microseconds, float64[Q], in turn.

        ``strict`` leaves out those that begin or end on an edge, as at a point.
        """
        if not begins.size:
            return
        self._asked = True
        first, times = _matches(window, begins, ends, strict=strict)
        kinds = kinds_of(window)
        rows = np.flatnonzero(times)
        rows = rows[np.argsort(first[rows], kind="stable")]
        for part in _keys_change(kinds[rows], first[rows]):
            self._time.add(window, kinds, rows[part], times[rows[part]])
            for key in self._time.report_keys():
                details.setdefault(key, {})

    def write(self, details: dict[str, Any]) -> None:
        """Fill in what the last query of the job left in ``Details``."""
        if self._asked:
            shares = self._time.shares(labels_swapped=True)
            details.update({key: shares[key] for key in self._time.report_keys()})


def _matches(
    window: FrameworkWindow, begins: FloatArray, ends: FloatArray, *, strict: bool
) -> tuple[IntArray, IntArray]:
    """Return, for each event, the first query that selects it and how many do (0 where none does).

    Queries come in runs that ascend; within one, those that select an event are neighbours.
    """
    first = np.full(len(window), len(begins))
    times = np.zeros(len(window), dtype=np.int64)
    breaks = np.flatnonzero((np.diff(begins) < 0) | (np.diff(ends) < 0)) + 1
    for start, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(begins)], strict=True):
        low = np.searchsorted(ends[start:stop], window.starts, side="right" if strict else "left")
        high = np.searchsorted(begins[start:stop], window.ends, side="left" if strict else "right")
        matched = np.maximum(high - low, 0)
        first = np.where((matched > 0) & (times == 0), start + low, first)
        times += matched
    return first, times


def _keys_change(kinds: IntArray, first: IntArray) -> list[slice]:
    """Cut rows after the first query and after those that meet a kind first: they order the keys of ``Details``."""
    _, met = np.unique(kinds, return_index=True)
    queries = {0, *first[met].tolist()}
    cuts = np.unique(np.searchsorted(first, sorted(queries), side="right")).tolist()
    edges = [0, *cuts, len(kinds)]
    return [slice(start, stop) for start, stop in pairwise(edges)]
