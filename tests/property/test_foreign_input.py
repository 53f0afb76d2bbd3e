"""Whatever stands in a message, an item or an object: it is read, or refused by its name, and nothing else suffers."""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from hypothesis import strategies as st

from tests.functional.strategies import job_records, node_records, rule_rows
from tests.support.fuzzing import damaged, search, short_and_long
from tests.support.memory import MemoryWorld
from tests.support.small_job import uploads
from trainguard.aws.dynamodb import jobs, node_states, rule_states
from trainguard.aws.dynamodb.attributes import present
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.node_states import DynamoNodeStates
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.dynamodb.stored_form import stored_job, stored_row
from trainguard.core.errors import JobFileError, StateCodecError, TelemetryFormatError, UnreadableKeyError
from trainguard.core.layout import parse_job_file_key
from trainguard.core.ports import StreamTask, Timing
from trainguard.core.records import JobRecord, RuleRow, StreamRecord
from trainguard.engine.batch import BatchProcessor
from trainguard.engine.family import Families
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_file import read_job_file
from trainguard.engine.messages import Message, encode_task, sort_messages
from trainguard.engine.profiler.family import ProfilerFamily
from trainguard.engine.profiler.framework_session import FrameworkState
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.engine.streams.job_streams import JobState
from trainguard.formats.profile.columns import read_framework_object
from trainguard.formats.profile.keys import parse_key
from trainguard.formats.profile.system import read_system_object
from trainguard.state.codec import CODEC, compress, decode_state, decompress, encode_state

TIME = "2026-11-21T08:01:00Z"
KEY = "job/profiler-output/system/incremental/2026112108/1795248000.algo-1.json"
NESTED = "[" * 100_000
YEARS = ["0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00"]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40) | st.sampled_from([*YEARS, KEY]),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=12), each, max_size=3),
    max_leaves=6,
)


def created(**changed: Any) -> dict[str, Any]:
    detail = {"bucket": {"name": "profiles"}, "object": {"key": KEY}}
    return {"source": "aws.s3", "time": TIME, "detail": detail, **changed}


EVENT = json.dumps(created())
TASK = encode_task(StreamTask("job", "algo-1", "system", "flush", 12.5))


@st.composite
def events(draw: st.DrawFn) -> str:
    """Put something into one field of an event."""
    event = json.loads(EVENT)
    place = draw(
        st.sampled_from([("time",), ("source",), ("detail",), ("detail", "object"), ("detail", "object", "key")])
    )
    inner = event
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = draw(anything)
    return json.dumps(event)


bodies = st.text() | st.text(max_size=20).map(json.dumps) | damaged(EVENT) | damaged(TASK) | events()


HARD = [
    NESTED,
    '{"trainguard":"task","job":' + NESTED,
    '{"detail":{"bucket":' + NESTED,
    "\ud800",
    '{"trainguard":"task\ud800"',
    *(json.dumps(created(time=year)) for year in YEARS),
]


@short_and_long
def test_any_body_leaves_the_others_sorted_without_surprise(
    examples: int,
) -> None:
    def check(body: str) -> None:
        jobs, refusals = sort_messages([Message("first", EVENT), Message("bad", body), Message("last", TASK)], FAMILIES)
        taken = [message_id for job_messages in jobs for message_id in job_messages.message_ids]
        assert {"first", "last"} <= set(taken)
        assert sorted([*taken, *(refusal.message_id for refusal in refusals)]) == ["bad", "first", "last"]
        assert not any(refusal.is_delivered_again for refusal in refusals)

    search(check, examples, known=HARD, body=bodies)


class BrokenFamily(ProfilerFamily):
    """Fails in a way nobody thought of on the keys of one node."""

    def parse_key(self, key: str) -> Any:
        if "algo-2" in key:
            raise RuntimeError("nobody foresaw this")
        return super().parse_key(key)


def test_defect_in_one_message_returns_it_alone() -> None:
    world = MemoryWorld()
    timing = Timing(now=lambda: 0.0, pause=lambda _: None, has_time=lambda: True)
    batch = BatchProcessor(services=world.services, timing=timing, bucket="profiles", families=Families(BrokenFamily()))
    outcome = batch.process([Message("good", EVENT), Message("bad", EVENT.replace("algo-1", "algo-2"))])
    assert (outcome.failed, outcome.refused, outcome.nodes) == (("bad",), (), 1)
    (noted,) = [entry for entry in world.journal.entries if entry.what == "evaluation_failures"]
    assert noted.where["message_id"] == "bad"
    reason = r"RuntimeError in property/test_foreign_input\.py:\d+: nobody foresaw this"
    assert re.fullmatch(reason, str(noted.where["reason"]))


class OneItem:
    """A table that answers every question with the same item."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self._item = item

    def get_item(self, **_: Any) -> Any:
        return {"Item": self._item}

    def get_paginator(self, _: str) -> "OneItem":
        return self

    def paginate(self, **_: Any) -> Any:
        return [{"Items": [self._item]}]


leaves = st.one_of(
    st.builds(lambda each: {"S": each}, st.text(max_size=12)),
    st.builds(lambda each: {"N": each}, st.sampled_from(["1.5", "x", "", "-0", "1E+200", "9" * 5_000, "\u00b2"])),
    st.builds(lambda each: {"BOOL": each}, st.booleans()),
    st.just({"NULL": True}),
    st.builds(lambda each: {"B": each}, st.binary(max_size=12)),
    st.just({"SS": ["x"]}),
    st.just({}),
)
values = st.recursive(
    leaves,
    lambda each: st.one_of(
        st.builds(lambda held: {"L": held}, st.lists(each, max_size=3)),
        st.builds(lambda held: {"M": held}, st.dictionaries(st.text(max_size=8) | st.just("Number"), each, max_size=3)),
    ),
    max_leaves=4,
)


@st.composite
def foreign(draw: st.DrawFn, item: dict[str, Any], keys: set[str]) -> tuple[dict[str, Any], str]:
    """Return an item with one column of a foreign shape, or without it, and the column's name."""
    column = draw(st.sampled_from(sorted(item.keys() - keys)))
    value = draw(st.none() | values)
    if value is not None and item[column].get("M") and draw(st.booleans()):
        inner = draw(st.sampled_from(sorted(item[column]["M"])))
        value = {"M": {**item[column]["M"], inner: value}}
    rest = {name: each for name, each in item.items() if name != column}
    return (rest if value is None else {**rest, column: value}), column


def refusal_of(read: Callable[[], object], *kinds: type[Exception]) -> str | None:
    """Return what is said where something cannot be read; None where it can."""
    try:
        read()
    except kinds as error:
        return str(error)
    return None


def names(said: str | None, item: str, column: str) -> bool:
    return said is None or (said.startswith(f"item {item} has Codec") and column in said)


@short_and_long
def test_malformed_node_state_names_item_and_column(examples: int) -> None:
    def check(data: st.DataObject, record: StreamRecord) -> None:
        item, column = data.draw(foreign(dict(node_states._item(record)), {"TrainingJobName", "NodeKind"}))
        store = DynamoNodeStates(client=cast("Any", OneItem(item)), table="t")
        said = refusal_of(lambda: store.load(record.key), StateCodecError)
        assert names(said, f"NodeState/{record.key.job}/{record.key.node_kind}", column)

    search(check, examples, data=st.data(), record=node_records())


@short_and_long
def test_malformed_job_item_names_item_and_column(examples: int) -> None:
    def check(data: st.DataObject, record: JobRecord) -> None:
        item, column = data.draw(foreign(dict(jobs.job_item(stored_job(record))), {"TrainingJobName"}))
        store = DynamoJobs(client=cast("Any", OneItem(item)), table="t")
        assert names(refusal_of(lambda: store.load(record.job), StateCodecError), f"Jobs/{record.job}", column)

    search(check, examples, data=st.data(), record=job_records())


@short_and_long
def test_malformed_row_names_item_and_column(examples: int) -> None:
    def check(data: st.DataObject, row: RuleRow) -> None:
        columns = present(rule_states._columns(stored_row(row)))
        whole = {"TrainingJobName": {"S": row.job}, "RuleTarget": {"S": row.target}, **columns}
        item, column = data.draw(foreign(whole, {"TrainingJobName", "RuleTarget"}))
        store = DynamoRuleStates(client=cast("Any", OneItem(item)), table="t")
        said = refusal_of(lambda: store.load(row.job, row.target), StateCodecError)
        assert names(said, f"RuleState/{row.job}/{row.target}", column)

    search(check, examples, data=st.data(), row=rule_rows())


STATES = {kind: encode_state(kind()) for kind in (SystemState, FrameworkState, JobState)}
BOMB = compress(bytes(65 * 1024 * 1024))


@short_and_long
def test_any_bytes_are_a_state_or_name_the_item(examples: int) -> None:
    def check(data: st.DataObject, kind: type[Any]) -> None:
        packed = data.draw(st.binary() | damaged(decompress(STATES[kind])))
        for stored in (packed, compress(packed)):
            said = refusal_of(partial(decode_state, "job/algo-1#system", CODEC, stored, kind), StateCodecError)
            assert said is None or said.startswith("item job/algo-1#system has Codec")

    search(check, examples, data=st.data(), kind=st.sampled_from(list(STATES)))


@pytest.mark.parametrize(
    "packed",
    [msgspec.msgpack.encode({"gpu_names": ["x"]}).replace(b"x", b"\xff"), b"\x91" * 100_000, b"\xc1"],
    ids=["no UTF-8", "nested", "reserved"],
)
def test_bytes_no_decoder_takes_name_the_item(packed: bytes) -> None:
    with pytest.raises(StateCodecError, match=r"job/algo-1#system.*damaged"):
        decode_state("job/algo-1#system", CODEC, compress(packed), SystemState)


def test_decompression_bomb_is_refused_before_it_is_whole() -> None:
    with pytest.raises(StateCodecError, match=r"damaged .*larger than 67,108,864 bytes"):
        decode_state("job/algo-1#system", CODEC, BOMB, SystemState)


SYSTEM = next(each.body for each in uploads() if "system/incremental" in each.key)[:4_000]
FRAMEWORK = next(each.body for each in uploads() if "pevents" in each.key)
JOB_FILE = (
    b'{"schema_version": 1, "name": "job", "status": "InProgress", "instance_count": 4, "started_at": 1795248000}'
)


@short_and_long
def test_any_object_is_read_or_refused_by_its_key(examples: int) -> None:
    def check(body: bytes) -> None:
        for read in (
            lambda: read_system_object("key", body, node="algo-1", minute=1_795_248_000),
            lambda: read_framework_object("key", body, process="algo-1-70", end_us=1_795_248_100_000_000),
            lambda: read_job_file("key", body, "job"),
        ):
            said = refusal_of(read, TelemetryFormatError, JobFileError)
            assert said is None or "'key'" in said

    parts = damaged(SYSTEM) | damaged(FRAMEWORK) | damaged(JOB_FILE)
    search(check, examples, known=[NESTED.encode()], body=st.binary() | parts | anything.map(msgspec.json.encode))


@short_and_long
def test_any_key_belongs_to_an_object_or_is_refused(examples: int) -> None:
    def check(key: str) -> None:
        parse_job_file_key(key)
        try:
            root = parse_key(key).root
        except UnreadableKeyError:
            return
        assert key.startswith(f"{root.prefix}{root.job}/")

    search(check, examples, key=st.text() | damaged(KEY) | damaged("job/job.json"))
