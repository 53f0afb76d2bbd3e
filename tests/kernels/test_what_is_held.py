"""Traces with other work, other marks or other clocks than those of one GPU's PyTorch: what they hold is said."""

import json
from typing import Any

import pytest

from tests.support import xplanes
from tests.support.kernel_faults import STEP
from tests.support.kernel_traces import A100, BF16_GEMM, TraceWriter, judged, read
from trainguard.kernels.document import AcrossRanks, RankProfile
from trainguard.kernels.join import across_ranks
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.times.metrics import RankMetrics


def said(profile: RankProfile) -> tuple[str, str]:
    """Return what a trace without work of a GPU holds, and the advice."""
    (finding,) = (each for each in profile.findings if each.id == "kernels/TraceQuality")
    (held,) = (line for line in profile.quality.missing if line.startswith("no work of a GPU"))
    return held, finding.recommendation


def chrome(*events: dict[str, Any]) -> bytes:
    return json.dumps(
        {"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "ts": 9, "dur": 5} | each for each in events]}
    ).encode()


@pytest.mark.parametrize(
    ("text", "held", "advice"),
    [
        (chrome({"cat": "mtia_ccp_events", "name": "k"}), "work of MTIA", "Perfetto"),
        (
            chrome({"ph": "M", "name": "process_name", "args": {"name": "Ascend Hardware"}}, {"name": "MatMul"}),
            "work of Ascend NPUs",
            "MindStudio",
        ),
        (
            chrome({"ph": "B", "cat": "kernel", "name": "k"}, {"ph": "E", "name": "k"}),
            "begin and end",
            "torch.profiler",
        ),
        (
            chrome({"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": 4}}),
            "1 launching call",
            "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        ),
        (chrome({"cat": "cpu_op", "name": "aten::mm"}), "the host's operators", "ProfilerActivity.CUDA"),
    ],
)
def test_a_trace_without_work_of_a_gpu_says_what_it_holds(text: bytes, held: str, advice: str) -> None:
    words, remedy = said(judged(text))
    assert held in words
    assert advice in remedy
    assert "machine with a GPU" not in remedy


def test_a_profile_of_a_tpu_says_so() -> None:
    made = xplanes.ProfileWriter(gpus=0)
    made.step(1, 0, 900)
    plane = xplanes.PlaneWriter("/device:TPU:0")
    plane.event("XLA Ops", "fusion.1", 0, 500)
    made.others.append(plane)
    words, advice = said(rank_profile(xplanes.read(made.text())))
    assert "work of TPUs" in words
    assert "XProf" in advice


@pytest.mark.parametrize("name", ["$api.py:3105 block_until_ready", "$array.py:631 _value", "BlockHostUntilReady"])
def test_jax_waits_where_it_blocks(name: str) -> None:
    """The wait is on Python's thread, the launches are on another one: the critical path is the GPU's."""
    made = xplanes.ProfileWriter()
    for step in range(4):
        start = 1_000_000 * step
        made.step(step, start, 1_000_000)
        made.kernel(BF16_GEMM, start + 50_000, 900_000, launch=start + 20_000)
        made.host.event("python-main", name, start + 60_000, 895_000)
    metrics = RankMetrics.of(xplanes.read(made.text()))
    assert metrics.host_sync.total == 4 * 895_000
    path = rank_profile(metrics.trace).critical_paths[0]
    assert path.parts["compute"] > 0.85 * path.total_ns


def merged(labels: tuple[str, str], device: int = 1) -> TraceWriter:
    """Two ranks in one file, each with its own correlation ids from 1 on."""
    made = TraceWriter(gpus=[A100, A100 | {"id": 1}])
    for rank, label in enumerate(labels):
        made.launched = 0
        begin = len(made.events)
        for step in range(4):
            start = 1_000.0 * step + 300 * rank
            made.step(step, start, 1_000)
            made.kernel(BF16_GEMM, start + 20, 500 - 300 * rank, launch=start + 10)
        for event in made.events[begin:]:
            on_gpu = event["cat"] == "kernel"
            event["pid"] = f"{label}{0 if on_gpu else 10}"
            if on_gpu:
                event["args"]["device"] = rank * device
    return made


@pytest.mark.parametrize("labels", [("[TP00] ", "[TP01] "), ("rank0 ", "rank1 "), ("Rank 7: ", "Rank 12: ")])
@pytest.mark.parametrize("device", [0, 1])
def test_ranks_in_one_file_keep_their_own_launches(labels: tuple[str, str], device: int) -> None:
    """As SGLang's merge_profiles writes them; each rank may call its GPU 0."""
    profile = judged(merged(labels, device).text())
    assert profile.launches is not None
    assert (profile.launches.kernels, profile.launches.calls, profile.launches.unlaunched) == (8, 8, 0)
    assert profile.launch_delay_ns is not None
    assert profile.launch_delay_ns.median == 5_000
    assert [each.busy_ns for each in profile.devices] == [2_000_000, 800_000]
    assert "2 ranks in one file, judged as one" in profile.quality.missing
    assert not profile.quality.damaged


def test_other_texts_as_processes_are_no_ranks() -> None:
    made = merged(labels=("", ""))
    for event in made.events:
        event["pid"] = "GPU 0" if event["cat"] == "kernel" else "python 10"
    profile = judged(made.text())
    assert not any("in one file" in line for line in profile.quality.missing)
    assert profile.launches is not None
    assert profile.launches.unlaunched == 0


@pytest.mark.parametrize(("processes", "mixed"), [((10, 20), True), ((10, 10), False), (("a", "b"), True)])
def test_processes_without_labels_are_one_mixture(processes: tuple[Any, Any], *, mixed: bool) -> None:
    """Their numbers of launches are the same, so no finding is sure."""
    made = merged(labels=("", ""))
    half = len(made.events) // 2
    for place, event in enumerate(made.events):
        event["pid"] = 0 if event["cat"] == "kernel" else processes[place >= half]
    profile = judged(made.text())
    assert any("2 processes that launch work in one file" in line for line in profile.quality.missing) == mixed
    judging = [each for each in profile.findings if each.id != "kernels/TraceQuality"]
    assert judging
    assert {each.confidence for each in judging} == ({"low"} if mixed else {"normal"})


@pytest.mark.parametrize(("call", "kind"), [("hipLaunchKernel", "launch_bound"), ("cudaLaunchKernel", "late_launches")])
def test_launches_take_longer_on_amd(call: str, kind: str) -> None:
    made = TraceWriter()
    for step in range(6):
        made.step(step, STEP * step, STEP)
        for place in range(100):
            begin = STEP * step + STEP / 100 * place
            made.kernel(BF16_GEMM, begin + 20, 40, launch=begin, call=5)
    for event in made.events:
        event["name"] = call if event["name"] == "cudaLaunchKernel" else event["name"]
    assert [each.kind for each in judged(made.text()).findings if each.id == "kernels/LaunchBound"] == [kind]


def test_steps_of_the_optimizer_are_steps() -> None:
    """A trace that Dynolog asked for has no marks of the profiler."""
    made = TraceWriter()
    for step in range(6):
        made.kernel(BF16_GEMM, 1_000.0 * step + 20, 900, launch=1_000.0 * step + 10)
        made.event("user_annotation", "Optimizer.step#AdamW.step", 1_000.0 * step + 900, 100)
        made.event("user_annotation", "Optimizer.zero_grad#AdamW.zero_grad", 1_000.0 * step, 5)
    profile = rank_profile(read(made.text()))
    assert [(step.number, step.duration_ns) for step in profile.steps] == [(each, 1_000_000) for each in range(1, 6)]
    assert "no steps" not in profile.quality.missing


def test_a_slow_rank_beside_one_other_is_compared_with_it() -> None:
    ranks = []
    for rank, lasts in ((0, 400), (1, 800)):
        made = TraceWriter(rank=rank)
        for step in range(4):
            made.step(step, 1_000.0 * step, 1_000)
            made.kernel(BF16_GEMM, 1_000.0 * step + 20, lasts, launch=1_000.0 * step + 10)
        ranks.append(judged(made.text()))
    across = across_ranks(ranks)
    assert isinstance(across, AcrossRanks)
    (finding,) = across.findings
    assert finding.summary == "Rank 1 computes 2.00 times as long as the only other like rank."
