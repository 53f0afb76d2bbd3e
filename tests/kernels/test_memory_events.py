"""Events of allocators in traces: real recordings, written ones, and damaged ones."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernel_traces import FP32_GEMM, TraceWriter, judged, read, real_profile
from trainguard.kernels.memory.entries import GpuMemory, MemoryHolder
from trainguard.kernels.memory.frames import own_frame

RECORDED = Path(__file__).parents[1] / "data" / "memory" / "cpu_adam_steps.json.xz"
# Bytes of the recorded model.
PARAMETERS = 4 * (256 * 1024 + 1024 + 1024 * 256 + 256)


@pytest.fixture(scope="module")
def text() -> bytes:
    return lzma.decompress(RECORDED.read_bytes())


@pytest.fixture(scope="module")
def recorded(text: bytes) -> GpuMemory:
    (memory,) = judged(text).memory
    return memory


def test_kinds_of_a_real_recording_are_those_of_its_model(recorded: GpuMemory) -> None:
    assert recorded.kinds["gradients"] == PARAMETERS
    # Two moments of each parameter, and four tensors that count steps.
    assert recorded.kinds["optimizer_state"] == 2 * PARAMETERS + 4 * 4
    assert recorded.kinds["unattributed"] == 0
    assert (recorded.device, recorded.limit, recorded.is_relative) == (-1, None, False)


def test_holders_of_a_recording_have_operators_and_functions(recorded: GpuMemory) -> None:
    largest = recorded.holders[0]
    assert largest.kind == "optimizer_state"
    assert largest.where[:4] == [
        "aten::empty_strided",
        "aten::empty_like",
        "aten::zeros_like",
        "Optimizer.step#Adam.step",
    ]
    assert "torch/optim/adam.py:140 _init_group" in largest.where
    assert own_frame(largest.where) == "rec.py:6 <module>"


def test_stacks_that_say_who_allocates_are_no_fault(text: bytes) -> None:
    document = json.loads(text)
    assert "stacks of Python" not in str(judged(text).quality.missing)
    document["traceEvents"] = [each for each in document["traceEvents"] if each["name"] != "[memory]"] * 2
    document["traceEvents"] += [each for each in document["traceEvents"] if each.get("cat") == "python_function"] * 3
    assert "stacks of Python, which nothing here reads" in str(judged(json.dumps(document).encode()).quality.missing)


def test_the_curve_of_a_real_recording_has_what_the_trace_says(text: bytes, recorded: GpuMemory) -> None:
    events = [each["args"] for each in json.loads(text)["traceEvents"] if each["name"] == "[memory]"]
    assert recorded.peak == max(each["Total Allocated"] for each in events)
    assert recorded.counts["events"] == len(events)
    assert set(recorded.curve.allocated) <= {each["Total Allocated"] for each in events}


def test_activations_live_from_forward_to_backward(recorded: GpuMemory) -> None:
    """At the end of a forward pass the outputs of ReLU and of the difference are held, and two scalars."""
    assert max(recorded.curve.kinds["activations"]) == 64 * 1024 * 4 + 64 * 256 * 4 + 2 * 4


def test_traces_of_gpus_have_limit_and_reserved_memory() -> None:
    (memory,) = real_profile("h100_bert_small_1step").memory
    assert (memory.device, memory.limit) == (0, 85_018_279_936)
    assert (memory.peak, memory.most_reserved) == (101_305_344, 121_634_816)
    assert memory.kinds["unattributed"] == 91_505_152 - 144_384, "what was held before the trace"


def test_old_traces_without_totals_are_relative() -> None:
    (memory,) = real_profile("resnet50_workers0").memory
    assert memory.is_relative
    assert (memory.most_reserved, memory.holders) == (None, [])
    assert memory.kinds["unattributed"] == memory.peak == 2_791_636_480


class Memory(TraceWriter):
    """Six steps of forward, backward and optimizer on two threads."""

    held = 1_000_000_000
    reserved = 2_000_000_000

    def change(self, at: float, address: int, size: int, *, thread: int = 1, **more: Any) -> None:
        self.held += size
        said = {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": size, "Total Allocated": self.held}
        said |= {"Total Reserved": self.reserved, **more}
        event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at, "pid": 1, "tid": thread}
        self.events.append({**event, "args": said})

    def train(self, steps: int = 6, *, leak: int = 0) -> "Memory":
        for step in range(steps):
            at = 10_000.0 * step
            self.step(step, at, 9_900)
            self.event("cpu_op", "aten::linear", at + 100, 100)
            self.change(at + 150, 1, 5_000_000)
            if leak:
                self.event("cpu_op", "aten::clone", at + 300, 100)
                self.change(at + 310, 1_000 + step, leak)
            self.event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", at + 1_000, 500, tid=2)
            self.change(at + 1_100, 2, 3_000_000, thread=2)
            self.change(at + 1_200, 3, 2_000_000, thread=2)
            self.change(at + 1_600, 3, -2_000_000, thread=2)
            self.change(at + 1_700, 1, -5_000_000, thread=2)
            self.event("user_annotation", "Optimizer.step#SGD.step", at + 3_000, 500)
            if not step:
                self.change(at + 3_100, 4, 7_000_000)
            self.change(at + 3_200, 2, -3_000_000)
            self.kernel(FP32_GEMM, at + 200, 9_000, launch=at + 110)
        return self


def memory_of(made: TraceWriter) -> GpuMemory:
    (memory,) = judged(made.text()).memory
    return memory


def test_backward_of_another_thread_leaves_gradients() -> None:
    memory = memory_of(Memory().train())
    assert memory.peak == 1_000_000_000 + 7_000_000 + 5_000_000 + 3_000_000 + 2_000_000
    assert memory.kinds == {
        "parameters": 0,
        "gradients": 3_000_000,
        "optimizer_state": 7_000_000,
        "activations": 5_000_000,
        "workspace": 2_000_000,
        "unattributed": 1_000_000_000,
    }
    assert memory.holders[0] == MemoryHolder(
        kind="optimizer_state", bytes=7_000_000, blocks=1, where=["Optimizer.step#SGD.step"]
    )


def test_growth_is_what_steps_begin_with() -> None:
    growth = memory_of(Memory().train(8, leak=2_000_000)).growth
    assert growth is not None
    assert growth.at_steps == [1_007_000_000 + 2_000_000 * step for step in range(2, 8)]
    assert (growth.kept, growth.where) == (2_000_000 * 4, ["aten::clone"])


def test_a_leak_in_a_trace_fires_and_a_steady_one_does_not() -> None:
    found = {each.id for each in judged(Memory().train(12, leak=2_000_000).text()).findings}
    assert "kernels/GpuMemoryGrows" in found
    assert not {each.id for each in judged(Memory().train(12).text()).findings if "Memory" in each.id}


def test_a_nearly_full_gpu_whose_memory_is_in_parts_fires() -> None:
    made = Memory()
    made.held, made.reserved = 20 << 30, 37 << 30
    (finding,) = (each for each in judged(made.train().text()).findings if each.id == "kernels/GpuMemoryFragmented")
    facts = {fact.name: fact.value for fact in finding.facts}
    peak = (20 << 30) + 17_000_000
    assert facts == {
        "unused_share": round(1 - peak / (37 << 30), 4),
        "reserved_share": round(37 / 40, 4),
    }
    made = Memory()
    made.held, made.reserved = 31 << 30, 37 << 30
    assert "kernels/GpuMemoryFragmented" not in {each.id for each in judged(made.train().text()).findings}


def test_two_gpus_have_a_history_each() -> None:
    made = Memory().train()
    made.gpus = [made.gpus[0], {**made.gpus[0], "id": 1}]
    made.change(1, 9, 50, **{"Device Id": 1, "Total Allocated": 50})
    made.change(2, 9, 50, **{"Device Type": 0, "Device Id": -1})
    assert [(each.device, each.peak) for each in judged(made.text()).memory] == [(0, 1_017_000_000), (1, 50)]


def test_what_is_allocated_behind_an_operator_is_not_its_own() -> None:
    made = Memory()
    made.event("cpu_op", "aten::linear", 100, 100)
    made.event("cpu_op", "aten::addmm", 110, 50)
    for number, at in enumerate((120, 170, 200, 300)):
        made.change(at, number, 1_000 + number)
    held = {each.bytes: each.where for each in memory_of(made).holders}
    assert held == {1_000: ["aten::addmm", "aten::linear"], 1_001: ["aten::linear"], 1_002 + 1_003: []}


def test_a_lost_free_ends_with_the_next_use_of_its_address() -> None:
    made = Memory()
    for number in range(3):
        made.event("cpu_op", "aten::empty", 100.0 * number, 50)
        made.change(100.0 * number + 10, 7, 1_000)
    memory = memory_of(made)
    assert memory.counts["lost_frees"] == 2
    assert sum(each.bytes for each in memory.holders) == 1_000


VALUES = st.none() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=4) | st.lists(st.integers())
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        name: VALUES | st.integers(-1, 3)
        for name in ("Device Type", "Device Id", "Addr", "Bytes", "Total Allocated", "Total Reserved")
    },
)


@given(st.lists(st.tuples(VALUES | st.integers(0, 60_000), EVENTS), max_size=8))
def test_any_values_of_events_end_in_a_profile(drawn: list[tuple[Any, dict[str, Any]]]) -> None:
    made = Memory().train(2)
    for at, said in drawn:
        made.events.append({"ph": "i", "name": "[memory]", "ts": at, "pid": 1, "tid": 1, "args": said})
    for memory in judged(json.dumps(made.document(), allow_nan=True).encode()).memory:
        assert memory.held == sum(memory.kinds.values())
        assert min(memory.curve.allocated) >= 0


def test_events_without_sizes_leave_no_history_and_are_counted() -> None:
    """Reserved memory alone still counts for GpuMemoryFull."""
    made = TraceWriter()
    made.kernel(FP32_GEMM, 10, 20, launch=1)
    said = {"Device Type": 1, "Device Id": 0, "Total Reserved": 5}
    made.events.append({"ph": "i", "name": "[memory]", "ts": 3, "pid": 1, "tid": 1, "args": said})
    made.events.append({"ph": "i", "name": "[memory]", "ts": 3, "pid": 1, "tid": 1, "args": {"Device Type": 1}})
    trace = read(made.text())
    assert (len(trace.memory), trace.reserved, trace.tally["bad_memory_events"]) == (0, {0: 5}, 1)
