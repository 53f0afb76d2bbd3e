"""The splitter of events on texts of any size, layout and damage: no event is lost that is whole."""

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.kernel_traces import read
from trainguard.core.errors import KernelTraceError
from trainguard.kernels.readers import splitter
from trainguard.kernels.readers.splitter import EventSplitter

MIB = 1024 * 1024
KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 5.0}


def split(text: bytes, size: int = MIB) -> tuple[list[Any], EventSplitter, Counter[str]]:
    tally: Counter[str] = Counter()
    made = EventSplitter("trace.json", tally)
    chunks = [text[place : place + size] for place in range(0, len(text), size)]
    return [event for batch in made.batches(chunks) for event in batch], made, tally


def document(events: list[Any], **behind: Any) -> bytes:
    return json.dumps({"traceEvents": events} | behind).encode()


@pytest.mark.parametrize("size", [1, 3, 30])
def test_metadata_of_any_size_behind_the_events_is_read(size: int) -> None:
    """VizTracer writes the sources of the program there."""
    text = document([KERNEL] * 3, file_info={"train.py": ["x = 1\n" * (size * MIB // 6), 1]}, baseTimeNanoseconds=7)
    events, made, tally = split(text)
    assert (len(events), made.metadata.baseTimeNanoseconds) == (3, 7)
    assert not any(tally.values())


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes of a part that are too many."""
    monkeypatch.setattr(splitter, "MOST_PENDING_BYTES", 2 * MIB)
    return 4 * MIB


def test_metadata_that_is_too_large_costs_no_event(bounded: int) -> None:
    text = document([KERNEL] * 3, file_info="x" * bounded)
    events, _, tally = split(text)
    assert (len(events), +tally) == (3, Counter(unreadable_metadata=1))


@pytest.mark.parametrize("size", [4, 17, 60])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_large_event_is_read_with_its_neighbours(size: int, place: int) -> None:
    events: list[Any] = [KERNEL, KERNEL]
    events.insert(place, KERNEL | {"args": {"source": "y" * (size * MIB)}})
    found, _, tally = split(document(events))
    assert ([event.name for event in found], +tally) == (["k"] * 3, Counter())


def test_an_event_beyond_the_bound_ends_the_file_alone(bounded: int) -> None:
    events, _, tally = split(document([KERNEL, KERNEL, KERNEL | {"args": {"source": "y" * bounded}}, KERNEL]))
    assert (len(events), tally["cut_off"]) == (2, 1)


def test_text_without_events_is_refused_quickly() -> None:
    """As rocprofv3 writes it: 37 MB of records that are no events."""
    record = '{"size": 80, "kind": 3, "operation": 1, "thread_id": 7, "correlation_id": {"internal": 1}}'
    text = ('{"rocprofiler-sdk-tool": [{"buffer_records": [' + ", ".join([record] * 400_000) + "]}]}").encode()
    begin = time.process_time()
    with pytest.raises(KernelTraceError, match="rocprofiler-sdk-tool"):
        split(text)
    assert time.process_time() - begin < 3


TEXT = st.text(max_size=300) | st.sampled_from(['"}, {"ph": "X"', "]}", '}], "a": 1', "{" * 90, "\\", "\x00", "ü" * 80])
ARGS = st.dictionaries(st.sampled_from(["stream", "device", "source", "x"]), TEXT | st.integers(-9, 9), max_size=3)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "X", "B", "E", "M", "i"]), "cat": st.sampled_from(["kernel", "cpu_op"])},
        optional={"name": TEXT, "ts": st.integers(0, 99), "dur": st.integers(0, 9), "args": ARGS},
    ),
    min_size=1,
    max_size=12,
)
BEHIND = st.dictionaries(
    st.sampled_from(["file_info", "traceName", "z"]), TEXT | st.lists(ARGS, max_size=6), max_size=3
)
LAYOUTS = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"sort_keys": True}])
SMALL = settings(suppress_health_check=[*HealthCheck], deadline=None)


@pytest.fixture(autouse=True, scope="module")
def _small_batches(request: pytest.FixtureRequest) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitter, "BATCH_BYTES", 400)
        yield


@SMALL
@given(EVENTS, BEHIND, LAYOUTS, st.integers(20, 900), st.booleans())
def test_each_event_of_a_whole_text_is_read(
    events: list[Any], behind: dict[str, Any], layout: dict[str, Any], size: int, plain: bool
) -> None:
    text = json.dumps(events if plain else {"traceEvents": events} | behind, **layout).encode()
    found, _, tally = split(text, size)
    assert [(event.ph, event.name) for event in found] == [(event["ph"], event.get("name")) for event in events]
    assert {tally["cut_off"], tally["unreadable_events"]} == {0}


@SMALL
@given(EVENTS, BEHIND, LAYOUTS, st.integers(20, 900), st.data())
def test_no_bytes_end_in_another_error(
    events: list[Any], behind: dict[str, Any], layout: dict[str, Any], size: int, data: st.DataObject
) -> None:
    text = bytearray(json.dumps({"traceEvents": events} | behind, **layout).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(text)))
        text[place : place + data.draw(st.integers(0, 40))] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b'"', b"{", b"}", b"]", b",", b"[]", b'{"ph":', b"\\"])
        )
    del text[data.draw(st.integers(0, len(text))) :]
    try:
        found, _, _ = split(bytes(text), size)
        read(bytes(text))
    except KernelTraceError:
        return
    assert len(found) <= len(text)


@SMALL
@given(EVENTS, LAYOUTS, st.integers(20, 900), st.data())
def test_a_cut_text_gives_the_events_before_the_cut(
    events: list[Any], layout: dict[str, Any], size: int, data: st.DataObject
) -> None:
    text = json.dumps({"traceEvents": events}, **layout).encode()
    cut = data.draw(st.integers(0, len(text)))
    behind = len("\n ]\n}" if "indent" in layout else "]}")
    ends = [len(json.dumps({"traceEvents": events[: place + 1]}, **layout)) - behind for place in range(len(events))]
    whole = sum(end <= cut for end in ends)
    try:
        found, _, _ = split(text[:cut], size)
    except KernelTraceError:
        assert not whole
        return
    names = [(event.ph, event.name) for event in found]
    assert names == [(event["ph"], event.get("name")) for event in events][: len(names)]
    assert len(names) >= whole
