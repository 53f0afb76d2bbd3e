import gzip
import json
import pickle
from collections import Counter
from typing import Any

import pytest

from tests.unit.compatible.profiles import FIRST_US, STEP, Profile, event, origin, phase, replayed, report, ts
from trainguard.managed.framework_reader import FrameworkFile, read_framework_file
from trainguard.managed.framework_stream import FrameworkWindow, ManagedFrameworkStream
from trainguard.managed.source import FrameworkName, Parser, node_id

HOROVOD = 3


def file(events: Any, *, parser: Parser = Parser.HOROVOD, name: str = "a", node: str = "algo-1-905") -> FrameworkFile:
    body = events if isinstance(events, bytes) else json.dumps(events).encode()
    return read_framework_file((FrameworkName(FIRST_US, name, parser, node), body))


def window(stream: ManagedFrameworkStream, *files: FrameworkFile, minute: int = 0) -> FrameworkWindow:
    start_us = FIRST_US + 60_000_000 * minute
    return stream.window(files, start_us, start_us + 60_000_000)


def shown(events: FrameworkWindow) -> list[tuple[str, str, float, float]]:
    """Phase, name, start in seconds since the first minute, and duration in seconds."""
    return [
        (events.words.phases[of], events.words.names[name], (start - FIRST_US) / 1e6, (end - start) / 1e6)
        for of, name, start, end in zip(
            events.phases.tolist(), events.names.tolist(), events.starts.tolist(), events.ends.tolist(), strict=True
        )
    ]


def begin(at: float, name: str, number: int = 1) -> dict[str, Any]:
    return {"name": name, "ph": "B", "pid": number, "ts": ts(at)}


def end(at: float, number: int = 1) -> dict[str, Any]:
    return {"ph": "E", "pid": number, "ts": ts(at)}


def test_nested_begins_of_a_phase_end_last_in_first_out() -> None:
    events = [origin(), phase(1, "p"), phase(2, "q")]
    events += [begin(1, "outer"), begin(2, "inner"), begin(3, "other", 2), end(4), end(5), end(6, 2)]

    found = shown(window(ManagedFrameworkStream(Counter()), file(events)))

    assert found == [("p", "inner", 2, 2), ("p", "outer", 1, 4), ("q", "other", 3, 3)]


def test_end_before_its_begin_loses_both() -> None:
    events = [origin(), phase(1, "p"), begin(1, "outer"), begin(5, "inner"), end(4), end(6)]

    assert shown(window(ManagedFrameworkStream(Counter()), file(events))) == [("p", "outer", 1, 5)]


def test_loader_settings_after_an_older_end_keep_their_event() -> None:
    first = file([origin(), phase(1, "p"), begin(1, "open")], name="a")
    second = file([end(2), event("init", 1, 3, 1, num_workers=2), event("next", 1, 5, 1)], name="b")

    found = window(ManagedFrameworkStream(Counter()), first, second)

    assert [name for _, name, *_ in shown(found)] == ["open", "init", "next"]
    assert {row: num_workers for row, (_, num_workers) in found.loaders.items()} == {1: 2}


def test_begin_of_the_file_before_keeps_its_place_when_ended() -> None:
    first = file([origin(), phase(1, "p"), begin(1, "open")], name="a")
    second = file(
        [
            origin(),
            phase(1, "p"),
            event("before", 1, 2, 0.5),
            end(4),
            event("after", 1, 5, 0.5),
        ],
        name="b",
    )

    found = shown(window(ManagedFrameworkStream(Counter()), first, second))

    assert found == [("p", "before", 2, 0.5), ("p", "open", 1, 3), ("p", "after", 5, 0.5)]


def test_end_without_a_begin_is_counted_and_reading_goes_on() -> None:
    tally: Counter[str] = Counter()

    found = shown(
        window(ManagedFrameworkStream(tally), file([origin(), phase(1, "p"), end(1), event("next", 1, 2, 1)]))
    )

    assert found == [("p", "next", 2, 1)]
    assert tally["ends_without_begin"] == 1


def test_begin_left_open_meets_an_earlier_end_and_both_are_lost() -> None:
    ending = file([origin(), phase(1, "p"), end(65)], name="a")
    beginning = file([origin(), phase(1, "p"), begin(70, "late")], name="b")
    stream = ManagedFrameworkStream(Counter())

    assert shown(window(stream, ending, beginning)) == []
    # The second query reads both files again: the end meets the begin that the first query left, 5 s too late for it.
    assert shown(window(stream, ending, beginning, minute=1)) == []
    closing = file([origin(), phase(1, "p"), end(80)], name="c")
    assert shown(window(stream, closing, minute=1)) == [("p", "late", 70, 10)]


def test_file_without_names_uses_names_and_origin_of_the_last() -> None:
    first = file([origin(), phase(1, "p")], name="a")
    second = file([event("known", 1, 1, 1), event("unknown", 9, 2, 1)], name="b")

    found = shown(window(ManagedFrameworkStream(Counter()), first, second))

    assert found == [("p", "known", 1, 1), ("Unknown", "unknown", 2, 1)]


def test_events_of_several_parsers_come_parser_by_parser() -> None:
    files = [
        file([origin(), phase(1, kind.name), event("e", 1, at, 1)], parser=kind, name=kind.name)
        for at, kind in enumerate((Parser.SMDATAPARALLEL, Parser.HOROVOD, Parser.MODEL, Parser.PYTHON))
    ]

    found = window(ManagedFrameworkStream(Counter()), *files)

    assert [name for name, *_ in shown(found)] == ["PYTHON", "MODEL", "HOROVOD", "SMDATAPARALLEL"]
    assert found.horovod.tolist() == [False, False, True, False]


def test_window_includes_both_of_its_edges() -> None:
    events = [event(name, 1, at, 10) for name, at in (("out", -10.1), ("in", -10), ("in", 60), ("out", 60.000001))]

    found = shown(window(ManagedFrameworkStream(Counter()), file([origin(), phase(1, "p"), *events])))

    assert [name for _, name, *_ in found] == ["in", "in"]


def test_truncated_file_is_skipped_whole_and_counted() -> None:
    profile = Profile().minutes(2)
    profile.trace(90, [origin(), phase(1, STEP), event(STEP, 1, 10, 1, step_num="0")])
    name = next(name for name in profile.names() if "pevents" in name)
    profile.files[name] = profile.files[name][:-1]

    result = replayed(profile)

    assert result.reports["MaxInitializationTime"]["Datapoints"] == 0
    assert result.skipped["framework_files_unreadable"] == 1


def test_incomplete_events_are_counted_and_left_out() -> None:
    whole = event(STEP, 1, 10, 1, step_num="0")
    faulty = [{key: value for key, value in whole.items() if key != gone} for gone in ("name", "ts", "dur", "pid")]
    profile = Profile().minutes(2).trace(90, [origin(), phase(1, STEP), *faulty, {"ph": 3}, {}, {"ph": "i"}, whole])

    result = replayed(profile)

    assert result.reports["MaxInitializationTime"]["Datapoints"] == 1
    assert result.skipped["bad_events"] == 5


def test_steps_without_arguments_stop_no_rule() -> None:
    profile = Profile().minutes(2)
    steps = [event(STEP, 1, 1 + at / 4, 0.2) for at in range(200)]
    steps += [event("GetNext", 2, 55, 1), event("init", 3, 55, 1)]
    names = [phase(1, STEP), phase(2, "DataLoaderIter"), phase(3, "DataLoaderIterInitialize")]
    profile.trace(90, [origin(), *names, *steps])

    reports = replayed(profile, {"StepOutlier": {"stddev": -1, "n_outliers": 0}}).reports

    assert reports["StepOutlier"]["Datapoints"] == 200
    assert reports["MaxInitializationTime"]["Datapoints"] == 200
    assert reports["OverallFrameworkMetrics"]["Details"]["phase"] == {STEP: 100}
    assert reports["Dataloader"]["Details"]["dataloaders"] == 0


def test_empty_file_type_makes_horovod_and_not_general() -> None:
    profile = Profile().minutes(2)
    profile.trace(90, [origin(), phase(1, "grad"), event("ALLREDUCE", 1, 10, 3), event("small", 1, 20, 0.01)])
    profile.trace(91, [origin(), phase(1, "grad"), event("op", 1, 30, 1)], kind="smdataparallel_timeline")
    name = next(name for name in profile.names() if "pythontimeline" in name)
    profile.files[name.replace("pythontimeline", "horovod_timeline")] = profile.files.pop(name)

    details = report(profile, "OverallFrameworkMetrics")["Details"]

    assert details["horovod"] == {"ALLREDUCE": 100}
    assert details["general"] == {"grad": 100}


def test_tensorflow_events_with_metadata_count_from_its_start() -> None:
    folder = "framework/tensorflow/detailed_profiling/2023111422/000000009"
    trace = {"traceEvents": [phase(7, "/device:GPU:0"), {"ph": "X", "pid": 7, "name": "MatMul", "ts": 0.5, "dur": 9.5}]}
    profile = Profile().minutes(2)
    profile.files[f"{folder}/plugins/profile/run/host.trace.json.gz"] = gzip.compress(json.dumps(trace).encode())
    without = report(profile, "OverallFrameworkMetrics")["Details"]
    profile.files[f"{folder}/1-algo-1_{FIRST_US}_{FIRST_US + 99_000_000}.metadata"] = b""

    details = report(profile, "OverallFrameworkMetrics")["Details"]

    assert "GPU" not in without
    assert (details["GPU"], details["GPU_total"]) == ({"MatMul": 100}, {"MatMul": 9.5})


def test_process_follows_the_node_in_node_names() -> None:
    assert [node_id(name) for name in ("905-algo-1", "algo-1", "1234-testhost")] == [
        "algo-1-905",
        "algo-1",
        "1234-testhost",
    ]


def test_given_a_parsed_file_when_pickled_then_it_comes_back() -> None:
    parsed = file([origin(), phase(1, "DataLoaderIterInitialize"), event("i", 1, 1, 1, pin_memory=True, pid=3)])

    copy = pickle.loads(pickle.dumps(parsed))  # noqa: S301 - our own bytes

    expected = shown(window(ManagedFrameworkStream(Counter()), parsed))
    assert shown(window(ManagedFrameworkStream(Counter()), copy)) == expected
    assert copy.loaders == parsed.loaders


def test_origin_beyond_any_number_puts_events_in_no_window() -> None:
    profile = Profile().minutes(2)
    lost = event(STEP, 1, 10, 1)
    beyond = origin() | {"args": {"start_time_since_epoch_in_micros": 10**400}}
    profile.trace(90, [origin(), phase(1, STEP), event(STEP, 1, 20, 1), beyond, lost])

    result = replayed(profile)

    assert result.reports["MaxInitializationTime"]["Datapoints"] == 1


def test_trace_that_unpacks_endlessly_is_skipped_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = json.dumps({"traceEvents": [phase(7, "/device:GPU:0")]}).encode()
    name = FrameworkName(0, "x.trace.json.gz", Parser.TENSORFLOW, "algo-1", 0)
    assert read_framework_file((name, gzip.compress(body[:5]) + gzip.compress(body[5:]))).readable

    monkeypatch.setattr("trainguard.managed.framework_reader.MAX_TRACE_BYTES", len(body))
    assert read_framework_file((name, gzip.compress(body))).readable
    assert not read_framework_file((name, gzip.compress(body + b" "))).readable
