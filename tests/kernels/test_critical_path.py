"""The critical path of a step: written traces whose path is known beforehand, and real ones whose parts add up."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.kernel_faults import LOADER
from tests.support.kernel_traces import (
    BF16_GEMM,
    COMMUNICATION_STREAM,
    FP32_GEMM,
    NCCL,
    PINNED,
    TraceWriter,
    judged,
    real_names,
    real_profile,
    real_trace,
)
from trainguard.kernels.entries import CriticalPathEntry
from trainguard.kernels.times.intervals import union
from trainguard.kernels.times.metrics import RankMetrics


def path(fill: Callable[[TraceWriter], None], lasts: float = 1_000) -> dict[str, float]:
    """Return the parts of the path of one step, in microseconds."""
    made = TraceWriter()
    made.step(1, 0, lasts)
    fill(made)
    (found,) = judged(made.text()).critical_paths
    assert sum(found.parts.values()) == found.total_ns
    return {part: time / 1_000 for part, time in found.parts.items()}


def test_path_of_queued_kernels_is_the_gpu() -> None:
    def fill(made: TraceWriter) -> None:
        for place in range(10):
            made.kernel(BF16_GEMM, 20 + 98 * place, 95, launch=1 + place)

    # The last kernel ends at 997; before the first one are its launch and a microsecond of the host.
    assert path(fill, 997) == {"compute": 950, "gpu_gap": 27, "launch": 19, "host": 1}


def test_path_of_late_launches_is_host_and_launches() -> None:
    def fill(made: TraceWriter) -> None:
        for place in range(10):
            made.kernel(BF16_GEMM, 100 * place + 58, 10, launch=100 * place + 50)

    found = path(fill)
    # The host goes on to the end of the step: nothing on the GPU holds it back.
    assert found == {"host": 1_000}


def test_path_of_late_launches_includes_the_last_kernel() -> None:
    def fill(made: TraceWriter) -> None:
        for place in range(10):
            made.kernel(BF16_GEMM, 100 * place + 58, 10, launch=100 * place + 50)

    assert path(fill, 960) == {"compute": 10, "launch": 8, "host": 950}


def test_path_crosses_to_the_gpu_at_a_wait_and_back() -> None:
    def fill(made: TraceWriter) -> None:
        made.kernel(BF16_GEMM, 20, 480, launch=10)
        made.event("cuda_runtime", "cudaStreamSynchronize", 100, 405)
        made.kernel(FP32_GEMM, 620, 380, launch=600)

    # Host 0-10, launch 10-20, GEMM 20-500, its end to the call's 500-505, host 505-600, launch 600-620, GEMM 620-1000.
    assert path(fill) == {"compute": 860, "launch": 30, "synchronization": 5, "host": 105}


def test_wait_in_which_nothing_ended_is_host_time() -> None:
    def fill(made: TraceWriter) -> None:
        made.kernel(BF16_GEMM, 20, 80, launch=10)
        made.event("cuda_runtime", "cudaDeviceSynchronize", 300, 100)
        made.kernel(FP32_GEMM, 620, 380, launch=600)

    assert path(fill) == {"compute": 380, "launch": 20, "host": 600}


def test_overlapped_communication_is_not_on_the_path() -> None:
    def fill(made: TraceWriter) -> None:
        made.kernel(BF16_GEMM, 20, 480, launch=0)
        made.kernel(NCCL, 100, 300, launch=1, stream=COMMUNICATION_STREAM)
        made.kernel(BF16_GEMM, 500, 500, launch=2)

    assert path(fill) == {"compute": 980, "launch": 20}


def test_exposed_communication_is_on_the_path() -> None:
    def fill(made: TraceWriter) -> None:
        made.kernel(BF16_GEMM, 20, 280, launch=0)
        made.kernel(NCCL, 300, 400, launch=1, stream=COMMUNICATION_STREAM)
        made.kernel(BF16_GEMM, 710, 290, launch=2)

    assert path(fill) == {"compute": 570, "communication": 400, "gpu_gap": 10, "launch": 20}


def test_given_a_slow_loader_when_walked_then_it_is_on_the_path() -> None:
    def fill(made: TraceWriter) -> None:
        made.event("user_annotation", LOADER, 0, 600)
        made.kernel(BF16_GEMM, 700, 300, launch=690)

    assert path(fill) == {"compute": 300, "launch": 10, "host": 90, "data_loading": 600}


def test_given_a_copy_when_walked_then_memory_is_on_the_path() -> None:
    def fill(made: TraceWriter) -> None:
        made.copy(PINNED, 100, 300)
        made.kernel(BF16_GEMM, 400, 600, launch=90)

    assert path(fill) == {"compute": 600, "memory": 300, "launch": 20, "host": 80}


@pytest.mark.parametrize(("waited", "part"), [(29.999, "launch"), (30, "communication")])
def test_late_start_after_a_launch_was_held_by_another_stream(waited: float, part: str) -> None:
    """Up to 30 us a kernel takes of its own to start."""

    def fill(made: TraceWriter) -> None:
        made.kernel(NCCL, 100, 880 - 100, launch=90, stream=COMMUNICATION_STREAM)
        made.kernel(BF16_GEMM, 880, 120, launch=880 - waited)

    found = path(fill)
    assert ("communication" in found) is (part == "communication")


def test_path_of_kernels_without_launches_is_the_gpu_alone() -> None:
    def fill(made: TraceWriter) -> None:
        made.kernel(BF16_GEMM, 100, 400, launch=50)
        made.kernel(BF16_GEMM, 520, 480, launch=None)

    # A launch ends 30 us after its call: the last 15 us before the first kernel are the GPU's.
    made = path(fill)
    assert made == {"compute": 880, "gpu_gap": 20 + 15, "launch": 35, "host": 50}


def test_given_rows_of_no_length_when_walked_then_it_ends() -> None:
    def fill(made: TraceWriter) -> None:
        for _ in range(50):
            made.kernel(BF16_GEMM, 500, 0, launch=500, call=0)
            made.event("cuda_runtime", "cudaStreamSynchronize", 499, 1)

    assert sum(path(fill).values()) == 1_000


def test_median_and_slowest_step_have_paths_with_kernels() -> None:
    made, start = TraceWriter(), 0.0
    for number, lasts in enumerate((1_000.0, 1_100.0, 5_000.0)):
        made.step(number, start, lasts)
        made.kernel(BF16_GEMM, start + 10, lasts - 10, launch=start)
        start += lasts
    median, slowest = judged(made.text()).critical_paths
    assert (median.step, slowest.step) == (1, 2)
    assert [(each.name, each.total_ns) for each in slowest.kernels] == [(BF16_GEMM, 4_990_000)]


@pytest.mark.parametrize("name", real_names())
def test_path_parts_of_a_real_trace_add_up_within_gpu_time(name: str) -> None:
    profile, metrics = real_profile(name), RankMetrics.of(real_trace(name))
    paths = profile.critical_paths
    assert bool(paths) == bool(profile.busy_ns)
    steps = (
        dict(zip(metrics.window.steps.number.tolist(), zip(*metrics.steps_on_gpu(), strict=True), strict=True))
        if profile.steps
        else {}
    )
    for each in paths:
        assert sum(each.parts.values()) == each.total_ns
        assert min(each.parts.values()) > 0
        assert "unknown" not in each.parts
        start, end = steps[each.step] if each.step is not None else (metrics.window.start, metrics.window.end)
        step = np.array([start]), np.array([end])
        compute, communication = (
            union(*(getattr(gpu, part) for gpu in metrics.gpus)).within(*step)[0]
            for part in ("compute", "communication")
        )
        assert most(each, "compute") <= compute
        assert most(each, "communication") <= communication


def most(entry: CriticalPathEntry, part: str) -> int:
    return entry.parts.get(part, 0)


def test_paths_of_real_traces_agree_with_their_rules() -> None:
    """MI300's GPU is busy 97 %; the trace of ResNet waits for its loader; the A100 pair for its host."""
    busy, loader, host = (
        real_profile(name).critical_paths[0]
        for name in ("mi300_resnet_ddp8_rank0_stack", "resnet50_workers0", "a100_ddp2_rank0_nccl_ns")
    )
    on_gpu = sum(most(busy, part) for part in ("compute", "communication", "memory", "gpu_gap"))
    assert on_gpu > 0.9 * busy.total_ns
    assert most(loader, "data_loading") > 0.25 * loader.total_ns
    assert most(host, "host") > 0.5 * host.total_ns
