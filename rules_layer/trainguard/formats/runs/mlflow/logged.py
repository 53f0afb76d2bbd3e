"""What was logged to a run of MLflow, from any of its stores, as a `SourceRun`."""

import itertools
import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trainguard.formats.runs.length import total_steps
from trainguard.formats.runs.run import (
    HOST_MEMORY,
    ONLY_NODE,
    WORDS,
    RunOutcome,
    SeriesName,
    SnapshotCollector,
    SourceRun,
    gpu_series,
    whole_memory,
)
from trainguard.formats.tensors.scalars.rows import LARGEST_STEP, Recording

TOOL = "MLflow"
MOST_VALUES = 5_000_000

TOO_MANY_VALUES = f"values beyond the first {MOST_VALUES:,} of a run"
NO_VALUE = "a value without a number, a time or a step"

_SYSTEM = re.compile(r"system/(?:(?P<node>.+)/)?(?P<metric>[^/]+)", re.DOTALL)
_OF_GPU = re.compile(r"gpu_(\d{1,2})_(\w+)")
# MLflow's word for an unknown user.
_NOBODY = "unknown"

_MEGA = 1e6
_MS = 1_000.0
# By MLflow's name: the measure, and a factor.
_GPU: dict[str, tuple[str, float]] = {
    "utilization_percentage": ("GPUUtilization", 1.0),
    "memory_usage_megabytes": ("MemoryUsedBytes", _MEGA),
    "memory_usage_percentage": ("MemoryShare", 1.0),
    "power_usage_watts": ("PowerWatts", 1.0),
}

# The percentage of memory in use is no series: with the bytes it gives the whole memory.
_SHARE = ".MemoryShare"

# Percent of the memory from which its whole size is estimated; MLflow rounds shares to a tenth.
_LEAST_SHARE = 5.0

_COUNTERS = {
    "network_receive_megabytes": SeriesName("network", "ReceiveBytesPerSecond", "Algorithm"),
    "network_transmit_megabytes": SeriesName("network", "TransmitBytesPerSecond", "Algorithm"),
}
_OUTCOMES = {"FINISHED": RunOutcome.COMPLETED, "FAILED": RunOutcome.FAILED, "KILLED": RunOutcome.FAILED}
LATEST_MS = 253_402_300_799_999


class Logged(NamedTuple):
    """A value as it was logged: ``at_ms`` in milliseconds since the epoch."""

    key: str
    value: float
    at_ms: int
    step: int


def whole(value: object) -> int | None:
    """Return a time in milliseconds; some versions write it as a text."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(LATEST_MS)):
        value = int(value)
    is_time = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LATEST_MS
    return value if is_time and isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What MLflow says about a run; times in milliseconds since the epoch, ``status`` in its words."""

    identity: str
    name: str
    status: str
    started_ms: int | None
    ended_ms: int | None
    link: str | None = None
    user: str = ""


def logged(key: object, value: object, at_ms: object, step: object) -> Logged | None:
    """Return a value of a store; None where a part of it is none.

    Databases have the largest float for an infinity, and JSON has words for what is no number.
    """
    if isinstance(value, str):
        value = WORDS.get(value)
    if not isinstance(key, str) or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not isinstance(at_ms, int) or not isinstance(step, int) or not 0 <= step <= LARGEST_STEP:
        return None
    if abs(at_ms) > LATEST_MS or (isinstance(value, int) and abs(value) > sys.float_info.max):
        return None
    number = float(value)
    return Logged(key, math.copysign(math.inf, number) if abs(number) >= sys.float_info.max else number, at_ms, step)


def run_of(info: RunInfo, values: Iterable[Logged | None], params: Mapping[str, object] | None = None) -> SourceRun:
    """Return the run; ``params`` say how long it will be.

    A value that is None is counted, and those beyond the first five million are.
    """
    owners = {} if info.user in {"", _NOBODY} else {"user": info.user}
    run = SourceRun(info.name or info.identity, TOOL, link=info.link, owners=owners)
    system, scalars = SnapshotCollector(), dict[str, list[Logged]]()
    by_moment: dict[tuple[str, float], dict[SeriesName, float]] = {}
    for each in run.first(values, MOST_VALUES, TOO_MANY_VALUES):
        if each is None:
            run.refuse(NO_VALUE)
        elif (match := _SYSTEM.fullmatch(each.key)) is None:
            scalars.setdefault(each.key, []).append(each)
        elif math.isfinite(each.value):
            node, at = match["node"] or "", each.at_ms / _MS
            found = _measured(system, node, match["metric"], at, each.value)
            if found is not None:
                by_moment.setdefault((node, at), {})[found[0]] = found[1]
    for (node, at), measured in by_moment.items():
        _put_totals(measured)
        if measured:
            system.add(node, at, measured)
    run.snapshots = system.snapshots(ONLY_NODE)
    run.scalars = _rows(scalars)
    run.started_at = None if info.started_ms is None else info.started_ms / _MS
    run.ended_at = None if info.ended_ms is None else info.ended_ms / _MS
    run.outcome = _OUTCOMES.get(info.status)
    run.total_steps = total_steps(params or {}, run.scalars)
    return run


def _put_totals(measured: dict[SeriesName, float]) -> None:
    """Put the whole memory of GPUs in the place of the percentage in use."""
    for series in [each for each in measured if each.name.endswith(_SHARE)]:
        gpu, share = series.name.removesuffix(_SHARE), measured.pop(series)
        used = measured.get(gpu_series(gpu, "MemoryUsedBytes"))
        total = None if used is None else whole_memory(used, share, _LEAST_SHARE)
        if total is not None:
            measured[gpu_series(gpu, "MemoryTotalBytes")] = total


def _measured(
    system: SnapshotCollector, node: str, metric: str, at: float, value: float
) -> tuple[SeriesName, float] | None:
    if match := _OF_GPU.fullmatch(metric):
        if match[2] not in _GPU:
            return None
        measure, factor = _GPU[match[2]]
        return gpu_series(f"gpu{int(match[1])}", measure), value * factor
    if metric in _COUNTERS:
        rate = system.rate(node, _COUNTERS[metric], at, value * _MEGA)
        return None if rate is None else (_COUNTERS[metric], rate)
    return (HOST_MEMORY, value) if metric == "system_memory_usage_percentage" else None


def _rows(scalars: Mapping[str, list[Logged]]) -> list[Recording]:
    """Return rows in order of time; a name without steps is numbered by its times.

    Where the steps of a name go back, values that were logged together alone are of one row.
    """
    steps: dict[int, tuple[float, dict[str, float]]] = {}
    goes_back = False
    for values in scalars.values():
        values.sort(key=lambda each: (each.at_ms, each.step))
        if len(values) > 1 and all(each.step == values[0].step for each in values):
            values[:] = [each._replace(step=number) for number, each in enumerate(values)]
        goes_back = goes_back or any(later.step < earlier.step for earlier, later in itertools.pairwise(values))
    if goes_back:
        return _in_segments(sorted(itertools.chain(*scalars.values()), key=lambda each: (each.at_ms, each.step)))
    for each in itertools.chain(*scalars.values()):
        _, row = steps.setdefault(each.step, (each.at_ms / _MS, {}))
        row[each.key] = each.value
    return sorted((Recording(step, at, row) for step, (at, row) in steps.items()), key=lambda row: (row.at, row.step))


def _in_segments(values: Iterable[Logged]) -> list[Recording]:
    rows: list[tuple[int, float, dict[str, float]]] = []
    for each in values:
        if not rows or rows[-1][0] != each.step or each.key in rows[-1][2]:
            rows.append((each.step, each.at_ms / _MS, {}))
        rows[-1][2][each.key] = each.value
    return [Recording(step, at, row) for step, at, row in rows]
