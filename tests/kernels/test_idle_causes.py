"""Why a GPU is idle, on traces whose gaps can be added up by hand."""

from tests.support.kernel_traces import BF16_GEMM, COMMUNICATION_STREAM, LOADER, TraceWriter, ids, judged, read
from trainguard.kernels.entries import GpuIdleEntry
from trainguard.kernels.times.metrics import RankMetrics

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


def test_a_copy_that_waits_is_launched_when_its_call_begins() -> None:
    made = one_step()
    made.kernel(BF16_GEMM, 0, 300, launch=-10)
    made.event("cuda_runtime", "cudaMemcpyAsync", 320, 580, args={"correlation": 9})
    said = {"correlation": 9, "device": 0, "stream": 7}
    made.event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 800, 50, args=said)
    assert idle(made) == GpuIdleEntry(loader_ns=0, host_ns=(20 + 150) * US, other_ns=480 * US)


def test_idle_time_within_a_graph_is_no_stall() -> None:
    """The host waits 90 % of the time; the GPU is idle between the nodes of a graph, and 9 % until the next one."""
    made = TraceWriter()
    for step in range(5):
        start, number = 1_000.0 * step, 2 * step + 1
        made.step(step, start, 1_000)
        made.event("cuda_runtime", "cudaGraphLaunch", start + 5, 20, args={"correlation": number})
        for node in range(8):
            said = {"correlation": number, "device": 0, "stream": 7}
            made.event("kernel", BF16_GEMM, start + 30 + 110 * node, 50, args=said)
        made.event("cuda_runtime", "cudaMemcpyAsync", start + 40, 900, args={"correlation": number + 1})
        said = {"correlation": number + 1, "device": 0, "stream": 7}
        made.event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", start + 920, 10, args=said)
    found = {finding.id.removeprefix("kernels/"): finding for finding in judged(made.text()).findings}
    assert "GpuGap" not in found
    assert (found["SyncStall"].gain.share, found["SyncStall"].severity.value) == (0.09, "medium")
    assert {fact.name: fact.value for fact in found["SyncStall"].facts}["idle_share"] == 0.09


def test_a_gap_of_launched_work_is_not_of_the_host() -> None:
    made = TraceWriter()
    for step in range(6):
        made.step(step, 1_000.0 * step, 1_000)
        made.kernel(BF16_GEMM, 1_000.0 * step + 600, 400, launch=1_000.0 * step + 1)
    profile = judged(made.text())
    assert not {"GpuGap", "LaunchBound", "SyncStall"} & ids(profile)
    assert profile.critical_paths[0].parts["gpu_gap"] >= 500 * US
    assert profile.idle.host_wait_ns < 50 * US


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
