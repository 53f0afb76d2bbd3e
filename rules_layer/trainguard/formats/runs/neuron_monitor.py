"""Reports of ``neuron-monitor``, a line of JSON each: NeuronCores of Trainium and Inferentia, and the host's cores.

A report has no time, only a length: times are counted back from when the file was written last. It lists the cores that
programs use: a core that it does not list is there all the same, and does nothing. Source: AWS Neuron's guide of
neuron-monitor.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from trainguard.formats.runs.run import (
    HOST_MEMORY,
    MOST_DEVICES,
    ONLY_NODE,
    UTILIZATION,
    SeriesName,
    Snapshot,
    SourceRun,
    gpu_series,
)

TOOL = "neuron-monitor"
MARK = b'"neuron_runtime_data"'
MOST_REPORTS = 2_000_000
NO_REPORT = "a line that is no report of neuron-monitor"
TOO_MANY = f"reports beyond the first {MOST_REPORTS:,}"
_MOST_CORES = 1_024
_LONGEST_NUMBER = 4
_PETA = 1e15
_LONGEST_PERIOD_S = 3_600.0
_USUAL_PERIOD_S = 5.0


def read_neuron_monitor(name: str, lines: Iterable[bytes], written_at: float) -> SourceRun:
    """Read reports; ``written_at`` is when the file was written last, epoch seconds."""
    run = SourceRun(name, TOOL)
    reports: list[tuple[float, dict[SeriesName, float], bool]] = []
    node, cores = "", set[SeriesName]()
    for line in run.first(lines, MOST_REPORTS, TOO_MANY):
        report = _report(line)
        if report is None:
            if line.strip() and line.endswith(b"\n"):
                run.refuse(NO_REPORT)
            continue
        info = _mapping(report, "instance_info")
        node = node or str(info.get("instance_id") or "")
        run.gpu_type = run.gpu_type or str(info.get("instance_type") or "") or None
        period, values = _values(report)
        cores |= _cores_of(report) | {series for series in values if series.dimension == UTILIZATION}
        reports.append((period, values, _lists_cores(report)))
    at, snapshots = written_at, []
    for period, values, lists_cores in reversed(reports):
        if lists_cores:
            values.update(dict.fromkeys(cores - values.keys(), 0.0))
        if values:
            snapshots.append(Snapshot(at, values))
        at -= period
    if snapshots:
        run.snapshots[node or ONLY_NODE] = snapshots[::-1]
    else:
        run.nothing = (
            f"has {len(reports):,} reports of neuron-monitor, none of which has a NeuronCore (neuroncore_counters, "
            "neuron_hardware_info), a core of the host (vcpu_usage) or its memory (memory_info)"
        )
    return run


def _cores_of(report: Mapping[str, Any]) -> set[SeriesName]:
    """Return the cores of the machine; none where it has more than are judged, or does not say it."""
    hardware = _mapping(report, "neuron_hardware_info")
    devices, each = (
        _number(hardware.get(name), 0.0) for name in ("neuron_device_count", "neuroncore_per_device_count")
    )
    cores = int(devices * each) if 0.0 < devices * each <= MOST_DEVICES else 0
    return {gpu_series(f"gpu{core}", UTILIZATION) for core in range(cores)}


def _lists_cores(report: Mapping[str, Any]) -> bool:
    """Whether a report has the cores of all programs."""
    entries = [_mapping(entry) for entry in report["neuron_runtime_data"]]
    counters = [_mapping(entry, "report", "neuroncore_counters") for entry in entries]
    return all(
        not entry.get("error") and not each.get("error") and "neuroncores_in_use" in each
        for entry, each in zip(entries, counters, strict=True)
    )


def _report(line: bytes) -> dict[str, Any] | None:
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict) or not isinstance(report.get("neuron_runtime_data", 0), list | None):
        return None
    return {**report, "neuron_runtime_data": report["neuron_runtime_data"] or []}


def _values(report: Mapping[str, Any]) -> tuple[float, dict[SeriesName, float]]:
    """Return the seconds of a report, and its values; cores of several programs add up."""
    values: dict[SeriesName, float] = {}
    period = math.nan
    for entry in report["neuron_runtime_data"]:
        counters = _mapping(entry, "report", "neuroncore_counters")
        period = _number(counters.get("period"), period)
        for core, about in _mapping(counters, "neuroncores_in_use").items():
            used = _number(_mapping(about).get("neuroncore_utilization"), math.nan)
            if _is_core(core) and 0.0 <= used <= 100.0:
                series = gpu_series(f"gpu{int(core)}", UTILIZATION)
                values[series] = min(values.get(series, 0.0) + used, 100.0)
        _add_memory(_mapping(entry, "report"), values)
    vcpus = _mapping(report, "system_data", "vcpu_usage")
    period = period if math.isfinite(period) else _number(vcpus.get("period"), math.nan)
    for core, about in _mapping(vcpus, "usage_data").items():
        if not _is_core(core):
            continue
        usage = _mapping(about)
        idle, waiting = (_number(usage.get(each), math.nan) for each in ("idle", "io_wait"))
        if 0.0 <= idle <= 100.0:
            values[SeriesName("cpu", f"cpu{int(core)}", "CPUUtilization")] = 100.0 - idle
        if 0.0 <= waiting <= 100.0:
            values[SeriesName("cpu", f"cpu{int(core)}", "I/OWaitPercentage")] = waiting
    memory = _mapping(report, "system_data", "memory_info")
    total, taken = (_number(memory.get(f"memory_{each}_bytes"), math.nan) for each in ("total", "used"))
    if 0.0 <= taken <= total and total > 0.0:
        values[HOST_MEMORY] = 100.0 * taken / total
    usual = math.isfinite(period) and 0.0 < period <= _LONGEST_PERIOD_S
    return period if usual else _USUAL_PERIOD_S, values


def _add_memory(report: Mapping[str, Any], values: dict[SeriesName, float]) -> None:
    used = _mapping(report, "memory_used", "neuron_runtime_used_bytes", "usage_breakdown", "neuroncore_memory_usage")
    for core, parts in used.items():
        amounts = [_number(each, math.nan) for each in _mapping(parts).values()]
        if amounts and _is_core(core) and all(0.0 <= each < _PETA for each in amounts):
            series = gpu_series(f"gpu{int(core)}", "MemoryUsedBytes")
            values[series] = values.get(series, 0.0) + sum(amounts)


def _is_core(text: str) -> bool:
    return text.isdecimal() and len(text) <= _LONGEST_NUMBER and int(text) < _MOST_CORES


def _mapping(of: Any, *names: str) -> Mapping[str, Any]:
    """Return what lies below these names; nothing where that, or what is above it, is no object."""
    for name in names:
        of = of.get(name) if isinstance(of, dict) else None
    return of if isinstance(of, dict) else {}


def _number(value: Any, otherwise: float) -> float:
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise
    except OverflowError:
        return otherwise
