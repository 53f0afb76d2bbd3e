"""GPUs, steps, kernels and tensor cores against torch-tb-profiler 0.4.3, its defects imitated.

It joins work of the GPU to a step by its operator, takes steps that the GPU's side records for steps of their own,
books collectives as computation, and knows few names of tensor cores.
"""

import json
import lzma
import re
from typing import Any

import numpy as np
import pytest

from tests.support.kernel_traces import FOLDER, real_profile, real_trace
from trainguard.kernels.columns import Ints, Rows, Trace, WorkKind
from trainguard.kernels.times.intervals import Spans, intersection, merged, union
from trainguard.kernels.times.metrics import RankMetrics

US = 1_000
DETAILS = json.loads(lzma.decompress((FOLDER / "peers" / "details.json.xz").read_bytes()))["tb_plugin"]
STEPS = {each["trace"]: each for each in json.loads((FOLDER / "peers.json").read_text("utf-8"))["tb_plugin"]}
TENSOR_CORES = (
    "h884", "s884", "h1688", "s1688", "hmma", "i8816", "16816", "dgrad_1x1_stride_2x2", "first_layer_wgrad_kernel",
    "conv1x1", "conv2d_c1_k1", "direct_group", "xmma_implicit_gemm", "xmma_sparse_conv",
    "xmma_warp_specialized_implicit_gemm", "xmma_gemm", "xmma_sparse_gemm", "c1688",
)  # fmt: skip
COLLECTIVES = ("nccl:broadcast", "nccl:reduce", "nccl:all_reduce", "nccl:all_gather", "nccl:reduce_scatter")
BY_TRACE = [pytest.param(each, id=each["trace"]) for each in DETAILS]
AMD = "mi300_resnet_ddp8_rank0_stack"
JOINED = [each for each in BY_TRACE if each.id != AMD]


def steps_by_operator(metrics: RankMetrics) -> tuple[Ints, Ints]:
    """Return where steps start and end when work belongs to the step in which its operator starts."""
    trace, steps = metrics.trace, metrics.window.steps
    known = np.flatnonzero(metrics.operator >= 0)
    at = trace.operators.start[metrics.operator[known]]
    place = np.searchsorted(steps.start, at, side="right") - 1
    inside = (place >= 0) & (at < steps.end[np.maximum(place, 0)])
    last = np.full(len(steps), np.iinfo(np.int64).min)
    np.maximum.at(last, place[inside], trace.gpu.end[known[inside]])
    before = np.concatenate(([steps.start[0]], np.maximum.accumulate(last)[:-1]))
    start = np.maximum(steps.start, before)
    return start, np.maximum(np.maximum(steps.end, last), start)


@pytest.mark.parametrize("peer", JOINED)
def test_steps(peer: dict[str, Any]) -> None:
    start, end = steps_by_operator(RankMetrics.of(real_trace(peer["trace"])))
    assert (end - start) / US == pytest.approx(STEPS[peer["trace"]]["steps_total_us"], abs=0.5)


def test_steps_of_amd_are_those_of_the_host_and_of_the_gpu() -> None:
    """Kernels of AMD name no operator, so that it knows no work of the GPU in any step."""
    trace = real_trace(AMD)
    found = [
        int(end - start) / US
        for rows in (trace.annotations, trace.gpu_annotations)
        for name, start, end in zip(rows.name, rows.start, rows.end, strict=True)
        if trace.names[name].startswith("ProfilerStep")
    ]
    theirs = STEPS[AMD]["steps_total_us"]
    assert sorted(found)[:3] == pytest.approx(sorted(theirs)[:3], abs=1.0)
    assert sorted(found)[3:5] == pytest.approx(sorted(theirs)[3:5], abs=1.0)


def named(trace: Trace, rows: Rows) -> Spans:
    mine = np.array([trace.names[name] in COLLECTIVES for name in rows.name], dtype=bool)
    return merged(rows.start[mine], rows.end[mine])


@pytest.mark.parametrize("peer", JOINED)
def test_communication(peer: dict[str, Any]) -> None:
    """Its communication is what five annotations span, on host and GPU; all-to-all is none of them."""
    trace = real_trace(peer["trace"])
    metrics = RankMetrics.of(trace)
    start, end = steps_by_operator(metrics)
    computing = union(*(gpu.kernels for gpu in metrics.gpus))
    communicating = union(named(trace, trace.annotations), named(trace, trace.gpu_annotations))
    parts = {
        "computation": computing.within(start, end),
        "communication": communicating.within(start, end),
        "overlap": intersection(computing, communicating).within(start, end),
    }
    for name, values in parts.items():
        theirs = [step[name] for step in peer["comm_overlap"]]
        # A step of theirs and ours share an end only where an operator starts in the step that launches its work.
        assert values / US == pytest.approx(theirs, abs=200 if name == "overlap" else 1.0), name


@pytest.mark.parametrize("peer", JOINED)
def test_gpus(peer: dict[str, Any]) -> None:
    profile = real_profile(peer["trace"])
    (device,) = profile.devices
    assert device.device == peer["gpu"]
    # Its window of the graphs' trace ends with the last step that an operator gives.
    slack = 1e-4 if peer["trace"].startswith("v100") else 2e-8
    assert device.kernel_ns / profile.window_ns == pytest.approx(peer["utilization"], abs=slack)
    assert device.sm_efficiency == pytest.approx(peer["est_sm_efficiency"], abs=1e-4)
    assert device.occupancy is not None
    assert 100 * device.occupancy == pytest.approx(peer["est_occupancy_pct"], abs=0.01)


@pytest.mark.parametrize("peer", BY_TRACE)
def test_kernels(peer: dict[str, Any]) -> None:
    """It counts the whole trace, and tells names apart by their whole length."""
    trace = real_trace(peer["trace"])
    gpu = trace.gpu
    lasted = gpu.end - gpu.start
    for kernel in peer["kernels"]:
        cut = [place for place, name in enumerate(trace.names) if name == kernel["name"]]
        cut = cut or [place for place, name in enumerate(trace.names) if name.startswith(kernel["name"])]
        runs = [gpu.name == place for place in cut]
        found = [(int(mine.sum()), int(lasted[mine].sum()), int(lasted[mine].max())) for mine in runs if mine.any()]
        theirs = (kernel["count"], round(kernel["sum"] * US), round(kernel["max"] * US))
        assert theirs in found, kernel["name"]


@pytest.mark.parametrize("peer", BY_TRACE)
def test_tensor_cores(peer: dict[str, Any]) -> None:
    trace = real_trace(peer["trace"])
    kernels = trace.gpu.kind <= WorkKind.COMMUNICATION
    lasted = (trace.gpu.end - trace.gpu.start)[kernels]
    knows = np.array([any(word in name for word in TENSOR_CORES) for name in trace.names])
    theirs = lasted[knows[trace.gpu.name[kernels]]].sum() / lasted.sum()
    assert theirs == pytest.approx(peer["tensor_core_share"], abs=1e-6)
    profile = real_profile(peer["trace"])
    assert profile.activity is not None
    assert profile.tensor_core_ns / profile.activity.kernel_ns >= theirs - 1e-6, "we know more names"


def test_an_elementwise_kernel_of_miopen_is_not_on_tensor_cores() -> None:
    """``SubTensorOpWithScalar1d`` has the letters of cutlass' ``tensorop``."""
    kernels = [kernel for kernel in real_profile(AMD).kernels if kernel.name.startswith("SubTensorOp")]
    assert kernels
    assert not any(kernel.tensor_core for kernel in kernels)


# What runs beside a product: it scales, changes the layout, computes offsets, copies or adds up.
HELPERS = re.compile(r"scalePackedTensor|nchwToNhwc|nhwcToNchw|compute\w?Offsets|copy_device|splitKreduce")

ELIGIBLE = ("aten::cudnn_convolution", "aten::mm", "aten::addmm", "aten::bmm")


def test_what_could_be_on_tensor_cores_is_theirs_without_helpers() -> None:
    """It counts all kernels of an operator, those that help a product, too; we count by kernel."""
    (peer,) = (each for each in DETAILS if each["trace"] == "resnet50_workers0")
    metrics, profile = RankMetrics.of(real_trace("resnet50_workers0")), real_profile("resnet50_workers0")
    trace = metrics.trace
    lasted = trace.gpu.end - trace.gpu.start
    kernels = trace.gpu.kind <= WorkKind.COMMUNICATION
    names = [trace.names[name] for name in trace.operators.name[np.maximum(metrics.operator, 0)]]
    eligible = np.array([name.startswith(ELIGIBLE) for name in names]) & (metrics.operator >= 0) & kernels
    assert lasted[eligible].sum() / lasted[kernels].sum() == pytest.approx(peer["eligible_share"], abs=1e-3)
    helper = np.array([bool(HELPERS.search(trace.names[name])) for name in trace.gpu.name])
    assert lasted[eligible & ~helper].sum() == profile.eligible_ns


def test_rules_fire_where_the_plugin_gives_the_same_advice() -> None:
    """Its advice: a larger batch on the A100, the loader and mixed precision on ResNet, nothing on the others."""

    def rules(name: str) -> dict[str, float]:
        return {each.id.removeprefix("kernels/"): each.value for each in real_profile(name).findings}

    resnet = rules("resnet50_workers0")
    assert resnet["LoaderBound"] == pytest.approx(0.334, abs=5e-3)
    assert resnet["TensorCoresIdle"] == 0
    assert rules("a100_ddp2_rank0_nccl_ns")["GpuBusyLow"] < 0.5
    for name in ("a100_rank3of8_diff_control", "v100_rank1of2_diff_test", AMD):
        assert not {"GpuBusyLow", "LoaderBound"} & set(rules(name))
