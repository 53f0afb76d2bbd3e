"""Kernel traces of two runs of a gate beside each other."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from trainguard.core.errors import KernelTraceError, PortUnavailableError
from trainguard.gate.cause import changed_operators, kernel_cause
from trainguard.gate.document import Cause, ChangedOperator
from trainguard.gate.runs import GateRun, Metric, Points
from trainguard.kernels.comparison.compare import compared
from trainguard.kernels.document import KernelProfiles
from trainguard.local.judged_traces import profiles_of
from trainguard.local.traces import open_traces

# Ranks behind them are left out: a cause shows in few.
_MOST_TRACES = 8
_NS = 1e9
OF_TRACES = "steps of kernel traces"


def cause_by_traces(candidate: str, baseline: str) -> tuple[Cause | None, list[ChangedOperator]]:
    """Return what kernel traces at both places say; nothing where a place has none that can be read."""
    after, before = _profiles(candidate), _profiles(baseline)
    if after is None or before is None:
        return None, []
    found = compared(before, after)
    ranks = {each.after_trace for each in found.ranks}, {each.before_trace for each in found.ranks}
    parts = [_parts(side, names) for side, names in zip((after, before), ranks, strict=True)]
    return kernel_cause(found, parts[1], parts[0]), changed_operators(found)


def traces_run(place: str) -> GateRun | None:
    """Return the steps of the kernel traces at a place, of each the slowest rank; None where there are none."""
    profiles = _profiles(place)
    longest: dict[int, float] = {}
    for rank in profiles.ranks if profiles is not None else ():
        for step in rank.steps:
            longest[step.number] = max(step.gpu_duration_ns / _NS, longest.get(step.number, 0.0))
    if not longest:
        return None
    gpus = sorted({gpu for rank in (profiles.ranks if profiles is not None else ()) for gpu in rank.gpus})
    steps = np.array(sorted(longest), np.int64)
    values = np.array([longest[step] for step in steps.tolist()], np.float64)
    about = {"GPU": ", ".join(gpus)} if gpus else {}
    return GateRun(place, {Metric.STEP_TIME: {OF_TRACES: Points(steps, values)}}, about=about)


def _profiles(place: str) -> KernelProfiles | None:
    if not Path(place).is_dir():
        return None
    try:
        files = open_traces(place)
        return profiles_of(replace(files, names=files.names[:_MOST_TRACES]))
    except (KernelTraceError, PortUnavailableError):
        return None


def _parts(profiles: KernelProfiles, traces: set[str]) -> dict[str, int]:
    parts: dict[str, int] = {}
    for rank in profiles.ranks:
        if rank.trace in traces and rank.typical_step is not None:
            for part, ns in rank.typical_step.mean_parts.items():
                parts[part] = parts.get(part, 0) + ns
    return parts
