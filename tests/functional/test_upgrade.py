"""From one version to the next, and back: items of an earlier one are read on, those of a later one are left alone."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from moto import mock_aws

from tests.functional.deployment import JOB, Deployment, object_message, ringing
from tests.functional.recorded_items import (
    FOLDER,
    Items,
    evaluate,
    halves,
    load_items,
    read_items,
    write_items,
)
from tests.functional.tables import NODE_STATE, RULE_STATE
from tests.support.printing import Capture, printed
from trainguard.aws.clients import Clients
from trainguard.state import codec
from trainguard.state import codec as migrations
from trainguard.state.codec import Document, rule_state

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")

RECORDINGS = sorted(FOLDER.glob("codec-*.msgpack"))
SAID = ("Status", "Reason", "Measured", "Threshold", "Worst", "DataPoints", "Violations", "TimesFired", "FiredAt")
STARVED = "LowGPUUtilization"

Rows = Mapping[str, tuple[object, ...]]


class Stage:
    """Deploys the functions again and again, each time into an empty account."""

    def __init__(self, clients: Clients, patch: pytest.MonkeyPatch, printed: Capture) -> None:
        self._clients = clients
        self._patch = patch
        self._printed = printed
        # Rows are shown at every scheduler run: else they would tell how long ago, on the clock, the items were
        # recorded.
        patch.setattr("trainguard.engine.streams.rule_runner.PUBLISH_EVERY_S", 0.0)
        patch.setattr("trainguard.engine.streams.rule_runner._EVERY_S", {})
        patch.setattr("trainguard.engine.summary.PUBLISH_FIRED_EVERY_S", 0.0)

    @contextmanager
    def deployed(self, items: Items | None = None) -> Iterator[Deployment]:
        """Deploy, and let the recorded job's first half be evaluated, or ``items`` stand for what came of it.

        Then those of its objects that the items still wait for are there alone: no other can be read again.
        """
        with mock_aws():
            deployment = Deployment(self._clients, self._patch, self._printed)
            deployment.create_training_job()
            if items is None:
                evaluate(deployment, halves()[0])
            else:
                waiting = {key for item in items[NODE_STATE] for key in item["Pending"]["M"]}
                deployment.put(each for each in halves()[0] if each.key in waiting)
                write_items(deployment, items)
            yield deployment


@pytest.fixture
def stage(clients: Clients, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Stage:
    return Stage(clients, monkeypatch, capsys)


def rows_at_the_end(deployment: Deployment) -> Rows:
    """Play the second half and return what is said about each rule."""
    evaluate(deployment, halves()[1])
    rows = deployment.clients.dynamodb.scan(TableName=RULE_STATE)["Items"]
    return {row["RuleTarget"]["S"]: tuple(str(row.get(name)) for name in SAID) for row in rows}


@pytest.fixture(scope="module")
def uninterrupted(clients: Clients) -> Rows:
    """Return what this version says about the recorded job when it sees the whole of it."""
    with (
        pytest.MonkeyPatch.context() as patch,
        printed() as kept,
        Stage(clients, patch, kept).deployed() as deployment,
    ):
        rows = rows_at_the_end(deployment)
    assert "FIRED" in str(rows[STARVED])
    return rows


def codecs_of(items: Sequence[Mapping[str, Any]]) -> set[str]:
    return {item["Codec"]["N"] for item in items}


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda file: file.stem)
def test_released_items_continue_with_verdicts_of_a_whole_run(
    stage: Stage, uninterrupted: Rows, recording: Any
) -> None:
    with stage.deployed(load_items(recording)) as deployment:
        assert rows_at_the_end(deployment) == uninterrupted
        assert codecs_of(read_items(deployment)[NODE_STATE]) == {str(codec.CODEC)}
        assert [job.job for job in deployment.world.jobs.all()] == [JOB], "earlier versions kept a count among jobs"


def test_each_readable_codec_has_a_recording_and_a_step() -> None:
    read = range(codec.OLDEST_CODEC, codec.CODEC + 1)
    assert [file.stem for file in RECORDINGS] == [f"codec-{number}" for number in read]
    assert sorted(migrations.MIGRATIONS) == list(read)[:-1]


def _as_stored_before(document: Document) -> Document:
    """Return a document as an earlier version might have stored it: a field and a rule's state had another shape."""
    document["watermark"] = document.pop("through", None)
    rule_state(document, STARVED, lambda values: {"values": values})
    return document


def _step(kind: str, document: Document) -> Document:
    """Undo ``_as_stored_before``, as the migration of the version that changed the shape."""
    if kind == "JobState":
        return document
    document["through"] = document.pop("watermark")
    rule_state(document, STARVED, lambda stored: stored["values"])
    return document


def test_migrated_items_give_verdicts_of_a_whole_run(
    stage: Stage, uninterrupted: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = {**load_items(RECORDINGS[-1])}
    for item in earlier[NODE_STATE]:
        if not item["NodeKind"]["S"].endswith("#job"):
            document = _as_stored_before(msgspec.msgpack.decode(codec.decompress(item["Window"]["B"])))
            item["Window"]["B"] = codec.compress(msgspec.msgpack.encode(document))
    newest = codec.CODEC + 1
    monkeypatch.setattr(migrations, "MIGRATIONS", {**migrations.MIGRATIONS, codec.CODEC: _step})
    monkeypatch.setattr(codec, "CODEC", newest)
    for module in ("streams.session", "summary"):
        monkeypatch.setattr(f"trainguard.engine.{module}.CODEC", newest)

    with stage.deployed(earlier) as deployment:
        assert codecs_of(earlier[NODE_STATE]) == {str(newest - 1)}
        assert rows_at_the_end(deployment) == uninterrupted
        assert codecs_of(read_items(deployment)[NODE_STATE]) == {str(newest)}


def test_items_of_a_later_version_are_named_and_left_alone(stage: Stage) -> None:
    recorded = load_items(RECORDINGS[-1])
    later = {**recorded, NODE_STATE: [{**item, "Codec": {"N": "99"}} for item in recorded[NODE_STATE]]}
    rest = halves()[1]
    bodies = [object_message(each.key, at=each.appears_at) for each in rest[:4]]
    with stage.deployed(later) as deployment:
        before = read_items(deployment)[NODE_STATE]
        deployment.put(rest[:4])
        answer = deployment.function("evaluate_objects")(ringing(bodies))
        looked = deployment.reconcile_jobs()[JOB]

        assert len(answer.value["batchItemFailures"]) == len(bodies)
        assert "Codec 99" in str(answer.logged)
        assert "a later version wrote it" in str(answer.logged)
        assert "Codec 99" in looked.value["failed"]
        assert read_items(deployment)[NODE_STATE] == before

        write_items(deployment, recorded)
        evaluate(deployment, rest[:4])
        assert read_items(deployment)[NODE_STATE] != recorded[NODE_STATE]
