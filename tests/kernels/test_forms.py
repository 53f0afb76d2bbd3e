"""Forms of PyTorch's traces, each with a golden: what a version writes in another way gives the same columns."""

import json
from collections import Counter

import numpy as np
import pytest

from tests.support.kernel_traces import FOLDER, read, real_text, real_trace
from trainguard.kernels.columns import Trace, WorkKind
from trainguard.kernels.names.kernel_names import Precision
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.times.window import find_window

GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"
BASE_NS = 1_759_300_074_000_000_000


def form(name: str) -> Trace:
    return read((FOLDER / "forms" / f"{name}.json").read_bytes(), f"{name}.json")


def named(trace: Trace, sort: str) -> Counter[str]:
    rows = trace.gpu if sort == "gpu" else getattr(trace, sort)
    return Counter(trace.names[name] for name in rows.name)


def test_counter_tracks_are_counted_and_are_no_work() -> None:
    trace = form("counter_tracks")
    assert [(each.gpu, each.name, each.samples, each.mean, each.min, each.max) for each in trace.counters] == [
        (0, "DRAM Read (bytes)", 4, 1001.5, 1000.0, 1003.0),
        (0, "SM Active (%)", 4, 50.0, 20.0, 80.0),
    ]
    shown = rank_profile(trace).counters
    assert [(each.gpu, each.name, each.mean, each.min, each.max) for each in shown][1] == (
        0,
        "SM Active (%)",
        50,
        20,
        80,
    )
    assert len(trace.gpu) == 3, "nodes of graphs that record events or call the host are no work of the GPU"
    assert set(trace.tally) == {"events", "text_bytes"}


def test_copies_without_their_direction_in_the_name_have_it() -> None:
    trace = form("counter_tracks")
    assert named(trace, "gpu") == {GEMM: 1, "Memcpy HtoD (Pageable -> Device)": 1, "Memset (Device)": 1}
    assert "kernels/PageableCopy" in {finding.id for finding in rank_profile(trace).findings}


def test_blocks_per_multiprocessor_default_to_the_grid() -> None:
    trace = form("counter_tracks")
    assert trace.gpu.blocks_per_sm[trace.gpu.kind == WorkKind.COMPUTE].tolist() == [2.0]


@pytest.mark.parametrize(("name", "waits"), [("stream_sync_rows", 3), ("counter_tracks", 1)])
def test_synchronization_of_a_stream_is_a_wait_of_that_stream(name: str, waits: int) -> None:
    """Kineto gives them a row of their own, so that viewers show them: it is no stream, and no work."""
    trace = form(name)
    assert named(trace, "waits") == {"Stream Sync": waits}
    assert {trace.names[lane] for lane in trace.waits.lane} == {"7"}
    assert {trace.names[lane] for lane in trace.gpu.lane} == {"7"}
    judged = rank_profile(trace)
    assert judged.synchronization_source == "gpu"
    assert judged.synchronization_ns == {"stream_sync_rows": 3 * 698_000, "counter_tracks": 199_000}[name]


def test_times_of_months_from_the_base_keep_their_nanoseconds() -> None:
    """A base of up to three months ago makes times of 13 digits; a double still holds their thousandths."""
    trace = form("stream_sync_rows")
    assert trace.base_ns == BASE_NS
    assert np.diff(trace.gpu.start).tolist() == [1_000_000, 1_000_000]
    assert "rounded_times" not in trace.tally


def test_all_kernels_of_a_graph_belong_to_its_launch() -> None:
    trace = form("cuda_graph")
    window = find_window(trace)
    assert window.launch.tolist() == [0] * 7
    assert window.step.tolist() == [0] * 7
    judged = rank_profile(trace)
    assert judged.kernels[0].count == 6
    assert judged.busy_ns == 6 * 18_000 + 5_000
    assert not any("launch" in each for each in judged.quality.missing)


def test_typed_and_textual_metadata_are_the_same() -> None:
    trace = form("typed_metadata")
    assert (trace.rank, trace.world_size, trace.base_ns) == (3, 8, BASE_NS)
    one, other = (trace.gpu.operator == number for number in (20, 21))
    assert one.sum() == other.sum() == 1
    for column in (trace.gpu.device, trace.gpu.blocks_per_sm, trace.gpu.occupancy, trace.gpu.kind):
        assert column[one].tolist() == column[other].tolist()
    assert (trace.gpu.kind == WorkKind.COMMUNICATION).tolist() == [False, True, False, True]
    assert len(find_window(trace).steps) == 1, "its times are texts"
    table = {kernel.name: kernel.precision for kernel in rank_profile(trace).kernels}
    assert table["nvjet_unknown_type"] == Precision.BF16, "by the operator's inputs"


# Which real golden stands for what form.
REAL: dict[str, dict[str, str | bool]] = {
    "resnet50_workers0": {"category": "Kernel", "fraction": False, "base": False},
    "v100_rank1of2_diff_test": {"category": "kernel", "fraction": False, "base": False},
    "a100_ddp2_rank0_nccl_ns": {"category": "kernel", "fraction": True, "base": True},
    "mi250_toy_train": {"category": "kernel", "call": "hip"},
    "mi300_resnet_ddp8_rank0_stack": {"category": "python_function", "call": "hip", "fraction": True, "base": True},
    "a100_alexnet_cuda_sync": {"category": "cuda_sync"},
    "a100_triton_kernel": {"kernel": "triton_"},
    "gp100_gpu_user_annotation": {"category": "gpu_user_annotation"},
}


@pytest.mark.parametrize("name", REAL)
def test_a_real_golden_stands_for_each_form(name: str) -> None:
    """It has what its form is known by, and each row of the GPU that has a correlation joins its launch."""
    form_, trace = REAL[name], real_trace(name)
    text = real_text(name)
    if category := form_.get("category"):
        assert f'"{category}"'.encode() in text
    events = json.loads(text)["traceEvents"]
    fraction = any(isinstance(each.get("ts"), float) and each["ts"] % 1 for each in events)
    assert form_.get("fraction", fraction) == fraction
    assert form_.get("base", trace.base_ns > 0) == (trace.base_ns > 0)
    if call := form_.get("call"):
        assert any(each.startswith(str(call)) for each in named(trace, "launches"))
    if kernel := form_.get("kernel"):
        assert any(each.startswith(str(kernel)) for each in named(trace, "gpu"))
    assert len(trace.gpu)
    launched = set(trace.launches.correlation.tolist())
    joined = find_window(trace).launch >= 0
    assert joined.tolist() == [each in launched for each in trace.gpu.correlation.tolist()]
