"""The reader of XLA's profiles: real ones, written ones with GPUs, and damage."""

import gzip
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.xplanes import START_NS, PlaneWriter, ProfileWriter, decoded, read, real_names, real_text
from trainguard.core.errors import KernelTraceError
from trainguard.formats.protobuf import WHOLE, Wire
from trainguard.kernels import columns
from trainguard.kernels.columns import Trace, WorkKind
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.xplane import reader
from trainguard.kernels.readers.xplane.reader import framework_of
from trainguard.kernels.times.window import find_window

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"


def profile(steps: int = 4) -> ProfileWriter:
    made = ProfileWriter()
    for number in range(steps):
        start = 1_000_000 * number
        made.step(number, start, 900_000)
        made.kernel(GEMM, start + 100_000, 400_000, launch=start + 50_000)
        made.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", start + 500_000, 200_000, launch=start + 60_000)
        made.copy("MemcpyH2D", start + 20_000, 30_000, "kind_src:pageable kind_dst:device size:4096 dest:0 async:1")
    return made


def named(trace: Trace, sort: str) -> Counter[str]:
    rows = trace.gpu if sort == "gpu" else getattr(trace, sort)
    return Counter(trace.names[name] for name in rows.name)


def test_jax_profile_on_eight_gpus_keeps_each_stream_row() -> None:
    trace = read(real_text("mi300_jax_conv_minimal"))
    assert set(trace.tally) == {"events", "text_bytes"}
    assert np.unique(trace.gpu.device, return_counts=True)[1].tolist() == [60, *[25] * 7]
    assert named(trace, "gpu")["input_transpose_fusion"] == 40
    space = decoded(real_text("mi300_jax_conv_minimal"))
    streams = [line for plane in space.planes for line in plane.lines if line.name.startswith(b"Stream #")]
    lasted = [event.duration_ps for line in streams for event in line.events]
    assert len(trace.gpu) == len(lasted)
    assert int((trace.gpu.end - trace.gpu.start).sum()) == sum(lasted) // 1_000
    assert [(gpu.name, gpu.sms, gpu.capability) for gpu in trace.gpus] == [("AMD", 304, (9, 4))] * 8
    assert trace.base_ns == 1_771_595_639_214_724_894
    launch = find_window(trace).launch
    assert (launch >= 0).all(), "each row has its launch"
    assert trace.reserved[1] == 1_732_169_984
    assert np.isnan(trace.gpu.occupancy).all(), "AMD's profiler writes 0 for what it does not know"


def test_jax_profile_without_gpu_has_steps_and_says_what_lacks() -> None:
    judged = rank_profile(read(real_text("jax_cpu_steps")))
    assert [step.number for step in judged.steps] == list(range(6))
    assert judged.quality.missing == ["no work of a GPU, but the host's operators", "no rank"]
    shown = {each.name: each.count for each in judged.annotations}
    assert (shown["ProfilerStep"], shown["forward_backward"]) == (6, 6)
    assert judged.start_unix_ns is not None
    assert judged.start_unix_ns // 10**9 == 1_795_422_263


def test_tensorflow_profile_has_steps_operators_and_input() -> None:
    trace = read(real_text("tensorflow_cpu_input"))
    assert len(find_window(trace).steps) == 4
    assert named(trace, "annotations")["IteratorGetNextOp::DoCompute"] == 4
    assert named(trace, "operators")["ExecutorState::Process"]
    assert not any(name.startswith("Threadpool") for name in named(trace, "operators"))
    profile = rank_profile(trace)
    assert all(step.breakdown["data_loader"] > 0 for step in profile.steps), "waiting for tf.data is the loader's time"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("batch", [200, reader.BATCH_BYTES])
def test_a_written_profile_is_read_as_it_was_written(
    pack: Callable[[bytes], bytes], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BATCH_BYTES", batch)
    monkeypatch.setattr("trainguard.kernels.readers.builder.CHUNK_BYTES", min(batch, 4_096))
    trace = read(pack(profile().text()))
    assert set(trace.tally) == {"events", "text_bytes"}
    assert named(trace, "gpu") == {
        GEMM: 4,
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": 4,
        "Memcpy HtoD (Pageable -> Device)": 4,
    }
    gemm = trace.gpu.kind == WorkKind.COMPUTE
    assert trace.gpu.start[gemm].tolist() == [1_000_000 * step + 100_000 for step in range(4)]
    assert (trace.gpu.end - trace.gpu.start)[gemm].tolist() == [400_000] * 4
    assert trace.gpu.blocks_per_sm[gemm].tolist() == [0.5] * 4
    assert trace.gpu.occupancy[gemm].tolist() == [50.0] * 4
    assert trace.gpu.size[trace.gpu.kind == WorkKind.MEMCPY].tolist() == [4_096] * 4
    assert {trace.names[lane] for lane in trace.gpu.lane} == {"14", "15"}
    assert named(trace, "launches") == {"cuLaunchKernel": 8, "cuMemcpyHtoDAsync": 4}
    assert named(trace, "operators") == {"fusion.1": 8}
    window = find_window(trace)
    assert window.steps.number.tolist() == [0, 1, 2, 3]
    assert (window.step >= 0).all()
    assert trace.gpus[0].memory == 80 << 30


def test_a_profile_is_judged_by_the_rules_of_all_traces() -> None:
    judged = rank_profile(read(profile().text()))
    assert judged.compute_ns == 4 * 400_000
    assert judged.exposed_communication_ns == 4 * 200_000
    assert judged.launch_delay_ns is not None
    assert "kernels/PageableCopy" in {finding.id for finding in judged.findings}
    assert judged.start_unix_ns == START_NS


def test_lines_that_repeat_the_work_of_the_streams_do_not_count() -> None:
    made = profile()
    for line in ("XLA Modules", "XLA Ops", "Framework Ops", "Steps", "Launch Stats"):
        made.gpus[0].event(line, "jit_step", 0, 4_000_000)
    assert len(read(made.text()).gpu) == 12


def test_times_of_the_epoch_need_no_start() -> None:
    made = profile()
    made.timestamp_ns = START_NS
    trace = read(made.text())
    assert trace.base_ns == 0
    assert trace.gpu.start.min() == START_NS + 20_000


def test_an_allocation_of_memory_is_no_work_and_its_peak_is_kept() -> None:
    made = profile()
    made.gpus[0].event("Stream #14(Compute)", "MemoryAlloc", 0, 5, memalloc_details="kind:device size:5")
    made.host.event("python", "MemoryAllocation", 5, 0, allocator_name="GPU_0_bfc", peak_bytes_in_use=123)
    made.host.event("python", "MemoryAllocation", 6, 0, allocator_name="cpu", peak_bytes_in_use=999)
    trace = read(made.text())
    assert (len(trace.gpu), trace.reserved) == (12, {0: 123})


def test_a_profile_of_another_device_says_that_no_gpu_worked() -> None:
    made = ProfileWriter(gpus=0)
    made.others.append(PlaneWriter("/device:TPU:0"))
    made.others[0].event("XLA Ops", "fusion", 0, 5)
    made.step(1, 0, 10)
    missing = rank_profile(read(made.text())).quality.missing
    assert "no work of a GPU, but work of TPUs, which is not read" in missing


def test_truncated_profile_keeps_its_whole_planes() -> None:
    """Names stand behind a plane's events, so the plane in which a profile ends has none."""
    text = profile(400).text()
    trace = read(text[: text.index(b"Host Threads/1") + 500])
    assert (len(trace.gpu), len(trace.launches), trace.tally["cut_off"]) == (1_200, 0, 1)
    assert trace.tally["unnamed_events"] == 400
    said = rank_profile(trace).quality.damaged
    assert any("ends within the events" in each for each in said)
    assert any("without a name" in each for each in said)


def test_a_profile_that_is_cut_off_in_its_first_plane_is_refused() -> None:
    text = profile(400).text()
    with pytest.raises(KernelTraceError, match="not one of its events is whole"):
        read(text[: text.index(b"Stream #15") + 500])


def test_a_broken_plane_costs_itself() -> None:
    made = profile()
    whole = made.text()
    made.others.append(PlaneWriter("/device:GPU:7"))
    made.others[0].event("Stream #1(Compute)", GEMM, 0, 10)
    text = bytearray(made.text())
    place = text.index(b"Stream #1(")
    text[place - 1] = 0x7F  # the line's name is longer than the plane
    trace = read(bytes(text))
    assert trace.tally["unreadable_parts"] == 1
    assert len(trace.gpu) == len(read(whole).gpu)


@pytest.mark.parametrize(
    "text",
    [b"", b"no profile", b"{}", b"\x0a", b"\x0a\x05abc", b"\x00\x00", b"\xff" * 64, random.Random(1).randbytes(400)],
)
def test_what_is_no_profile_is_refused(text: bytes) -> None:
    with pytest.raises(KernelTraceError, match="cannot be read"):
        read(text)


def test_times_that_no_event_has_are_counted() -> None:
    made = profile()
    made.gpus[0].event("Stream #14(Compute)", GEMM, 0, columns.LONGEST_NS + 1_000)
    made.gpus[0].event("Stream #14(Compute)", GEMM, -5, 10)
    made.gpus[0].event("Stream #14(Compute)", GEMM, 5, -10)
    trace = read(made.text())
    assert (trace.tally["bad_times"], len(trace.gpu)) == (3, 12)


def test_a_deep_nest_of_messages_is_refused_or_counted() -> None:
    nest = b""
    for _ in range(3_000):
        nest = b"\x22" + bytes(_varint(len(nest))) + nest
    text = profile().text()
    plane = b"\x12\x0d/device:GPU:9" + b"\x1a" + bytes(_varint(len(nest))) + nest
    trace = read(b"\x0a" + bytes(_varint(len(plane))) + plane + text)
    assert len(trace.gpu) == 12


def test_more_rows_than_a_trace_has_end_in_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainguard.kernels.readers.builder.MOST_ROWS", 10)
    with pytest.raises(KernelTraceError, match="over 10 rows"):
        read(profile().text())


def test_more_names_than_a_profile_has_end_in_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainguard.kernels.readers.xplane.planes.MOST_NAME_BYTES", 500)
    with pytest.raises(KernelTraceError, match="names of over 500 bytes"):
        read(profile().text())


def _varint(value: int) -> list[int]:
    return [value & 0x7F | 0x80, *_varint(value >> 7)] if value >= 0x80 else [value]


@given(st.integers(0, (1 << 64) - 1), st.integers(1, 9))
def test_a_varint_is_read_over_any_chunks(value: int, size: int) -> None:
    text = bytes([0x08, *_varint(value)])
    chunks = (text[place : place + size] for place in range(0, len(text), size))
    assert list(Wire(chunks).fields(WHOLE)) == [(1, 0, value)]


@given(st.data())
def test_random_damage_gives_a_profile_or_one_clear_error(data: st.DataObject) -> None:
    text = bytearray(profile(2).text())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, max(len(text) - 1, 0)))
        text[place : place + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=20))
    try:
        judged = rank_profile(read(bytes(text)))
    except KernelTraceError:
        return
    assert 0 <= judged.busy_ns <= judged.window_ns


def test_all_real_profiles_are_known_here() -> None:
    assert real_names() == ["jax_cpu_steps", "mi300_jax_conv_minimal", "tensorflow_cpu_input"]


@pytest.mark.parametrize(
    ("names", "framework"),
    [
        (["PjitFunction(step)", "jit_step"], "jax"),
        (["EagerExecute", "FunctionRun"], "tensorflow"),
        (["fusion.7", "main"], "xla"),
        (["PjitFunction(f)", "EagerExecute"], "xla"),
    ],
)
def test_host_calls_name_the_framework(names: list[str], framework: str) -> None:
    assert framework_of(names) == framework


def test_real_profiles_have_their_framework() -> None:
    found = {name: rank_profile(read(real_text(name), name)).framework for name in real_names()}
    assert {name.partition("_conv")[0].partition("_cpu")[0]: each for name, each in found.items()} == {
        "jax": "jax",
        "mi300_jax": "jax",
        "tensorflow": "tensorflow",
    }
