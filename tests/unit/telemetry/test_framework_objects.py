"""Framework objects: whole, truncated, foreign."""

import gzip
import json
from typing import Any

import numpy as np
import pytest

from tests.support import framework_traces
from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.profile.columns import MAX_NAMES, FrameworkEvents, read_framework_object
from trainguard.formats.profile.events import LoaderSetup

ORIGIN_US = 1_795_248_000_000_000
META = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": ORIGIN_US}}


def step(number: Any, mode: Any = "TRAIN", ts: Any = None, dur: Any = 400_000, **extra: Any) -> Any:
    name = f"Step:ModeKeys.{mode}"
    args = {"pid": 905, "step_num": str(number)}
    return {
        "name": name,
        "pid": 1,
        "ph": "X",
        "ts": number * 500_000 if ts is None else ts,
        "dur": dur,
        "args": args,
    } | extra


def body(*events: Any, closed: Any = True) -> Any:
    return ("[\n" + ",\n".join(json.dumps(event) for event in events) + ("\n]" if closed else ",\n")).encode()


def read(data: Any) -> Any:
    return read_framework_object("the/key", data, process="algo-1-905", end_us=ORIGIN_US + 60_000_000)


def test_each_of_two_modes_is_a_step_batch_in_absolute_time() -> None:
    events = read(body(META, step(0), step(1, "EVAL"), step(2)))
    train = next(batch for batch in events.steps if batch.mode == "Step:ModeKeys.TRAIN")
    assert train.starts_us.tolist() == [ORIGIN_US, ORIGIN_US + 1_000_000]
    assert train.durations_us.tolist() == [400_000, 400_000]
    assert train.numbers == ("0", "2")
    assert [batch.mode for batch in events.steps] == ["Step:ModeKeys.EVAL", "Step:ModeKeys.TRAIN"]


def test_unterminated_array_uses_every_whole_event() -> None:
    data = body(META, step(0), step(1), closed=False) + b'{"name":"Step:ModeKeys.TRAIN","pi'
    events = read(data)
    assert events.steps[0].numbers == ("0", "1")
    assert events.tally["bad_events"] == 1


def test_event_of_a_wrong_type_in_an_array_is_lost_alone() -> None:
    data = json.dumps([META, step(0), step(1, ts="soon"), step(2)]).encode()
    events = read(data)
    assert events.steps[0].numbers == ("0", "2")
    assert events.tally["bad_events"] == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "bad",
    [
        step(1, dur=-5),
        step(1, ts=-2 * ORIGIN_US),
        step(1, ts=1e300),
        step(1, dur=1e300),
        step(1, ts=61_000_000),
        step(1, ts=1.7e308, dur=1.7e308),
        step(1, ts=-1.7e308, dur=1.7e308),
    ],
)
def test_steps_with_impossible_times_are_counted_and_left_out(bad: Any) -> None:
    events = read(body(META, step(0), bad))
    assert events.steps[0].numbers == ("0",)
    assert events.tally["bad_events"] == 1


def test_steps_without_arguments_count_as_steps() -> None:
    bare = step(0)
    del bare["args"]
    assert read(body(META, bare)).steps[0].numbers == ("?",)


def test_given_an_empty_object_when_read_then_it_is_counted() -> None:
    assert read(b"").tally["empty_objects"] == 1


@pytest.mark.parametrize("data", [b"hello", b"\xff\xfe\x00", b'{"traceEvents": 1'])
def test_object_without_an_array_is_named(data: Any) -> None:
    with pytest.raises(TelemetryFormatError, match="the/key"):
        read(data)


def test_steps_with_invalid_metadata_start_are_counted_untimed() -> None:
    for start in ("soon", 10**400, -5, None):
        meta = META | {"args": {"start_time_since_epoch_in_micros": start}}
        events = read(body(meta, step(0)))
        assert events.steps == ()
        assert events.tally["bad_events"] == 1


def test_endlessly_nested_event_is_lost_alone() -> None:
    data = body(META, step(0), closed=False) + b'{"args":' + b"[" * 5_000 + b"\n]"
    events = read(data)
    assert events.steps[0].numbers == ("0",)
    assert events.tally["bad_events"] == 1


def test_object_with_more_events_than_a_rotation_is_refused() -> None:
    with pytest.raises(TelemetryFormatError, match="500001 records"):
        read(b"[" + b"{         }," * 500_001 + b"]")


def test_events_of_several_phases_are_columns_in_absolute_time() -> None:
    events = framework_traces.read(
        [
            framework_traces.event("cpu_functions", "aten::add", 1.0, 0.5, tid=7),
            framework_traces.event("gpu_functions-dev:0", "kernel", 1.25, 0.25, tid=0),
            framework_traces.event("cpu_functions", "aten::mul", 2.0, 0.5, tid=8),
        ]
    )

    table = events.table
    assert len(table) == 3
    assert [table.phases[row] for row in table.phase_index] == ["cpu_functions", "gpu_functions-dev:0", "cpu_functions"]
    assert [table.names[row] for row in table.name_index] == ["aten::add", "kernel", "aten::mul"]
    assert (table.starts_us - framework_traces.START_US).tolist() == [1_000_000, 1_250_000, 2_000_000]
    assert table.durations_us.tolist() == [500_000, 250_000, 500_000]
    assert table.threads[0] != table.threads[2]
    assert (table.process, table.kind) == ("algo-1-905", "pythontimeline")


def test_begins_and_ends_pair_innermost_by_phase_and_thread() -> None:
    def mark(ph: str, name: str, ts: int, **extra: Any) -> dict[str, Any]:
        return {"phase": "grad", "ph": ph, "name": name, "ts": ts, **extra}

    events = framework_traces.read(
        [
            mark("B", "OUTER", 10, tid=1),
            mark("B", "OTHER_THREAD", 11, tid=2),
            mark("B", "INNER", 20, tid=1),
            mark("E", "", 30, tid=1),
            mark("E", "", 50, tid=1),
            mark("E", "", 61, tid=2),
            mark("i", "0", 62),
        ],
        kind="horovod_timeline",
    )

    table = events.table
    names = [table.names[row] for row in table.name_index]
    assert dict(zip(names, table.durations_us.tolist(), strict=True)) == {"INNER": 10, "OUTER": 40, "OTHER_THREAD": 50}
    assert names == ["INNER", "OUTER", "OTHER_THREAD"]
    assert events.tally["unpaired_events"] == 0


def test_unpaired_begin_or_end_is_counted_and_not_carried_over() -> None:
    def mark(ph: str, ts: int) -> dict[str, Any]:
        return {"phase": "grad", "ph": ph, "name": "ALLREDUCE" if ph == "B" else "", "ts": ts}

    first = framework_traces.read([mark("E", 5), mark("B", 10), mark("E", 30), mark("B", 40)])
    second = framework_traces.read([mark("E", 50)])

    assert first.table.durations_us.tolist() == [20]
    assert first.tally["unpaired_events"] == 2
    assert len(second.table) == 0
    assert second.tally["unpaired_events"] == 1


def test_new_start_time_in_a_file_applies_from_there_on() -> None:
    later = META | {"args": {"start_time_since_epoch_in_micros": ORIGIN_US + 7}}
    events = read(body(META, step(0), later, step(1)))

    assert (events.table.starts_us - ORIGIN_US).tolist() == [0, 500_007]


def test_unnamed_phase_is_called_as_its_event() -> None:
    table = read(body(META, step(0))).table

    assert table.phases == ("Step:ModeKeys.TRAIN",)


def test_names_beyond_the_table_are_other_and_counted() -> None:
    events = framework_traces.read(
        framework_traces.event("cpu_functions", f"op{number}", number, 0.5, tid=1) for number in range(MAX_NAMES + 9)
    )

    assert len(events.table) == MAX_NAMES + 9
    assert len(events.table.names) == MAX_NAMES
    assert events.table.names[-1] == "other"
    assert events.tally["merged_names"] == 10
    assert np.count_nonzero(events.table.name_index == MAX_NAMES - 1) == 10


def test_names_that_fill_the_table_are_not_merged() -> None:
    events = framework_traces.read(
        framework_traces.event("cpu_functions", f"op{number}", number, 0.5, tid=1) for number in range(MAX_NAMES)
    )

    assert events.table.names[-1] == f"op{MAX_NAMES - 1}"
    assert events.tally["merged_names"] == 0


def test_hostile_names_and_threads_are_short_and_on_one_line() -> None:
    events = framework_traces.read(
        [
            framework_traces.event("p\n" * 500, "n\x00" * 500, 1.0, 0.5, tid={"a": [1]}),
            framework_traces.event("q", "m", 1.0, 0.5, tid=3),
            {"phase": "", "name": "", "ph": "X", "ts": 5, "dur": 2},
        ]
    )

    assert len(events.table) == 3
    assert all(len(name) <= 64 and name.isprintable() for name in (*events.table.names, *events.table.phases))


def test_data_loaders_have_their_set_up_and_workers() -> None:
    events = framework_traces.read(
        [
            framework_traces.event("DataLoaderIterInitialize", "i", 0.0, 0.1, pid=905, num_workers=4, pin_memory=True),
            framework_traces.event("DataLoaderIter", "DataLoaderIter::GetNext", 1.0, 0.1, pid=905, worker_id=3),
            framework_traces.event("DataLoaderWorker", "w", 0.0, 2.0, pid=-4, worker_id="x"),
            framework_traces.event("DataLoaderIterInitialize", "i", 5.0, 0.1),
        ]
    )

    assert events.loaders == (LoaderSetup(905, 4, True), LoaderSetup(-1, None, None))
    assert events.table.workers.tolist() == [905, 905, -1, -1]
    assert events.table.worker_ids.tolist() == [-1, 3, -1, -1]
    assert events.table.rows_in(["DataLoaderIter", "DataLoaderWorker"]).tolist() == [1, 2]


def tf_trace(*events: Any) -> bytes:
    metadata = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0/stream:all"}}
    return gzip.compress(json.dumps({"displayTimeUnit": "ns", "traceEvents": [metadata, *events, {}]}).encode())


def read_tf(data: bytes) -> FrameworkEvents:
    return read_framework_object(
        "the/trace", data, process="algo-1-trace", end_us=ORIGIN_US + 1_000, kind="tf_trace", start_us=ORIGIN_US
    )


def test_tensorflow_times_are_relative_to_the_metadata_start() -> None:
    kernel = {"ph": "X", "pid": 1, "tid": 14, "ts": 12.7, "dur": 3.2, "name": "MatMul"}
    late = {"ph": "X", "pid": 1, "tid": 14, "ts": 2_000_000.0, "dur": 3.0, "name": "MatMul"}

    events = read_tf(tf_trace(kernel, late))

    assert events.table.starts_us.tolist() == [ORIGIN_US + 12]
    assert events.table.durations_us.tolist() == [3]
    assert (events.table.kind, events.table.phases) == ("tf_trace", ("/device:GPU:0/stream:all",))
    assert events.tally["bad_events"] == 1


def test_truncated_tensorflow_trace_uses_whole_lines() -> None:
    lines = [json.dumps({"ph": "X", "pid": 1, "ts": at, "dur": 2, "name": "MatMul"}) for at in (1, 5, 9)]
    text = '{"displayTimeUnit":"ns","metadata":{"a":1},"traceEvents":[\n' + ",\n".join(lines)

    events = read_tf(text[:-9].encode())

    assert events.table.starts_us.tolist() == [ORIGIN_US + 1, ORIGIN_US + 5]
    assert events.tally["bad_events"] == 1


def test_bad_event_in_a_tensorflow_trace_is_lost_alone() -> None:
    good = {"ph": "X", "pid": 1, "ts": 1, "dur": 2, "name": "MatMul"}

    events = read_tf(tf_trace(good, good | {"ts": "soon"}, good | {"ts": 6}))

    assert events.table.starts_us.tolist() == [ORIGIN_US + 1, ORIGIN_US + 6]
    assert events.tally["bad_events"] == 1
