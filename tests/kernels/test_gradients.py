"""Time of the backward pass by module: sequence numbers, held against the links that the profiler itself writes."""

import json
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel_traces import BF16_GEMM, TraceWriter, judged, real_profile, real_text
from tests.support.nsight_exports import GEMM, ExportWriter, global_id
from trainguard.kernels.profile import rank_profile

STACKED = "mi300_resnet_ddp8_rank0_stack"
LINEAR = "Net_0/Linear_1"


class Events:
    """The events of a real trace that one sort of question is asked of: which one is around a time on a thread."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.by_thread: dict[int, list[tuple[float, float, str]]] = {}
        for each in events:
            self.by_thread.setdefault(each["tid"], []).append((each["ts"], each["ts"] + each["dur"], each["name"]))
        for found in self.by_thread.values():
            found.sort(key=lambda each: (each[0], -each[1]))
        self.starts = {thread: [each[0] for each in found] for thread, found in self.by_thread.items()}

    def around(self, thread: int, time: float) -> list[tuple[float, float, str]]:
        """Return what is around a time, outermost first."""
        found = self.by_thread.get(thread, [])
        last = bisect_right(self.starts.get(thread, []), time)
        return [each for each in found[:last] if each[1] > time]


def linked_times() -> Counter[str]:
    """Return the nanoseconds of kernels by the module that the profiler's own links say the gradient is of."""
    events = json.loads(real_text(STACKED))["traceEvents"]
    spans = [each for each in events if each.get("ph") == "X"]
    modules = Events([each for each in spans if each["cat"] == "python_function" and "nn.Module: " in each["name"]])
    operators = Events([each for each in spans if each["cat"] == "cpu_op"])
    begun = {each["id"]: each for each in events if each.get("cat") == "fwdbwd" and each["ph"] == "s"}
    ends = {
        (each["tid"], each["ts"]): begun[each["id"]]
        for each in events
        if each.get("cat") == "fwdbwd" and each["ph"] == "f"
    }
    kernels = {
        each["args"]["correlation"]: round(each["dur"] * 1_000)
        for each in spans
        if each["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    }
    found: Counter[str] = Counter()
    for call in spans:
        lasted = kernels.get(call["args"].get("correlation")) if call["cat"] == "cuda_runtime" else None
        if lasted is None:
            continue
        linked = [
            ends[call["tid"], each[0]]
            for each in operators.around(call["tid"], call["ts"])
            if (call["tid"], each[0]) in ends
        ]
        if linked and not modules.around(call["tid"], call["ts"]):  # there a checkpoint computes again
            around = modules.around(linked[-1]["tid"], linked[-1]["ts"])
            found["/".join(each[2].removeprefix("nn.Module: ") for each in around)] += lasted
    del found[""]
    return found


def test_modules_of_gradients_are_those_of_the_profilers_links() -> None:
    found = {each.path: each.backward_ns for each in real_profile(STACKED).rollup.modules if each.backward_ns}
    linked = linked_times()
    assert len(linked) > 20
    assert sum(linked.values()) > 5_000_000
    for path, time in linked.items():
        assert found[path] >= time, path


def trained(*, number: int = 7, again: int = 0, name: str = "AddmmBackward0") -> dict[str, tuple[int, int]]:
    """A product in a module on one thread, its gradient on another; ``again`` threads use the number, too."""
    made = TraceWriter()
    made.step(0, 0, 2_000)
    for thread in range(1, 2 + again):
        at = 300 * (thread - 1)
        made.event("python_function", "nn.Module: Net_0", 10 + at, 200, tid=thread, args={})
        made.event("python_function", "nn.Module: Linear_1", 20 + at, 100, tid=thread, args={})
        made.event("cpu_op", "aten::addmm", 30 + at, 50, tid=thread, args={"Sequence number": 7, "Fwd thread id": 0})
        called(made, 40 + at, thread)
    args = {"Sequence number": number, "Fwd thread id": 1}
    made.event("cpu_op", f"autograd::engine::evaluate_function: {name}", 1_000, 200, tid=9, args=args)
    made.event("cpu_op", name, 1_010, 180, tid=9, args=args)
    called(made, 1_050, 9)
    return {each.path: (each.total_ns, each.backward_ns) for each in judged(made.text()).rollup.modules}


def test_a_trace_without_operators_has_ranges_alone() -> None:
    made = TraceWriter()
    made.step(0, 0, 2_000)
    made.event("user_annotation", "block 3", 10, 200)
    called(made, 50, 1)
    assert [each.path for each in judged(made.text()).rollup.modules] == ["block 3"]


def called(made: TraceWriter, at: float, thread: int) -> None:
    made.launched += 1
    args = {"correlation": made.launched}
    made.event("cuda_runtime", "cudaLaunchKernel", at, 5, tid=thread, args=args)
    made.event("kernel", BF16_GEMM, at + 10, 20, args=args | {"device": 0, "stream": 7})


def test_a_gradient_belongs_to_the_module_of_its_operator() -> None:
    assert trained() == {LINEAR: (40_000, 20_000)}
    assert trained(name="MyFunctionBackward") == {LINEAR: (40_000, 20_000)}


def test_another_number_is_of_no_module() -> None:
    assert trained(number=8) == {LINEAR: (20_000, 0)}
    assert trained(number=2**64 - 1) == {LINEAR: (20_000, 0)}


def test_a_number_of_several_threads_is_of_no_module() -> None:
    assert trained(again=1) == {LINEAR: (40_000, 0)}


@pytest.mark.parametrize("form", ["{name}, seq = {number}, op_id = 3", "{name}, seq = {number}"])
def test_gradients_of_ranges_are_known_by_emit_nvtx(form: str, tmp_path: Path) -> None:
    made = ExportWriter(tmp_path / "report.sqlite")
    made.gpu()
    made.range("step 0", 0, 2_000_000)
    made.range("block 3", 10_000, 200_000)
    made.range(form.format(name="aten::mm", number=7) + ", sizes = [[8, 4], [4, 2]]", 20_000, 100_000)
    made.kernel(GEMM, 60_000, 80_000, launch=30_000)
    for name in (
        "autograd::engine::evaluate_function: MmBackward0, op_id = 4",
        form.format(name="MmBackward0", number=7),
    ):
        made.add("NVTX_EVENTS", start=1_000_000, end=1_200_000, eventType=59, globalTid=global_id(1, 9), text=name)
    made.launched += 1
    made.call("cudaLaunchKernel_v7000", 1_050_000, 1_055_000, made.launched)
    made.rows["CUPTI_ACTIVITY_KIND_RUNTIME"][-1]["globalTid"] = global_id(1, 9)
    text = made.string(GEMM)
    grid = {"gridX": 1, "gridY": 1, "gridZ": 1, "blockX": 256}
    made.work(
        "CUPTI_ACTIVITY_KIND_KERNEL", 1_060_000, 1_080_000, made.launched, demangledName=text, shortName=text, **grid
    )
    trace = made.read()
    profile = rank_profile(trace)
    assert [(each.path, each.total_ns, each.backward_ns) for each in profile.rollup.modules] == [
        ("block 3", 40_000, 20_000)
    ]
    assert [(each.name, each.shapes) for each in profile.operators] == [("aten::mm", "[[8,4],[4,2]]")]
