"""Reports of ``neuron-monitor``, a line of JSON each: NeuronCores of Trainium and Inferentia, and the host's cores.

A report has no time, only a length: times are counted back from when the file was written last.
"""

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from trainguard.formats.runs.run import HOST_MEMORY, ONLY_NODE, UTILIZATION, SeriesName, Snapshot, SourceRun, gpu_series

TOOL = "neuron-monitor"
MARK = b'"neuron_runtime_data"'
MOST_REPORTS = 2_000_000
NO_REPORT = "a line that is no report of neuron-monitor"
TOO_MANY = f"reports beyond the first {MOST_REPORTS:,}"
_MOST_CORES = 1_024
_PETA = 1e15
_LONGEST_PERIOD_S = 3_600.0
_USUAL_PERIOD_S = 5.0


def read_neuron_monitor(name: str, lines: Iterable[bytes], written_at: float) -> SourceRun:
    """Read reports; ``written_at`` is when the file was written last, epoch seconds."""
    run = SourceRun(name, TOOL)
    found: list[tuple[float, dict[SeriesName, float]]] = []
    node = ""
    for number, line in enumerate(lines):
        if number >= MOST_REPORTS:
            run.refuse(TOO_MANY)
            break
        report = _report(line)
        if report is None:
            if line.strip() and line.endswith(b"\n"):
                run.refuse(NO_REPORT)
            continue
        info = _mapping(report, "instance_info")
        node = node or str(info.get("instance_id") or "")
        run.gpu_type = run.gpu_type or str(info.get("instance_type") or "") or None
        found.append(_values(report))
    ends = itertools.accumulate((period for period, _ in reversed(found)), initial=0.0)
    times = [written_at - before for before, _ in zip(ends, found, strict=False)]
    snapshots = [Snapshot(at, values) for at, (_, values) in zip(reversed(times), found, strict=True) if values]
    if snapshots:
        run.snapshots[node or ONLY_NODE] = snapshots
    return run


def _report(line: bytes) -> dict[str, Any] | None:
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and isinstance(report.get("neuron_runtime_data"), list) else None


def _values(report: Mapping[str, Any]) -> tuple[float, dict[SeriesName, float]]:
    """Return the seconds of a report, and its values; cores of several programs add up."""
    values: dict[SeriesName, float] = {}
    period = math.nan
    for entry in report["neuron_runtime_data"]:
        counters = _mapping(_mapping(entry, "report"), "neuroncore_counters")
        period = _number(counters.get("period"), period)
        for core, about in _mapping(counters, "neuroncores_in_use").items():
            used = _number(_mapping({"": about}, "").get("neuroncore_utilization"), math.nan)
            if _is_core(core) and 0.0 <= used <= 100.0:
                series = gpu_series(f"gpu{int(core)}", UTILIZATION)
                values[series] = min(values.get(series, 0.0) + used, 100.0)
        _add_memory(_mapping(entry, "report"), values)
    system = _mapping(report, "system_data")
    vcpus = _mapping(system, "vcpu_usage")
    period = period if math.isfinite(period) else _number(vcpus.get("period"), math.nan)
    for core, about in _mapping(vcpus, "usage_data").items():
        if not _is_core(core):
            continue
        usage = _mapping({"": about}, "")
        idle, waiting = (_number(usage.get(each), math.nan) for each in ("idle", "io_wait"))
        if 0.0 <= idle <= 100.0:
            values[SeriesName("cpu", f"cpu{int(core)}", "CPUUtilization")] = 100.0 - idle
        if 0.0 <= waiting <= 100.0:
            values[SeriesName("cpu", f"cpu{int(core)}", "I/OWaitPercentage")] = waiting
    memory = _mapping(system, "memory_info")
    total, taken = (_number(memory.get(f"memory_{each}_bytes"), math.nan) for each in ("total", "used"))
    if 0.0 <= taken <= total and total > 0.0:
        values[HOST_MEMORY] = 100.0 * taken / total
    usual = math.isfinite(period) and 0.0 < period <= _LONGEST_PERIOD_S
    return period if usual else _USUAL_PERIOD_S, values


def _add_memory(report: Mapping[str, Any], values: dict[SeriesName, float]) -> None:
    used_bytes = _mapping(_mapping(report, "memory_used"), "neuron_runtime_used_bytes")
    for core, parts in _mapping(_mapping(used_bytes, "usage_breakdown"), "neuroncore_memory_usage").items():
        amounts = [_number(each, math.nan) for each in _mapping({"": parts}, "").values()]
        if amounts and _is_core(core) and all(0.0 <= each < _PETA for each in amounts):
            series = gpu_series(f"gpu{int(core)}", "MemoryUsedBytes")
            values[series] = values.get(series, 0.0) + sum(amounts)


def _is_core(text: str) -> bool:
    return text.isdecimal() and int(text) < _MOST_CORES


def _mapping(of: Any, name: str) -> Mapping[str, Any]:
    found = of.get(name) if isinstance(of, dict) else None
    return found if isinstance(found, dict) else {}


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise
