"""Metrics of small traces whose numbers are known beforehand, in nanoseconds."""

from tests.support.kernel_traces import BF16_GEMM, COMMUNICATION_STREAM, NCCL, PINNED, TraceWriter, judged


def test_idle_time_by_cause() -> None:
    made = TraceWriter()
    made.step(1, 0, 1_000)
    made.kernel(BF16_GEMM, 100, 100, launch=10)
    made.kernel(BF16_GEMM, 310, 90, launch=300)  # launched 105 us after the last one had ended: 5 us are the GPU's
    made.kernel(BF16_GEMM, 420, 80, launch=350)  # launched before, a gap of 20 us
    made.kernel(BF16_GEMM, 560, 40, launch=360)  # launched before, a gap of 60 us
    idle = judged(made.text()).idle
    assert (idle.host_wait_ns, idle.kernel_wait_ns, idle.other_ns) == (105_000, 25_000, 60_000)


def test_what_is_exposed_and_what_overlaps() -> None:
    made = TraceWriter()
    made.step(1, 0, 1_000)
    made.kernel(BF16_GEMM, 100, 200, launch=10, call=20)
    made.kernel(BF16_GEMM, 150, 100, launch=40, stream=9)
    made.kernel(NCCL, 250, 150, launch=60, stream=COMMUNICATION_STREAM)
    made.copy(PINNED, 380, 70)
    found = judged(made.text())
    assert found.window_ns == 1_000_000
    assert (found.compute_ns, found.communication_ns, found.memory_ns) == (200_000, 150_000, 70_000)
    assert (found.overlap_ns, found.exposed_communication_ns, found.exposed_memory_ns) == (50_000, 100_000, 50_000)
    assert found.busy_ns == 350_000
    assert [(kernel.count, kernel.total_ns) for kernel in found.kernels] == [(2, 300_000), (1, 150_000)]
    assert found.launch_delay_ns is not None
    assert found.launch_delay_ns.median == 105_000


def test_the_window_ends_with_the_last_work_of_the_last_step() -> None:
    made = TraceWriter()
    made.step(1, 0, 100)
    made.step(2, 100, 100)
    made.kernel(BF16_GEMM, 180, 70, launch=150)
    made.kernel(BF16_GEMM, 900, 50, launch=850)
    found = judged(made.text())
    assert (found.window_ns, found.busy_ns) == (250_000, 70_000)
    assert [step.gpu_duration_ns for step in found.steps] == [100_000, 150_000]
