"""Why a GPU is idle, on traces whose gaps can be added up by hand."""

from tests.support.kernel_traces import BF16_GEMM, COMMUNICATION_STREAM, LOADER, TraceWriter, judged, read
from trainguard.kernels.entries import GpuIdleEntry
from trainguard.kernels.metrics import RankMetrics

US = 1_000


def idle(made: TraceWriter) -> GpuIdleEntry:
    found = judged(made.text()).gpu_idle
    assert found is not None
    return found


def one_step(lasts: float = 1_000.0) -> TraceWriter:
    made = TraceWriter()
    made.step(0, 0.0, lasts)
    return made


def test_a_gap_is_the_hosts_until_the_next_launch_has_ended() -> None:
    made = one_step()
    made.kernel(BF16_GEMM, 100, 300, launch=0)
    made.kernel(BF16_GEMM, 700, 300, launch=500, call=50)
    # 0 to 5 and 400 to 550 nothing is launched; from then on the work is on its way.
    assert idle(made) == GpuIdleEntry(loader_ns=0, host_ns=155 * US, other_ns=(95 + 150) * US)


def test_a_host_that_waits_for_data_is_not_slow_to_launch() -> None:
    made = one_step()
    made.kernel(BF16_GEMM, 0, 300, launch=-10)
    made.event("user_annotation", LOADER, 320, 400)
    made.kernel(BF16_GEMM, 755, 245, launch=750)
    assert idle(made) == GpuIdleEntry(loader_ns=400 * US, host_ns=55 * US, other_ns=0)


def test_a_wait_for_data_costs_nothing_while_work_is_on_its_way() -> None:
    made = one_step()
    made.kernel(BF16_GEMM, 0, 300, launch=-10)
    made.event("user_annotation", LOADER, 320, 400)
    made.kernel(BF16_GEMM, 755, 245, launch=200)
    assert idle(made) == GpuIdleEntry(loader_ns=0, host_ns=0, other_ns=455 * US)


def test_work_of_any_stream_ends_a_gap() -> None:
    made = one_step()
    made.kernel(BF16_GEMM, 0, 300, launch=-10)
    made.kernel(BF16_GEMM, 350, 600, launch=345, stream=COMMUNICATION_STREAM)
    made.kernel(BF16_GEMM, 900, 100, launch=890)
    assert idle(made) == GpuIdleEntry(loader_ns=0, host_ns=50 * US, other_ns=0)


def test_where_no_launch_is_known_only_the_loader_is_a_cause() -> None:
    made = one_step()
    made.kernel(BF16_GEMM, 0, 300, launch=None)
    made.event("user_annotation", LOADER, 400, 200)
    made.kernel(BF16_GEMM, 800, 200, launch=None)
    assert idle(made) == GpuIdleEntry(loader_ns=200 * US, host_ns=0, other_ns=300 * US)


def test_behind_the_last_work_nothing_was_launched() -> None:
    made = one_step()
    made.kernel(BF16_GEMM, 0, 300, launch=-10)
    assert idle(made) == GpuIdleEntry(loader_ns=0, host_ns=700 * US, other_ns=0)


def test_causes_are_apart_and_all_of_the_idle_time() -> None:
    made = one_step(10_000.0)
    for number in range(9):
        made.event("user_annotation", LOADER, number * 1_000 + 300, 150 * (number % 3))
        made.kernel(BF16_GEMM, number * 1_000 + 900, 200, launch=number * 1_000 + 400 * (number % 2))
    metrics = RankMetrics.of(read(made.text()))
    (gpu,) = metrics.gpus
    parts = gpu.waits_for_loader.total + gpu.waits_for_host.total + gpu.waits_for_other.total
    assert parts == gpu.idle.total == metrics.window.length - metrics.busy_ns
