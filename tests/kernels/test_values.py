"""Figures of ``kernels.json`` worked out by hand from small traces."""

import pytest

from tests.support.kernel_traces import BF16_GEMM, COMMUNICATION_STREAM, NCCL, PAGEABLE, PINNED, TraceWriter, judged
from trainguard.kernels.comparison.compare import compared
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.work import bus_factor


def collective(made: TraceWriter, name: str, start: float, lasts: float, elements: tuple[int, int], size: int) -> None:
    made.kernel(NCCL, start, lasts, launch=start - 5, call=2, stream=COMMUNICATION_STREAM)
    made.events[-1]["args"] |= {
        "Collective name": name,
        "In msg nelems": elements[0],
        "Out msg nelems": elements[1],
        "Group size": size,
        "dtype": "BFloat16",
        "Process Group Name": "0",
    }


@pytest.mark.parametrize(
    ("name", "elements", "ranks", "algorithm", "bus"),
    [
        ("allreduce", (1_000_000, 1_000_000), 4, 20.0, 30.0),
        ("allreduce", (1_000_000, 1_000_000), 2, 20.0, 20.0),
        ("_allgather_base", (250_000, 1_000_000), 4, 20.0, 15.0),
        ("_reduce_scatter_base", (1_000_000, 250_000), 4, 20.0, 15.0),
        ("all_to_all", (1_000_000, 1_000_000), 8, 20.0, 17.5),
        ("broadcast", (1_000_000, 1_000_000), 8, 20.0, 20.0),
    ],
)
def test_bandwidth_of_collectives(
    name: str, elements: tuple[int, int], ranks: int, algorithm: float, bus: float
) -> None:
    """A million elements of two bytes in 100 us are 20 GB/s."""
    made = TraceWriter()
    made.step(1, 0, 1_000)
    collective(made, name, 100, 50, elements, ranks)
    collective(made, name, 300, 150, elements, ranks)
    (found,) = judged(made.text()).collectives
    assert (found.name, found.group_size, found.sized_count, found.bytes) == (name, ranks, 2, 4_000_000)
    assert (found.algorithm_gb_per_s, found.bus_gb_per_s) == (algorithm, bus)


def test_annotations_on_the_gpu() -> None:
    made = TraceWriter()
    made.step(1, 0, 1_000)
    made.event("user_annotation", "forward_1", 10, 100)
    made.event("user_annotation", "forward_2", 200, 150)
    made.event("user_annotation", "backward", 400, 100)
    made.event("user_annotation", "logging", 900, 50)
    made.event("gpu_user_annotation", "backward", 450, 222)
    made.kernel(BF16_GEMM, 50, 30, launch=20)
    made.kernel(BF16_GEMM, 90, 60, launch=100)
    made.kernel(BF16_GEMM, 230, 20, launch=210)
    made.kernel(BF16_GEMM, 460, 40, launch=420)
    found = {each.name: each for each in judged(made.text()).annotations}
    forward, backward, logging = found["forward"], found["backward"], found["logging"]
    assert (forward.count, forward.total_ns, forward.gpu_source) == (2, 250_000, "kernels")
    assert forward.gpu is not None
    assert (forward.gpu.count, forward.gpu.min_ns, forward.gpu.max_ns) == (2, 20_000, 100_000)
    assert backward.gpu is not None
    assert (backward.gpu_source, backward.gpu.total_ns) == ("annotation", 222_000)
    assert (logging.gpu_source, logging.gpu) == (None, None)


def test_active_and_host_time() -> None:
    """Of 100 parts of 10 us the GPU does anything in 12; the host works for 5 + 30 us, the call within the operator."""
    made = TraceWriter()
    made.step(1, 0, 1_000)
    made.kernel(BF16_GEMM, 105, 100, launch=20)
    made.kernel(BF16_GEMM, 501, 2, launch=420)
    made.event("cpu_op", "aten::mm", 410, 30)
    found = judged(made.text())
    assert found.active_share == 0.12
    assert found.host_busy_ns == 35_000
    assert found.host_utilization[41:44] == [1.0, 1.0, 1.0]
    assert sum(found.host_utilization) == pytest.approx(3.5)


def test_the_mean_queue() -> None:
    """One launch waits from 100 to 300 and another from 200 to 600 us: 600 us of waiting in a window of 1,000 us."""
    made = TraceWriter()
    made.step(1, 0, 1_000)
    made.kernel(BF16_GEMM, 300, 300, launch=100)
    made.kernel(BF16_GEMM, 600, 100, launch=200)
    (stream,) = judged(made.text()).streams
    assert (stream.queue_mean, stream.queue_max) == (0.6, 2)


def test_bandwidth_of_copies() -> None:
    made = TraceWriter()
    made.step(1, 0, 1_000)
    made.copy(PINNED, 100, 40, size=1_000_000)
    made.copy(PINNED, 200, 60, size=1_000_000)
    made.copy(PINNED, 300, 0, size=500)  # no time, so no bandwidth
    made.copy(PAGEABLE, 400, 100, size=300_000)
    found = {each.name: each for each in judged(made.text()).memory_operations}
    assert (found[PINNED].gb_per_s, found[PINNED].bytes, found[PINNED].host_memory) == (20.0, 2_000_500, "pinned")
    assert (found[PAGEABLE].gb_per_s, found[PAGEABLE].direction) == (3.0, "HtoD")


def with_operators(**lasts: float) -> TraceWriter:
    made = TraceWriter()
    for step in range(4):
        made.step(step, 1_000 * step, 1_000)
        for place, (name, each) in enumerate(lasts.items()):
            at, number = 1_000.0 * step + 200 * place, 10 * step + place + 1
            args = {"External id": number, "Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]}
            made.event("cpu_op", f"aten::{name}", at, 50, args=args)
            made.kernel(BF16_GEMM, at + 20, each, launch=at + 5)
            made.events[-1]["args"]["External id"] = number
    return made


def test_operators_of_two_profiles() -> None:
    old, new = (
        KernelProfiles(source=name, ranks=[judged(made.text())], unread={})
        for name, made in (("a", with_operators(mm=100, bmm=80)), ("b", with_operators(mm=160, linear=70)))
    )
    (rank,) = compared(old, new).ranks
    said = {
        each.name: (each.change, each.before_ns, each.after_ns, each.before_runs, each.after_runs)
        for each in rank.operators
    }
    assert said == {
        "aten::mm": ("slower", 100_000, 160_000, 1.0, 1.0),
        "aten::bmm": ("gone", 80_000, 0, 1.0, 0.0),
        "aten::linear": ("came", 0, 70_000, 0.0, 1.0),
    }
    assert {each.shapes for each in rank.operators} == {"[[64,32],[32,16]]"}


@pytest.mark.parametrize(
    ("names", "factor"),
    [
        (("allreduce", "all_reduce", "allreduce_coalesced", "all-reduce-start", "ncclDevKernel_AllReduce_Sum"), 1.75),
        (("_allgather_base", "all-gather", "allgather_into_tensor_coalesced", "gather"), 0.875),
        (("_reduce_scatter_base", "reduce-scatter", "ncclDevKernel_ReduceScatter_Sum", "scatter"), 0.875),
        (("all_to_all", "alltoallv", "all-to-all"), 0.875),
        (("broadcast", "reduce", "send", "collective-permute"), 1.0),
    ],
)
def test_links_carry_what_the_kind_of_a_collective_needs(names: tuple[str, ...], factor: float) -> None:
    """Among eight ranks, as nccl-tests' PERFORMANCE.md counts."""
    assert {bus_factor(name, 8) for name in names} == {factor}
