"""The reader over layouts, versions and damage: what is whole is read, what is not is counted or refused."""

import gzip
import json
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernel_traces import (
    FP32_GEMM,
    LAYOUTS,
    TraceWriter,
    judged,
    read,
    real_names,
    real_text,
    real_trace,
)
from trainguard.core.errors import KernelTraceError
from trainguard.kernels.readers import splitter
from trainguard.kernels.readers.builder import floats, ints, whole
from trainguard.kernels.readers.kineto_rows import nanoseconds

BASE = 1_711_964_646_000_000_000


def writer(kernels: int = 40) -> TraceWriter:
    made = TraceWriter()
    made.step(7, 0, 100 * kernels)
    for place in range(kernels):
        made.kernel(f"{FP32_GEMM}_{place % 3}", 100 * place + 10.125, 50.5, launch=100 * place)
    return made


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("batch", [300, splitter.BATCH_BYTES])
def test_every_layout_gives_the_same_trace(
    layout: Callable[[Any], bytes], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitter, "BATCH_BYTES", batch)
    monkeypatch.setattr("trainguard.kernels.readers.builder.CHUNK_BYTES", min(batch, 4_096))
    made = writer()
    trace = read(layout(made.document()))
    assert len(trace.gpu) == len(trace.launches) == 40
    assert trace.gpu.start.tolist() == [100_000 * place + 10_125 for place in range(40)]
    assert {trace.names[name] for name in trace.gpu.name} == {f"{FP32_GEMM}_{place}" for place in range(3)}
    assert (trace.rank, trace.base_ns, trace.gpus[0].capability) == (0, BASE, (8, 0))
    assert set(trace.tally) == {"events", "text_bytes"}, "nothing is damaged"


def test_arguments_that_begin_as_events_do_are_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitter, "BATCH_BYTES", 300)
    monkeypatch.setattr("trainguard.kernels.readers.builder.CHUNK_BYTES", 300)
    made = writer()
    made.events = [
        {"name": event["name"], **event, "args": {"name": "inner", **event.get("args", {})}} for event in made.events
    ]
    trace = read(made.text())
    assert len(trace.gpu) == len(trace.launches) == 40
    assert set(trace.tally) == {"events", "text_bytes"}


def metadata_first(kernels: int) -> bytes:
    """Names of threads that begin with ``name``, then events that begin with ``ph``, then the first sort again."""
    made = writer(kernels)
    named = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": thread, "args": {"name": "a thread"}} for thread in range(9)
    ]
    made.events = [*named, *made.events, *named]
    return made.text()


@pytest.mark.parametrize("damage", [(b"", b""), (b'"name": "a thread"', b'"name": "a "thread""'), (b"nn_1", b'"nn"')])
def test_events_that_begin_with_several_keys_are_told_apart(
    damage: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each damaged event is lost, and nothing beside it."""
    monkeypatch.setattr(splitter, "BATCH_BYTES", 300)
    monkeypatch.setattr(splitter, "MOST_PENDING_BYTES", 3_000)
    monkeypatch.setattr("trainguard.kernels.readers.builder.CHUNK_BYTES", 300)
    text = metadata_first(40)
    lost = text.count(damage[0]) if damage[0] else 0
    trace = read(text.replace(*damage) if lost else text)
    assert len(trace.gpu) == 40 - (13 if damage[0] == b"nn_1" else 0)
    assert (trace.tally.get("unreadable_events", 0), trace.base_ns) == (lost, BASE)
    assert trace.tally.keys() <= {"events", "text_bytes", "unreadable_events"}


def test_an_array_of_events_alone_is_a_trace() -> None:
    trace = read(json.dumps(writer().events).encode())
    assert (len(trace.gpu), trace.rank, trace.base_ns) == (40, None, 0)
    assert set(trace.tally) == {"events", "text_bytes"}


@pytest.mark.parametrize("name", real_names())
def test_real_traces_lose_no_row(name: str) -> None:
    """A plain decoder over the whole text finds as many rows of the GPU, and the same time in them."""
    events = json.loads(real_text(name))["traceEvents"]
    kinds = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
    wanted = [event for event in events if event.get("cat") in kinds]
    trace = real_trace(name)
    assert len(trace.gpu) == len(wanted)
    lasted = (trace.gpu.end - trace.gpu.start).sum()
    assert int(lasted) == sum(round(event["dur"] * 1_000) for event in wanted)
    assert set(trace.tally) <= {"events", "text_bytes", "stack_bytes"}


@given(st.integers(0, 8_000_000_000_000_000))
def test_nanoseconds_are_exact_for_a_hundred_days(ns: int) -> None:
    assert nanoseconds(np.array([float(f"{ns // 1000}.{ns % 1000:03d}")])).tolist() == [ns]


@pytest.mark.parametrize(
    ("written", "number"),
    [(3, 3), ("0x10", 16), ("7", 7), (4.0, 4), (1 << 70, -1), (None, -1), ("seven", -1), ([1], -1), (True, -1)],
)
def test_whole_numbers_of_any_version(written: object, number: int) -> None:
    assert whole(written) == number


def test_typed_and_textual_arguments_are_the_same() -> None:
    made = writer(1)
    for event in made.events:
        for key, value in event.get("args", {}).items():
            event["args"][key] = str(value)
    trace = read(made.text())
    assert trace.gpu.correlation.tolist() == [1] == trace.launches.correlation.tolist()


DAMAGE = {
    "unescaped quotes": (b'"ampere_sgemm_128x64_nn_1"', b'"ampere "quoted" sgemm"', "unreadable_events", 13),
    "bad UTF-8": (b'"ampere_sgemm_128x64_nn_1"', b'"ampere\xff"', "repaired_events", 0),
    "raw control character": (b'"ampere_sgemm_128x64_nn_1"', b'"am\x01pere"', "repaired_events", 0),
    "number over int64": (b'"stream": 7', b'"stream": 184467440737095516169999', "", 0),
    "number without end": (b'"stream": 7', b'"stream": 1e999', "repaired_events", 0),
    "bare N/A": (b'"stream": 7', b'"stream": N/A', "repaired_events", 0),
    "bare nan": (b'"stream": 7', b'"stream": -nan', "repaired_events", 0),
    "days long": (b'"dur": 50.5', b'"dur": 700000000000', "bad_times", 40),
    "negative": (b'"dur": 50.5', b'"dur": -3', "bad_times", 40),
    "no time": (b'"dur": 50.5', b'"dur": null', "bad_times", 40),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_costs_the_events_that_it_touches_and_is_counted(damage: tuple[bytes, bytes, str, int]) -> None:
    whole_text, broken, counted, lost = damage
    text = writer().text()
    assert whole_text in text
    profile = judged(text.replace(whole_text, broken))
    assert sum(kernel.count for kernel in profile.kernels) == 40 - lost
    assert not counted or profile.quality.counts[counted]
    said = any(finding.id == "kernels/TraceQuality" for finding in profile.findings)
    assert said == bool(profile.quality.missing or profile.quality.damaged)
    assert bool(profile.quality.damaged) == bool(lost)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_truncated_trace_is_judged_as_far_as_it_goes(pack: Callable[[bytes], bytes], part: float) -> None:
    text = pack(writer(4_000).text())
    trace = read(text[: int(part * len(text))])
    assert 4_000 * part * 0.7 < len(trace.gpu) < 4_000
    assert trace.tally.keys() & {"truncated_gzip", "cut_off"}
    assert trace.gpu.start.tolist() == [100_000 * place + 10_125 for place in range(len(trace.gpu))]


def test_a_broken_gzip_stream_ends_the_trace() -> None:
    body = bytearray(gzip.compress(writer(4_000).text()))
    body[len(body) // 2 :] = random.Random(1).randbytes(len(body) // 2)
    trace = read(bytes(body))
    assert 1_000 < len(trace.gpu) < 4_000
    assert trace.tally["broken_gzip"] == 1


@pytest.mark.parametrize(
    "text",
    [b"", b"no trace", b"{}", b"[1, 2]", b"\x1f\x8b\x08junk", b'{"traceEvents": [{"ph": "X", "cat": "ker', b"<html>"],
)
def test_what_is_no_trace_is_refused(text: bytes) -> None:
    with pytest.raises(KernelTraceError, match=r"'trace\.json' cannot be read"):
        read(text)


def test_a_trace_without_events_says_what_is_missing() -> None:
    profile = judged(b'{"schemaVersion": 1, "traceEvents": []}')
    assert profile.quality.missing == ["no steps", "no work of a GPU", "no rank"]
    assert profile.window_ns == profile.busy_ns == 0


def test_a_repaired_last_event_costs_nothing_behind_it() -> None:
    made = writer(2)
    made.events[-1]["name"] = "gemm\x01"
    trace = read(made.text().replace(b"\\u0001", b"\x01"))
    assert (len(trace.gpu), trace.base_ns) == (2, BASE)
    assert (trace.tally["repaired_events"], trace.tally.get("cut_off")) == (1, None)


@given(st.data())
def test_random_damage_gives_a_profile_or_one_clear_error(data: st.DataObject) -> None:
    text = bytearray(writer(6).text())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=20))
        if not text:
            break
    try:
        profile = judged(bytes(text))
    except KernelTraceError:
        return
    assert 0 <= profile.busy_ns <= profile.window_ns


@pytest.mark.parametrize("values", [[1, 2], [1, None, 3], ["0x10", 7, []], [None, 1 << 70, "4"]])
def test_numbers_that_are_missing_leave_the_others(values: list[Any]) -> None:
    assert ints(values).tolist() == [-1 if each is None else whole(each) for each in values]
    numbers = floats([each if isinstance(each, int) and each < 1 << 60 else None for each in values])
    assert [math.isnan(each) for each in numbers.tolist()] == [
        not isinstance(each, int) or each >= 1 << 60 for each in values
    ]


@pytest.mark.parametrize(
    ("grid", "blocks"), [([4, 27, 1], 1.0), ([1 << 62] * 100, math.inf), ([0, 1], None), (5, None)]
)
def test_blocks_are_those_of_the_grid_where_they_are_not_written(grid: Any, blocks: float | None) -> None:
    made = writer(1)
    args = next(event["args"] for event in made.events if event.get("cat") == "kernel")
    del args["blocks per SM"]
    args["grid"] = grid
    found = read(made.text()).gpu.blocks_per_sm.tolist()
    assert found == [blocks] or (blocks is None and math.isnan(found[0]))
