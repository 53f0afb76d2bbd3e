"""Launches, idle time, queues, bandwidth and kernels against HolisticTraceAnalysis 0.5.0, its defects imitated.

It shrinks nanoseconds to whole microseconds, drops the last step, lets a kernel that starts before the end of the last
one shorten the idle time, counts events instead of time in queues, and takes other rows for kernels.
"""

import json
import lzma
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.support.kernel_traces import FOLDER, real_names, real_profile, real_trace
from trainguard.kernels.columns import Bools, Ints, Numbers, Trace, WorkKind
from trainguard.kernels.times.intervals import difference, intersection, merged
from trainguard.kernels.times.window import find_window

DETAILS = json.loads(lzma.decompress((FOLDER / "peers" / "details.json.xz").read_bytes()))
US = 1_000
LAUNCHING = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
TAKEN_FOR_KERNELS = {
    "a100_alexnet_cuda_sync": "Stream Wait Event",
    "a100_event_sync_multistream": "Stream Wait Event",
    "a100_triton_kernel": "triton_poi_fused_add_cos_sin_0",  # the operator of this name
}

# Copies of a CUDA graph, and those without a size: HTA counts more of them than the trace has.
MORE_THAN_THERE_ARE = {("v100_rank1of2_diff_test", "Memcpy DtoD"), ("mi300_resnet_ddp8_rank0_stack", "Memcpy DtoD")}


def having(field: str) -> list[Any]:
    found = [each for each in DETAILS["hta"] if field in each]
    return [pytest.param(each, id=f"{each['trace']}-{each['include_last']}") for each in found]


def up(times: Ints) -> Ints:
    return -(-times // US)


def last_launch(trace: Trace, *, include_last: bool) -> int:
    """Return up to which launch it looks at work of the GPU."""
    steps = find_window(trace).steps
    if len(steps) < 2 or not any(name.startswith("ProfilerStep") for name in trace.names):
        return 1 << 62  # it knows no other marks of steps
    # Steps that the GPU's side has, too, come later: with them the last step's start drops nothing.
    later = any(trace.names[name].startswith("ProfilerStep") for name in trace.gpu_annotations.name)
    return int(steps.end[-1] if include_last or later else steps.start[-1])


@dataclass(frozen=True)
class Joined:
    """GPU rows with their launches, in whole microseconds."""

    lane: Numbers
    call: Ints
    name: Numbers
    start: Ints
    end: Ints
    called: Ints
    returned: Ints


def joined(trace: Trace, *, include_last: bool) -> Joined:
    launch = find_window(trace).launch
    kept = np.flatnonzero(launch >= 0)
    kept = kept[trace.launches.start[launch[kept]] < last_launch(trace, include_last=include_last)]
    call = launch[kept]
    rows, calls = trace.gpu, trace.launches
    return Joined(
        rows.lane[kept], call, calls.name[call], up(rows.start[kept]), rows.end[kept] // US, up(calls.start[call]),
        calls.end[call] // US,
    )  # fmt: skip


@pytest.mark.parametrize("peer", having("launches"))
def test_launches(peer: dict[str, Any]) -> None:
    trace = real_trace(peer["trace"])
    work = joined(trace, include_last=peer["include_last"])
    known = np.array([trace.names[name] in LAUNCHING for name in work.name])
    lasted, took = (work.end - work.start)[known], (work.returned - work.called)[known]
    delay = np.maximum(work.start - work.returned, 0)[known]
    assert peer["launches"] == {
        "n": int(known.sum()),
        "cpu_duration_sum": took.sum(),
        "gpu_duration_sum": lasted.sum(),
        "launch_delay_sum": delay.sum(),
        "launch_delay_median": np.median(delay),
        "launch_delay_p90": pytest.approx(np.percentile(delay, 90)),
        "n_launch_delay_outliers_gt100us": (delay > 100).sum(),
        "n_runtime_outliers_gt50us": (took > 50).sum(),
        "n_short_kernels_gpu_lt_cpu": (lasted < took).sum(),
    }


@pytest.mark.parametrize("name", ["resnet50_workers0", "a100_rank3of8_diff_control"])
def test_our_launches_are_these_without_operations_on_memory(name: str) -> None:
    """In these traces times are whole microseconds, and HTA adds copies and settings of memory."""
    (peer,) = (each for each in DETAILS["hta"] if each["trace"] == name and each["include_last"])
    trace, found = real_trace(name), real_profile(name).launches
    window = find_window(trace)
    memory = np.flatnonzero((trace.gpu.kind >= WorkKind.MEMCPY) & (window.step >= 0))
    launch = window.launch[memory]
    lasted, took = (
        (trace.gpu.end - trace.gpu.start)[memory],
        (trace.launches.end - trace.launches.start)[launch],
    )
    assert found is not None
    assert found.kernels - found.unlaunched + len(memory) == peer["launches"]["n"]
    assert found.short_kernels + (lasted < took).sum() == peer["launches"]["n_short_kernels_gpu_lt_cpu"]


@pytest.mark.parametrize("peer", having("idle"))
def test_idle_time_by_cause(peer: dict[str, Any]) -> None:
    trace = real_trace(peer["trace"])
    work = joined(trace, include_last=peer["include_last"])
    for stream in {each["stream"] for each in peer["idle"]}:
        mine = np.flatnonzero(work.lane == trace.names.index(str(stream)))
        mine = mine[np.lexsort((work.end[mine], work.start[mine]))]
        before = work.end[mine][:-1]
        gap = work.start[mine][1:] - before  # below 0 where kernels of a stream overlap
        host = work.called[mine][1:] > before
        short = ~host & (gap < 30)
        parts = {"host_wait": host, "kernel_wait": short, "other": ~host & ~short}
        for each in peer["idle"]:
            if each["stream"] == stream:
                assert each["idle_time"] == gap[parts[each["idle_category"]]].sum(), each


@pytest.mark.parametrize("name", ["resnet50_workers0", "a100_rank3of8_diff_control"])
def test_idle_time_is_that_of_hta_but_for_launched_work(name: str) -> None:
    """HTA gives the host the whole gap before a late launch, and so the time that launched work takes to start."""
    (peer,) = (each for each in DETAILS["hta"] if each["trace"] == name and each["include_last"])
    found = {stream.stream: stream.idle for stream in real_profile(name).streams}
    theirs = {str(each["stream"]): dict.fromkeys(("host_wait", "kernel_wait", "other"), 0) for each in peer["idle"]}
    for each in peer["idle"]:
        theirs[str(each["stream"])][each["idle_category"]] = each["idle_time"] * US
    for stream, hta in theirs.items():
        mine = found[stream]
        assert mine.host_wait_ns + mine.kernel_wait_ns + mine.other_ns == sum(hta.values())
        assert 0.8 * hta["host_wait"] <= mine.host_wait_ns <= hta["host_wait"]


@pytest.mark.parametrize("peer", having("queues"))
def test_queues(peer: dict[str, Any]) -> None:
    """HTA leaves out launches of CUDA graphs; of events at the same microsecond its order is that of its sort."""
    trace = real_trace(peer["trace"])
    work = joined(trace, include_last=peer["include_last"])
    graph = np.array([trace.names[name] == "cudaGraphLaunch" for name in work.name])
    for queue in peer["queues"]:
        mine = np.flatnonzero((work.lane == trace.names.index(str(queue["stream"]))) & ~graph)
        mine = mine[np.argsort(work.start[mine], kind="stable")]
        _, first = np.unique(work.call[mine], return_index=True)
        mine = mine[first]
        times = np.concatenate((work.called[mine], work.start[mine]))
        change = np.repeat((1, -1), len(mine))
        least, most = (np.cumsum(change[np.lexsort((tie, times))]) for tie in (change, -change))
        assert queue["count"] == len(times)
        assert least.max() <= queue["max"] <= most.max()
        assert least.mean() - 1e-9 <= queue["mean"] <= most.mean() + 1e-9
        assert np.median(least) <= queue["median"] <= np.median(most)


@pytest.mark.parametrize("name", ["a100_rank3of8_diff_control", "resnet50_workers0", "v100_rank1of2_diff_test"])
def test_our_longest_queue_is_theirs(name: str) -> None:
    (peer,) = (each for each in DETAILS["hta"] if each["trace"] == name and each["include_last"])
    found = {stream.stream: stream for stream in real_profile(name).streams}
    for queue in peer["queues"]:
        mine = found[str(queue["stream"])]
        assert abs(mine.queue_max - queue["max"]) <= 1, "what enters and leaves within a microsecond"
        assert max(mine.queue_series) == mine.queue_max


@pytest.mark.parametrize("peer", having("memory"))
def test_bandwidth_of_memory(peer: dict[str, Any]) -> None:
    """HTA takes the bandwidth that the profiler wrote from nanoseconds; old traces keep but whole microseconds."""
    trace = real_trace(peer["trace"])
    rows, size = trace.gpu, trace.gpu.size
    limit = last_launch(trace, include_last=peer["include_last"])
    launch = find_window(trace).launch
    kept = (launch >= 0) & (trace.gpu.kind >= WorkKind.MEMCPY)
    kept[kept] &= trace.launches.start[launch[kept]] < limit
    exact = bool(np.any(rows.start % US != 0))
    for kind in peer["memory"]:
        named = [place for place, name in enumerate(trace.names) if name.split(" (")[0] == kind["name"]]
        mine = kept & np.isin(rows.name, named) & (size >= 0)
        lasted = rows.end[mine] - rows.start[mine]
        if (peer["trace"], kind["name"]) in MORE_THAN_THERE_ARE:
            whole = np.isin(rows.name, named) & (size >= 0)
            if peer["include_last"]:
                assert kind["count"] > whole.sum() >= mine.sum()
            continue
        assert kind["count"] == mine.sum()
        slack = 0 if exact else US
        least = size[mine] / np.maximum(lasted + slack, 1)
        most = size[mine] / np.maximum(lasted - slack, 1)
        assert least.max() * (1 - 1e-4) <= kind["max"] <= most.max() * (1 + 1e-4)
        assert least.mean() * (1 - 1e-4) <= kind["mean"] <= most.mean() * (1 + 1e-4)


def shrunk(trace: Trace, mask: Bools) -> tuple[Ints, Ints]:
    return up(trace.gpu.start[mask]), trace.gpu.end[mask] // US


@pytest.mark.parametrize("peer", having("kernels"))
def test_kernels_by_name_and_type(peer: dict[str, Any]) -> None:
    trace = real_trace(peer["trace"])
    limit = last_launch(trace, include_last=peer["include_last"])
    kept = np.ones(len(trace.gpu), dtype=bool)
    if limit < 1 << 62:
        kept = np.isin(trace.gpu.correlation, trace.launches.correlation[trace.launches.start < limit])
    other = TAKEN_FOR_KERNELS.get(peer["trace"], "")
    for kernel in peer["kernels"]:
        if kernel["name"] != other:
            named = [place for place, name in enumerate(trace.names) if name == kernel["name"]]
            start, end = shrunk(trace, kept & np.isin(trace.gpu.name, named))
            assert kernel["sum"] == (end - start).sum(), kernel["name"]
    spans = {
        kind: merged(*shrunk(trace, kept & mask))
        for kind, mask in {
            "COMPUTATION": trace.gpu.kind == WorkKind.COMPUTE,
            "COMMUNICATION": trace.gpu.kind == WorkKind.COMMUNICATION,
            "MEMORY": trace.gpu.kind >= WorkKind.MEMCPY,
        }.items()
    }
    if other:
        return  # it counts other rows as computation, see `test_peers`
    starts, ends = shrunk(trace, kept)
    negative = int((starts > ends).sum())  # each takes a microsecond from what it lies in
    for types, us in peer["kernel_types"].items():
        wanted = types.split(" overlapping ")
        found = spans[wanted[0]]
        for kind, each in spans.items():
            found = intersection(found, each) if kind in wanted else difference(found, each)
        assert abs(found.total - us) <= negative, types


@pytest.mark.parametrize("name", real_names())
def test_our_kernels_add_up(name: str) -> None:
    profile = real_profile(name)
    kernels = sum(kernel.total_ns for kernel in profile.kernels) + profile.kernels_left_out_ns
    assert profile.activity is not None
    assert kernels == profile.activity.kernel_ns
    computing = sum(profile.precision.values())
    assert computing + profile.communication_kernels_ns == kernels
    assert sum(each.total_ns for each in profile.memory_operations) == profile.activity.memory_ns
    assert sum(each.total_ns for each in profile.collectives) == profile.communication_kernels_ns
    assert profile.launches is not None
    assert sum(kernel.count for kernel in profile.kernels) + profile.kernels_left_out_count == profile.launches.kernels
    if profile.temporal is not None:
        parts = profile.temporal
        assert parts.idle_ns + parts.compute_ns + parts.non_compute_ns == parts.span_ns
