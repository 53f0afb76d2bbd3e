"""What is fuzzed of what the tables hold: items, and the state in them."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.functional.deployment import JOB
from tests.functional.recorded_items import FOLDER, load_items
from tests.functional.tables import JOBS, NODE_STATE, RULE_STATE
from tests.fuzz.target import Target, of_document
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.node_states import DynamoNodeStates
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.state.codec import compress, decompress

_RECORDED = load_items(sorted(FOLDER.glob("codec-*.msgpack"))[-1])
# The table of jobs counts the new ones of an hour, too.
_ITEMS = {**_RECORDED, JOBS: [each for each in _RECORDED[JOBS] if "TrainingJobArn" in each]}


class _Holder:
    """A client of DynamoDB whose tables hold one item."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def get_item(self, **_: Any) -> dict[str, Any]:
        """Return the item."""
        return {"Item": self._item}

    def get_paginator(self, _: str) -> "_Holder":
        """Return itself."""
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        """Return one page with the item."""
        return [{"Items": [self._item]}]


def _plain(value: Any) -> Any:
    """Return an item as JSON has it: bytes in base64, under another name."""
    if isinstance(value, dict):
        return {("B64" if name == "B" else name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _typed(value: Any) -> Any:
    """Return what DynamoDB can give of a document: an attribute has one type, and its content is of that type."""
    if not isinstance(value, dict) or len(value) != 1:
        return {"NULL": True}
    ((kind, content),) = value.items()
    if kind == "M" and isinstance(content, dict):
        return {"M": {name: _typed(each) for name, each in content.items()}}
    if kind == "L" and isinstance(content, list):
        return {"L": [_typed(each) for each in content]}
    if kind == "B64" and isinstance(content, str):
        return {"B": _bytes(content)}
    if kind == "N" and isinstance(content, int | float | str):
        return {"N": _number(content)}
    return {kind: content} if kind == "S" and isinstance(content, str) else {"BOOL": bool(content)}


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return text.encode("utf-8", "replace")


def _number(content: float | str) -> str:
    """Return a number as DynamoDB keeps one: at most 38 digits, and none that is infinite."""
    try:
        number = float(content)
    except (ValueError, OverflowError):
        return "0"
    return f"{number:.17g}" if abs(number) < 1e126 else "0"


def _item(read: Callable[[Any], object], table: str) -> tuple[Callable[[], list[bytes]], Callable[[bytes], object]]:
    """Return the seeds of a table, and what reads an item of it whose keys are as they were."""
    known = _ITEMS[table]
    keys = {"TrainingJobName", {NODE_STATE: "NodeKind", RULE_STATE: "RuleTarget"}.get(table, "TrainingJobName")}

    def take(given: Any) -> object:
        columns = given if isinstance(given, dict) else {}
        item = {name: _typed(value) for name, value in columns.items()}
        return read(_Holder(item | {name: known[0][name] for name in keys}))

    return lambda: [json.dumps(_plain(each)).encode() for each in known[:6]], of_document(take)


def _job(client: Any) -> JobRecord | None:
    return DynamoJobs(client=client, table=JOBS).load(JOB)


def _nodes(client: Any) -> list[StreamRecord]:
    return DynamoNodeStates(client=client, table=NODE_STATE).of_job(JOB)


def _records() -> list[StreamRecord]:
    return [_nodes(_Holder(each))[0] for each in _ITEMS[NODE_STATE]]


def _state(body: bytes) -> object:
    """Read the state of each stream from the same bytes, as its functions do."""
    job = _job(_Holder(_ITEMS[JOBS][0]))
    assert job is not None
    plan = FAMILIES.plan(job)
    key = StreamKey(JOB, "algo-1", "system")
    (record,) = (each for each in _records() if each.key == key)
    return FAMILIES.open(JOB, plan, [replace(record, state=body)])


def _states() -> list[bytes]:
    return [each.state for each in _records() if each.key.stream == "system"]


_SEEDED: Mapping[str, Any] = {
    "item of Jobs": _item(_job, JOBS),
    "item of NodeState": _item(_nodes, NODE_STATE),
    "item of RuleState": _item(
        lambda client: DynamoRuleStates(client=client, table=RULE_STATE).of_job(JOB), RULE_STATE
    ),
}

STORED_TARGETS = (
    *(Target(name, seeds, read) for name, (seeds, read) in _SEEDED.items()),
    Target("state, compressed", _states, _state),
    Target(
        "state, unpacked",
        lambda: [decompress(each) for each in _states()],
        lambda body: _state(compress(body)),
    ),
)
