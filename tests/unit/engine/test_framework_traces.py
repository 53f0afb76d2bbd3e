"""TensorFlow's traces: the event is of their metadata, the trace beside it is read."""

import gzip
import json
from collections.abc import Sequence

import pytest

from tests.support.memory import MemoryWorld
from trainguard.core.layout import ProfileRoot, hour_folder
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.framework_session import FrameworkSession
from trainguard.engine.profiler.listing import framework_names, trace_of
from trainguard.engine.streams.session import Announced
from trainguard.formats.profile.keys import FrameworkKey, parse_key
from trainguard.formats.profile.system import MAX_OBJECT_BYTES
from trainguard.rules.framework_events import EventClass
from trainguard.rules.overall_framework_metrics.rule import FrameworkTimeState, OverallFrameworkMetrics

START_US = 1_795_248_000_000_000
SECOND = 1_000_000
ROOT = ProfileRoot("", "job")
STEP_FOLDER = f"{ROOT.tensorflow}2026112109/000000017/"


def metadata_key(name: str = "algo-1", at_s: int = 10, folder: str = STEP_FOLDER) -> str:
    start = START_US + at_s * SECOND
    return f"{folder}{name}_{start}_{start + SECOND}.metadata"


def trace_key(host: str = "algo-1", run: str = "2026_11_21_09_00_11", folder: str = STEP_FOLDER) -> str:
    return f"{folder}plugins/profile/{run}/{host}.trace.json.gz"


def trace(duration_us: int) -> bytes:
    named = {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:GPU:0/stream:all"}}
    kernel = {"ph": "X", "pid": 3, "tid": 1, "ts": 5, "dur": duration_us, "name": "MatMul"}
    return gzip.compress(json.dumps({"traceEvents": [named, kernel, {}]}).encode())


class Node:
    """A node's framework stream over an in-memory bucket."""

    def __init__(self, node: str = "algo-1") -> None:
        self.world = MemoryWorld()
        self.world.objects.now = START_US / SECOND + 1_000.0
        self.key = StreamKey("job", node, "framework")
        self.record = StreamRecord(self.key)
        self.open()

    def open(self) -> None:
        self.source = ObjectSource(self.world.objects, "b", ROOT, MAX_OBJECT_BYTES)
        self.session = FrameworkSession(self.record, self.source, FAMILIES.plan(JobRecord("job", "arn", "b", "")))

    def names_from(self, from_us: int | None = None) -> list[str]:
        return [key for key, _, _ in framework_names(self.world.objects, "b", ROOT, from_us)]

    def put(self, key: str, body: bytes = b"") -> None:
        self.world.objects.put("b", key, body, "")

    def apply(self, *keys: str, drain: bool = False) -> list[str]:
        parsed = [(key, parse_key(key)) for key in keys]
        self.session.announce([Announced(key, each) for key, each in parsed if isinstance(each, FrameworkKey)])
        return [each.key for each in self.session.apply(drain=drain, modified_before=None)]

    @property
    def gpu_us(self) -> int:
        state = self.session.stream.state_of(OverallFrameworkMetrics.name)
        assert isinstance(state, FrameworkTimeState)
        return state.classes[EventClass.GPU].total_us


def test_late_metadata_applies_its_trace_once() -> None:
    node = Node()
    node.put(metadata_key())
    node.put(trace_key(), trace(700))

    assert node.apply(metadata_key(), metadata_key(at_s=200)) == [metadata_key()]
    assert node.gpu_us == 700
    assert node.apply(metadata_key()) == []
    assert node.session.record.key.node == "algo-1"
    assert node.session.stream.state.watermark_s == START_US / SECOND + 11.0


def test_unannounced_metadata_is_found_by_the_final_listing() -> None:
    node = Node()
    node.put(metadata_key())
    node.put(trace_key(), trace(700))

    assert node.apply(drain=True) == [metadata_key()]
    assert node.gpu_us == 700


def test_waiting_metadata_still_waits_after_a_round_trip() -> None:
    node = Node()
    node.put(metadata_key("905-algo-1"))
    node.put(trace_key(), trace(700))
    node.apply(metadata_key("905-algo-1"))
    node.record = node.session.to_record(closed=False)
    node.open()

    assert node.apply(drain=True) == [metadata_key("905-algo-1")]
    assert node.gpu_us == 700
    assert node.session.to_record(closed=True).cursors["905/tf_trace"] == START_US + 11 * SECOND


@pytest.mark.parametrize("traces", [[], ["algo-2", "algo-3"]])
def test_missing_trace_of_this_host_is_counted_and_unused(traces: Sequence[str]) -> None:
    node = Node()
    for name in ("algo-1", "algo-2", "algo-3"):
        node.put(metadata_key(name))
    for host in traces:
        node.put(trace_key(host), trace(700))

    assert node.apply(metadata_key(), drain=True) == [metadata_key()]
    assert node.session.counters["bad_objects"] == 1
    assert "expected one TensorFlow trace for each" in (node.session.stream.state.last_fault or "")
    assert node.gpu_us == 0


def test_each_node_reads_the_traces_of_its_own_host() -> None:
    for name, duration in (("algo-1", 100), ("algo-2", 20)):
        node = Node(name)
        for host, length in (("algo-1", 100), ("algo-2", 20)):
            node.put(metadata_key(host))
            node.put(trace_key(host), trace(length))
        node.apply(metadata_key(name), drain=True)
        assert node.gpu_us == duration


def test_two_traces_of_a_host_in_a_step_pair_by_time() -> None:
    node = Node()
    first, second = metadata_key("80-algo-1", at_s=10), metadata_key("70-algo-1", at_s=40)
    runs = {first: trace_key(run="2026_11_21_09_00_11"), second: trace_key(run="2026_11_21_09_00_41")}
    for key in (second, first, *sorted(runs.values(), reverse=True)):
        node.put(key, trace(30))

    for key, expected in runs.items():
        parsed = parse_key(key)
        assert isinstance(parsed, FrameworkKey)
        assert trace_of(node.source, key, parsed) == expected


def test_single_foreign_trace_belongs_to_the_single_metadata() -> None:
    node = Node()
    node.put(metadata_key())
    node.put(trace_key("ip-10-0-7-1.ec2.internal"), trace(700))

    node.apply(drain=True)

    assert node.gpu_us == 700


def test_rare_traces_list_s3_at_most_once_a_rotation_for_both() -> None:
    node = Node()
    node.put(metadata_key())
    node.put(trace_key(), trace(700))
    node.apply(metadata_key())
    keys = [
        f"{ROOT.framework}2026112108/{START_US + at * SECOND}_905-algo-1_pythontimeline.json"
        for at in range(15, 900, 60)
    ]
    listed = []
    for key in keys:
        node.put(key, b"[]")
        before = node.world.faults.calls.count("ReadableObjects.list")
        node.apply(key)
        listed.append(node.world.faults.calls.count("ReadableObjects.list") - before)

    assert max(listed[4:]) == 1


def test_unannounced_trace_is_applied_in_its_order() -> None:
    node = Node()
    node.put(metadata_key(at_s=70))
    node.put(trace_key(), trace(700))
    keys = [
        f"{ROOT.framework}2026112108/{START_US + at * SECOND}_905-algo-1_pythontimeline.json"
        for at in range(15, 300, 60)
    ]
    for key in keys:
        node.put(key, b"[]")
    applied = [applied for key in keys for applied in node.apply(key)]

    assert applied == [keys[0], metadata_key(at_s=70), keys[1], keys[2]]
    assert node.gpu_us == 700


def test_trace_without_metadata_is_counted_once_at_the_end() -> None:
    node = Node()
    orphan = STEP_FOLDER.replace("000000017", "000000018")
    node.put(metadata_key())
    node.put(trace_key(), trace(700))
    node.put(trace_key(folder=orphan), trace(30))
    node.put(trace_key("algo-2", folder=orphan), trace(30))

    for _ in range(2):
        node.apply(drain=True)
        node.record = node.session.to_record(closed=True)

    assert node.record.counters["traces_without_metadata"] == 1
    assert node.gpu_us == 700


def test_foreign_traces_of_several_hosts_are_not_guessed() -> None:
    node = Node()
    for name, host in (("algo-1", "ip-10-0-7-1"), ("algo-2", "ip-10-0-7-2")):
        node.put(metadata_key(name))
        node.put(trace_key(host), trace(700))

    node.apply(metadata_key(), drain=True)

    assert node.session.counters["bad_objects"] == 1
    assert node.gpu_us == 0


def test_traces_days_older_than_the_start_are_skipped() -> None:
    node = Node()
    days = [0, 1, 3]
    keys = [
        metadata_key(at_s=day * 86_400, folder=f"{ROOT.tensorflow}{hour_folder(START_US // SECOND + day * 86_400)}/1/")
        for day in days
    ]
    timeline = f"{ROOT.framework}2026112408/{START_US + 3 * 86_400 * SECOND}_905-algo-1_pythontimeline.json"
    node.world.objects.now += 4 * 86_400
    for key in (*keys, timeline):
        node.put(key)

    assert node.names_from(START_US + 3 * 86_400 * SECOND) == [timeline, keys[2]]
    assert node.names_from(START_US + 86_400 * SECOND) == [timeline, *keys]
    assert node.names_from() == [timeline, *keys]


@pytest.mark.parametrize("hours", [-12, 0, 14])
def test_later_traces_in_local_time_folders_are_found(hours: int) -> None:
    node = Node()
    at_s = 30 * 3_600
    folder = hour_folder(START_US // SECOND + at_s + hours * 3_600)
    key = metadata_key(at_s=at_s, folder=f"{ROOT.tensorflow}{folder}/000000017/")
    node.world.objects.now += at_s
    node.put(key)

    assert [
        found for found, _, _ in framework_names(node.world.objects, "b", ROOT, START_US + (at_s - 60) * SECOND)
    ] == [key]
