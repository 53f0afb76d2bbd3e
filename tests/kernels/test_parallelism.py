"""WrongParallel: DataParallel on several GPUs, and DistributedDataParallel whose collectives run on the host."""

import json
from typing import Any

import pytest

from tests.support.kernel_faults import STEP, good, steps
from tests.support.kernel_traces import A100, BF16_GEMM, NCCL, TraceWriter, ids, judged, real_names, real_profile
from trainguard.kernels.document import RankProfile
from trainguard.kernels.entries import KernelFinding

FORWARD, DISTRIBUTED = "DataParallel.forward", "DistributedDataParallel.forward"


def on_gpus(number: int, annotation: str, *, category: str = "user_annotation") -> RankProfile:
    """GPU 0 computes for the whole step, each other one for half of it."""

    def fill(made: TraceWriter, start: float) -> None:
        made.event(category, annotation, start + 1, STEP - 2)
        good(made, start)
        for device in range(1, number):
            args = {"correlation": made.launched, "device": device, "stream": 7}
            made.event("kernel", BF16_GEMM, start, STEP / 2, args=args)

    return judged(steps(fill, made=TraceWriter(gpus=[A100] * number)).text())


def with_library(share: float, *, prefix: str = "gloo", backend: str = "gloo", **more: Any) -> RankProfile:
    """DistributedDataParallel whose collectives run on the host for a share of the step while the GPU is idle."""

    def fill(made: TraceWriter, start: float) -> None:
        made.event("user_annotation", more.get("forward", DISTRIBUTED), start, 100)
        good(made, start, STEP * (1 - share))
        if share:
            made.event("user_annotation", f"{prefix}:all_reduce", start + STEP * (1 - share), STEP * share)
        if more.get("kernel"):
            made.kernel(NCCL, start, 100, launch=start, stream=20)

    made = steps(fill, made=TraceWriter(gpus=[A100 | more.get("gpu", {})]))
    document = made.document()
    document["distributedInfo"]["backend"] = backend
    return judged(json.dumps(document).encode())


def finding(profile: RankProfile) -> KernelFinding:
    (found,) = (each for each in profile.findings if each.id == "kernels/WrongParallel")
    return found


@pytest.mark.parametrize(("gpus", "fires"), [(1, False), (2, True), (4, True), (8, True)])
@pytest.mark.parametrize("category", ["user_annotation", "cpu_op"])
def test_data_parallel_fires_on_two_gpus_or_more(gpus: int, fires: bool, category: str) -> None:
    assert ("WrongParallel" in ids(on_gpus(gpus, FORWARD, category=category))) is fires


def test_data_parallel_fire_says_work_per_gpu_and_gain() -> None:
    found = finding(on_gpus(4, FORWARD))
    assert (found.value, found.threshold, found.severity.value, found.confidence) == (4.0, 1.0, "medium", "normal")
    assert "from 50.0 % to 100.0 % of the time" in found.summary
    assert found.gain.share == pytest.approx(0.375), "the mean of 1 and three times a half"
    assert [each.what for each in found.evidence] == [FORWARD, *(f"kernels of GPU {gpu}" for gpu in range(4))]
    assert found.evidence[0].count == 6


def test_several_gpus_without_data_parallel_are_silent() -> None:
    assert "WrongParallel" not in ids(on_gpus(4, "pipeline.forward"))
    assert "WrongParallel" not in ids(on_gpus(4, DISTRIBUTED))


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
def test_distributed_with_gloo_gradients_fires(share: float) -> None:
    found = finding(with_library(share))
    assert found.value == pytest.approx(share, abs=1e-3)
    assert found.gain.share == pytest.approx(share, abs=1e-3)
    assert "by gloo and not by NCCL" in found.summary
    assert found.evidence[0].count == 6


def test_gloo_in_the_head_alone_fires_without_a_gain() -> None:
    found = finding(with_library(0))
    assert (found.value, found.gain.ns_per_step) == (0.0, 0)
    assert found.evidence[0].what == "gloo"


@pytest.mark.parametrize(
    "healthy",
    [
        {"prefix": "nccl", "backend": "nccl"},
        {"backend": "cpu:gloo,cuda:nccl"},
        {"kernel": True},  # gloo on the host beside NCCL on the GPU
        {"gpu": {"computeMajor": 3, "computeMinor": 4}},
        {"forward": "Model.forward"},
        {"backend": "", "share": 0},
        {"backend": "rccl", "share": 0},
    ],
    ids=["nccl", "both", "kernels", "old gpu", "not distributed", "not said", "rccl"],
)
def test_nccl_or_unknown_backend_is_silent(healthy: dict[str, Any]) -> None:
    assert "WrongParallel" not in ids(with_library(**{"share": 0.3} | healthy))


def test_gloo_on_the_least_gpu_nccl_needs_fires() -> None:
    assert "WrongParallel" in ids(with_library(0.3, gpu={"computeMajor": 3, "computeMinor": 5}))


@pytest.mark.parametrize("name", real_names())
def test_given_a_real_trace_when_judged_then_it_is_silent(name: str) -> None:
    assert "WrongParallel" not in ids(real_profile(name))
