"""Items of the three tables as a version of the code left them half-way through the recorded job, and their use.

``python -m tests.functional.recorded_items FILE`` records those of the code that it runs with. A release that raises
the codec records its predecessor's first; recordings are never made again.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from moto import mock_aws

from demo.uploads import RecordedObject
from tests.functional.deployment import Deployment, object_message, recorded_objects, ringing
from tests.functional.offline import offline_clients
from tests.functional.tables import JOBS, NODE_STATE, RULE_STATE
from tests.support.printing import printed

FOLDER = Path(__file__).with_name("recorded_state")
TABLES = (JOBS, NODE_STATE, RULE_STATE)
HALF_S = 600.0
BATCH = 40

# Table to its items, in DynamoDB's own form.
Items = Mapping[str, Sequence[Mapping[str, Any]]]

# Keys of objects to the items that their evaluation left.
_EVALUATED: dict[tuple[str, ...], Items] = {}


def halves() -> tuple[list[RecordedObject], list[RecordedObject]]:
    """Return the recorded job's objects of its first ten minutes, and those after."""
    split = recorded_objects()[0].appears_at + HALF_S
    first = [each for each in recorded_objects() if each.appears_at < split]
    return first, [each for each in recorded_objects() if each.appears_at >= split]


def evaluate(deployment: Deployment, objects: Sequence[RecordedObject]) -> None:
    """Put objects, let the evaluator get their events in batches, and let the scheduler run."""
    deployment.put(objects)
    function = deployment.function("evaluate_objects")
    for start in range(0, len(objects), BATCH):
        rung = [object_message(each.key, at=each.appears_at) for each in objects[start : start + BATCH]]
        assert function(ringing(rung)).value == {"batchItemFailures": []}
    assert [answer.value["failed"] for answer in deployment.reconcile_jobs().values()] == [None]


def evaluated_once(deployment: Deployment, objects: Sequence[RecordedObject]) -> None:
    """Let SageMaker know the job, S3 hold objects, and the tables what their evaluation, once a process, left there."""
    deployment.create_training_job()
    deployment.put(objects)
    keys = tuple(each.key for each in objects)
    if keys in _EVALUATED:
        write_items(deployment, _EVALUATED[keys])
        return
    rung = ringing([object_message(each.key, at=each.appears_at) for each in objects])
    assert deployment.function("evaluate_objects")(rung).value == {"batchItemFailures": []}
    _EVALUATED[keys] = _without_creation(read_items(deployment))


def read_items(deployment: Deployment) -> Items:
    """Return all items."""
    scan = deployment.clients.dynamodb.scan
    return {table: scan(TableName=table)["Items"] for table in TABLES}


def write_items(deployment: Deployment, items: Items) -> None:
    """Put all items."""
    for table in TABLES:
        for item in items[table]:
            deployment.clients.dynamodb.put_item(TableName=table, Item=dict(item))


def load_items(file: Path) -> Items:
    """Read a recording, without the time at which its job was created."""
    return _without_creation(msgspec.msgpack.decode(file.read_bytes()))


def _without_creation(items: Items) -> Items:
    """Return items of a job that SageMaker creates in each test."""
    jobs = [{name: value for name, value in item.items() if name != "CreatedAt"} for item in items[JOBS]]
    return {**items, JOBS: jobs}


def _record(file: Path) -> None:
    with mock_aws(), pytest.MonkeyPatch.context() as patch, printed() as kept:
        deployment = Deployment(offline_clients(), patch, kept)
        deployment.create_training_job()
        evaluate(deployment, halves()[0])
        file.write_bytes(msgspec.msgpack.encode(read_items(deployment)))


if __name__ == "__main__":
    _record(Path(sys.argv[1]))
