"""The plugin's parts of a mean step, its defects imitated.

It books collectives as computation, and five annotations as communication. It knows the runtime's calls and the data
loader by the categories of 2021 alone, so that both are 0 in newer traces.
"""

from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels.test_tb_plugin import AMD, STEPS, US, named, steps_by_operator
from tests.support.kernel_traces import real_profile, real_trace
from trainguard.kernels.columns import Ints, Rows, Trace, WorkKind
from trainguard.kernels.times.gpu_times import breakdown
from trainguard.kernels.times.intervals import Spans, merged, union
from trainguard.kernels.times.metrics import RankMetrics

OF_2021 = "resnet50_workers0"
NOTHING = merged(np.empty(0, np.int64), np.empty(0, np.int64))


def where(trace: Trace, rows: Rows, chosen: Callable[[str], bool]) -> Spans:
    mine = np.array([chosen(trace.names[name]) for name in rows.name], dtype=bool)
    return merged(rows.start[mine], rows.end[mine])


def their_parts(trace: Trace) -> dict[str, Spans]:
    rows, kind = trace.gpu, trace.gpu.kind
    of_kind = {
        name: merged(rows.start[mask], rows.end[mask])
        for name, mask in (
            ("Kernel", kind <= WorkKind.COMMUNICATION),
            ("Memcpy", kind == WorkKind.MEMCPY),
            ("Memset", kind == WorkKind.MEMSET),
        )
    }
    old = trace.name == OF_2021
    calls = merged(trace.launches.start, trace.launches.end) if old else NOTHING
    loader = where(trace, trace.annotations, lambda name: name.startswith("enumerate(DataLoader)#")) if old else NOTHING
    return of_kind | {
        "Communication": union(*(named(trace, each) for each in (trace.annotations, trace.gpu_annotations))),
        "Runtime": calls,
        "DataLoader": loader,
        "CpuOp": merged(trace.operators.start, trace.operators.end),
    }


def their_steps(trace: Trace) -> tuple[Ints, Ints]:
    """Return the steps; on AMD they are those of the host and of the GPU's side, as `test_tb_plugin` says."""
    if trace.name != AMD:
        return steps_by_operator(RankMetrics.of(trace))
    found = [
        (int(start), int(end))
        for rows in (trace.annotations, trace.gpu_annotations)
        for name, start, end in zip(rows.name, rows.start, rows.end, strict=True)
        if trace.names[name].startswith("ProfilerStep")
    ]
    start, end = np.array(found, dtype=np.int64).T
    return start, end


@pytest.mark.parametrize("name", sorted(STEPS))
def test_the_parts_of_the_mean_step(name: str) -> None:
    trace = real_trace(name)
    start, end = their_steps(trace)
    parts = {part: float(times.mean()) / US for part, times in breakdown(their_parts(trace), start, end).items()}
    parts["Total"] = float((end - start).mean()) / US
    parts["Other"] = parts["Total"] - sum(parts[part] for part in parts if part != "Total")
    assert parts == pytest.approx(STEPS[name]["avg_step_us"], abs=0.5)


@pytest.mark.parametrize("name", sorted(set(STEPS) - {AMD}))
def test_plugin_computation_includes_exposed_communication(name: str) -> None:
    """Ours knows steps by the launch, so that the work of a step may lie in its neighbour: 5 % apart at most."""
    steps = real_profile(name).steps
    ours = sum(step.breakdown["compute"] + step.breakdown["exposed_communication"] for step in steps) / len(steps) / US
    assert ours == pytest.approx(STEPS[name]["avg_step_us"]["Kernel"], rel=0.05)
