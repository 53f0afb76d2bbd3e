"""Framework objects: whole, truncated, foreign."""

import json
from typing import Any

import pytest

from trainguard.errors import TelemetryFormatError
from trainguard.telemetry.framework import read_framework_object

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


def test_given_steps_of_two_modes_when_read_then_each_mode_is_a_batch_in_absolute_time() -> None:
    events = read(body(META, step(0), step(1, "EVAL"), step(2)))
    train = next(batch for batch in events.steps if batch.mode == "Step:ModeKeys.TRAIN")
    assert train.starts_us.tolist() == [ORIGIN_US, ORIGIN_US + 1_000_000]
    assert train.durations_us.tolist() == [400_000, 400_000]
    assert train.numbers == ("0", "2")
    assert [batch.mode for batch in events.steps] == ["Step:ModeKeys.EVAL", "Step:ModeKeys.TRAIN"]


def test_given_an_array_without_its_end_when_read_then_every_whole_event_is_used() -> None:
    data = body(META, step(0), step(1), closed=False) + b'{"name":"Step:ModeKeys.TRAIN","pi'
    events = read(data)
    assert events.steps[0].numbers == ("0", "1")
    assert events.tally["bad_events"] == 1


def test_given_an_event_of_a_wrong_type_in_a_whole_array_when_read_then_it_alone_is_lost() -> None:
    data = json.dumps([META, step(0), step(1, ts="soon"), step(2)]).encode()
    events = read(data)
    assert events.steps[0].numbers == ("0", "2")
    assert events.tally["bad_events"] == 1


@pytest.mark.parametrize(
    "bad", [step(1, dur=-5), step(1, ts=-2 * ORIGIN_US), step(1, ts=1e300), step(1, dur=1e300), step(1, ts=61_000_000)]
)
def test_given_impossible_times_when_read_then_the_step_is_counted_and_left_out(bad: Any) -> None:
    events = read(body(META, step(0), bad))
    assert events.steps[0].numbers == ("0",)
    assert events.tally["bad_events"] == 1


def test_given_steps_without_args_when_read_then_they_still_count_as_steps() -> None:
    bare = step(0)
    del bare["args"]
    assert read(body(META, bare)).steps[0].numbers == ("?",)


def test_given_an_empty_object_when_read_then_it_is_counted() -> None:
    assert read(b"").tally["empty_objects"] == 1


@pytest.mark.parametrize("data", [b"hello", b"\xff\xfe\x00", b'{"traceEvents": 1'])
def test_given_no_array_at_all_when_read_then_the_object_is_named(data: Any) -> None:
    with pytest.raises(TelemetryFormatError, match="the/key"):
        read(data)


def test_given_metadata_whose_start_is_no_time_when_read_then_its_steps_have_none_and_are_counted() -> None:
    for start in ("soon", 10**400, -5, None):
        meta = META | {"args": {"start_time_since_epoch_in_micros": start}}
        events = read(body(meta, step(0)))
        assert events.steps == ()
        assert events.tally["bad_events"] == 1


def test_given_nesting_without_end_when_read_then_that_event_alone_is_lost() -> None:
    data = body(META, step(0), closed=False) + b'{"args":' + b"[" * 5_000 + b"\n]"
    events = read(data)
    assert events.steps[0].numbers == ("0",)
    assert events.tally["bad_events"] == 1


def test_given_more_events_than_a_rotation_can_have_when_read_then_the_object_is_refused() -> None:
    with pytest.raises(TelemetryFormatError, match="500001 records"):
        read(b"[" + b"{         }," * 500_001 + b"]")
