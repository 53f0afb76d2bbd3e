"""A trace of several GPUs, as one host of JAX has it: each GPU on its own, and the rank as their mean."""

import pytest

from tests.support.kernel_traces import (
    A100,
    BF16_GEMM,
    NCCL,
    PINNED,
    TraceWriter,
    ids,
    judged,
    real_names,
    real_profile,
)
from trainguard.kernels.document import RankProfile

STEP = 1_000


def on(made: TraceWriter, device: int, name: str, start: float, lasts: float) -> None:
    made.kernel(name, start, lasts, launch=start, call=1, stream=7 + device)
    made.events[-1]["args"]["device"] = device


def writer(gpus: int = 2, steps: int = 3) -> TraceWriter:
    made = TraceWriter(gpus=[A100 | {"id": device} for device in range(gpus)])
    for step in range(steps):
        made.step(step, STEP * step, STEP)
    return made


def one_computes_one_communicates() -> RankProfile:
    """GPU 0 computes all the time. GPU 1 communicates half of the time and is idle for the rest."""
    made = writer()
    for step in range(3):
        on(made, 0, BF16_GEMM, STEP * step, STEP)
        on(made, 1, NCCL, STEP * step, STEP / 2)
    return judged(made.text())


def test_each_gpu_has_its_own_times() -> None:
    found = one_computes_one_communicates()
    zero, one = found.devices
    whole = found.window_ns
    assert (zero.busy_ns, zero.compute_ns, zero.idle_ns, zero.communication_ns) == (whole, whole, 0, 0)
    assert (one.busy_ns, one.compute_ns, one.communication_ns) == (whole // 2, 0, whole // 2)
    assert (one.overlap_ns, one.exposed_communication_ns, one.idle_ns) == (0, whole // 2, whole // 2)


def test_the_rank_is_the_mean_of_its_gpus() -> None:
    found = one_computes_one_communicates()
    whole = found.window_ns
    assert (found.busy_ns, found.compute_ns) == (whole * 3 // 4, whole // 2)
    assert (found.communication_ns, found.exposed_communication_ns, found.overlap_ns) == (whole // 4, whole // 4, 0)
    # Both in the first half of a step, one in the second.
    assert (min(found.utilization), max(found.utilization)) == (0.5, 1.0)
    assert [step.breakdown["exposed_communication"] for step in found.steps] == [250_000] * 3
    assert [sum(step.breakdown.values()) for step in found.steps] == [step.gpu_duration_ns for step in found.steps]
    assert "2 GPUs, judged by their mean" in found.quality.missing


def test_computation_does_not_cover_communication_of_other_gpus() -> None:
    found = one_computes_one_communicates()
    (collective,) = found.collectives
    assert (collective.overlap_ns, collective.exposed_ns) == (0, found.window_ns // 2)
    assert "ExposedCommunication" in ids(found)


def test_an_idle_gpu_beside_a_busy_one_fires() -> None:
    made = writer(steps=4)
    for step in range(4):
        on(made, 0, BF16_GEMM, STEP * step, STEP)
        on(made, 1, BF16_GEMM, STEP * step, 100)
    (finding,) = (each for each in judged(made.text()).findings if each.id == "kernels/GpuBusyLow")
    assert finding.value == pytest.approx(0.55)
    assert finding.summary == "The 2 GPUs are on average busy 55.0 % of the time, GPU 1 10.0 %."


def test_a_gpu_that_is_used_by_the_way_does_not_halve_the_rank() -> None:
    """A process of PyTorch leaves a copy or a context on GPU 0 beside its own GPU."""
    made = writer()
    for step in range(3):
        on(made, 1, BF16_GEMM, STEP * step, STEP)
    made.copy(PINNED, 500, 5)
    found = judged(made.text())
    assert [device.counted for device in found.devices] == [False, True]
    assert found.busy_ns == found.window_ns
    assert "GPU 0 with hardly any work, not in the mean" in found.quality.missing
    assert "GpuBusyLow" not in ids(found)


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_parts_add_up(gpus: int) -> None:
    made = writer(gpus)
    for device in range(gpus):
        for step in range(3):
            on(made, device, BF16_GEMM, STEP * step + 7.003 * device, 311.017)
            on(made, device, NCCL, STEP * step + 200.001, 300.777 + 13.001 * device)
    made.copy(PINNED, 700.003, 77.001)
    assert_adds_up(judged(made.text()))


@pytest.mark.parametrize("name", real_names()[:4])
def test_parts_of_real_traces_add_up(name: str) -> None:
    assert_adds_up(real_profile(name))


def assert_adds_up(found: RankProfile) -> None:
    assert found.busy_ns == found.compute_ns + found.exposed_communication_ns + found.exposed_memory_ns
    assert found.communication_ns == found.overlap_ns + found.exposed_communication_ns
    counted = [device for device in found.devices if device.counted]
    for device in counted:
        assert device.busy_ns == device.compute_ns + device.exposed_communication_ns + device.exposed_memory_ns
        assert device.busy_ns + device.idle_ns == found.window_ns
    if counted:
        mean = sum(device.busy_ns for device in counted) / len(counted)
        assert found.busy_ns == pytest.approx(mean, abs=3)
    for step in found.steps:
        assert sum(step.breakdown.values()) == step.gpu_duration_ns
