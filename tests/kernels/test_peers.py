"""Numbers against those of the tools that exist; where these are wrong, their defect is imitated to explain it."""

import json
from typing import Any

import numpy as np
import pytest

from tests.support.kernel_traces import FOLDER, real_names, real_profile, real_trace
from trainguard.kernels.columns import Ints, Trace, WorkKind
from trainguard.kernels.times.intervals import intersection, merged
from trainguard.kernels.times.window import find_window

PEERS = json.loads((FOLDER / "peers.json").read_text("utf-8"))
US = 1_000
WAIT = "Stream Wait Event"


def hta_rows(trace: Trace, *, include_last: bool) -> tuple[Ints, Ints, Ints]:
    """Return start, end and kind of the rows that HolisticTraceAnalysis 0.5.0 takes for kernels.

    Its defects: nanoseconds shrink to whole microseconds, start up and end down; the last step is dropped; rows of
    synchronization count where they name a stream, Stream Wait Event as computation.
    """
    window, gpu = find_window(trace), trace.gpu
    waits = trace.waits
    named = np.array([trace.names[lane] not in ("", "-1") for lane in waits.lane], dtype=bool)
    is_wait = np.array([trace.names[name] == WAIT for name in waits.name[named]], dtype=bool)
    start = np.concatenate((gpu.start, waits.start[named]))
    end = np.concatenate((gpu.end, waits.end[named]))
    kind = np.concatenate((gpu.kind, np.where(is_wait, WorkKind.COMPUTE, WorkKind.MEMSET)))
    correlation = np.concatenate((gpu.correlation, waits.correlation[named]))
    kept = np.ones(len(start), dtype=bool)
    if len(window.steps) > 1 and any(name.startswith("ProfilerStep") for name in trace.names):
        # Steps that the GPU's side has, too, come later: with them the last step's start drops nothing.
        later = [trace.names[name].startswith("ProfilerStep") for name in trace.gpu_annotations.name]
        include_last = include_last or any(later)
        limit = window.steps.end[-1] if include_last else window.steps.start[-1]
        kept = np.isin(correlation, trace.launches.correlation[trace.launches.start < limit])
    return -(-start[kept] // US), end[kept] // US, kind[kept]


def hta_union(start: Ints, end: Ints) -> int:
    """Return the length of a union as HTA adds it up: a kernel whose rounded length is negative takes some away."""
    order = np.lexsort((end, start))
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    lengths = np.array([int(end[order][one : other + 1].max()) for one, other in zip(first, last, strict=True)])
    return int((lengths - start[first]).sum())


@pytest.mark.parametrize("peer", PEERS["hta"], ids=lambda peer: f"{peer['trace']}-{peer['include_last']}")
def test_breakdown_and_overlap_equal_hta_with_its_defects(peer: dict[str, Any]) -> None:
    start, end, kind = hta_rows(real_trace(peer["trace"]), include_last=peer["include_last"])
    compute = merged(start[kind == WorkKind.COMPUTE], end[kind == WorkKind.COMPUTE])
    compute_us = hta_union(start[kind == WorkKind.COMPUTE], end[kind == WorkKind.COMPUTE])
    communication = merged(start[kind == WorkKind.COMMUNICATION], end[kind == WorkKind.COMMUNICATION])
    total, busy = int(end.max() - start.min()), hta_union(start, end)
    if peer["trace"] == "a100_triton_kernel":  # it takes the operator that names a stream for the kernel
        operator = real_trace(peer["trace"]).operators
        mine = np.array([real_trace(peer["trace"]).names[name].startswith("triton") for name in operator.name])
        took = int(operator.end[mine].max() // US - -(-operator.start[mine].min() // US))
        assert took == peer["compute_us"] > compute_us
        return
    found = (total, total - busy, compute_us, busy - compute_us)
    assert found == (peer["total_us"], peer["idle_us"], peer["compute_us"], peer["non_compute_us"])
    if peer["overlap_percent"] is not None:
        share = 100 * intersection(compute, communication).total / communication.total
        assert round(share, 2) == peer["overlap_percent"]


STEPS = [peer for peer in PEERS["tb_plugin"] if peer["trace"] in ("a100_ddp2_rank0_nccl_ns", "resnet50_workers0")]
SAME_PARTS = {
    "compute": "Kernel",
    "memcpy": "Memcpy",
    "memset": "Memset",
    "runtime": "Runtime",
    "data_loader": "DataLoader",
    "cpu_op": "CpuOp",
    "other": "Other",
}


@pytest.mark.parametrize("peer", STEPS, ids=lambda peer: str(peer["trace"]))
def test_step_times_are_those_of_the_plugin(peer: dict[str, Any]) -> None:
    steps = {str(step.number): step.gpu_duration_ns for step in real_profile(peer["trace"]).steps}
    for number, us in zip(peer["steps"], peer["steps_total_us"], strict=True):
        assert steps[str(number)] == pytest.approx(us * US, abs=500), "the plugin's doubles hold less than a nanosecond"


def test_step_parts_equal_the_plugin_on_a_known_trace() -> None:
    (peer,) = (peer for peer in STEPS if peer["trace"] == "resnet50_workers0")
    steps = real_profile(peer["trace"]).steps
    for mine, theirs in SAME_PARTS.items():
        mean = sum(step.breakdown[mine] for step in steps) / len(steps)
        assert mean == pytest.approx(peer["avg_step_us"][theirs] * US, abs=1), mine


def test_step_parts_differ_where_the_plugin_lacks_a_runtime() -> None:
    """It takes collectives for kernels, knows no ``cuda_runtime``, and counts those calls as operators or nothing."""
    (peer,) = (peer for peer in STEPS if peer["trace"] == "a100_ddp2_rank0_nccl_ns")
    steps = real_profile(peer["trace"]).steps
    means = {name: sum(step.breakdown[name] for step in steps) / len(steps) / US for name in steps[0].breakdown}
    theirs = peer["avg_step_us"]
    assert theirs["Runtime"] == 0 < means["runtime"]
    on_gpu = means["compute"] + means["exposed_communication"]
    assert on_gpu == pytest.approx(theirs["Kernel"], rel=1e-3)
    on_host = means["runtime"] + means["cpu_op"] + means["other"]
    assert on_host == pytest.approx(theirs["CpuOp"] + theirs["Other"] + theirs["Communication"], rel=1e-3)


@pytest.mark.parametrize("name", real_names())
def test_the_parts_of_a_step_add_up(name: str) -> None:
    for step in real_profile(name).steps:
        assert sum(step.breakdown.values()) == step.gpu_duration_ns
        assert min(step.breakdown.values()) >= 0
