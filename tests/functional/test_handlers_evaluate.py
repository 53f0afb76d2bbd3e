"""evaluate_objects as it is deployed, fed with recorded events and the recorded job's objects."""

import json
from dataclasses import replace
from typing import Any

import pytest
from moto.dynamodb.exceptions import MockValidationException
from moto.dynamodb.models import DynamoDBBackend

from demo.uploads import RecordedObject
from tests.functional.deployment import (
    BUCKET,
    JOB,
    PREFIX,
    Deployment,
    event,
    object_message,
    recorded_objects,
    ringing,
)
from tests.functional.recorded_items import evaluated_once
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import Status, StreamKey
from trainguard.formats.profile.keys import system_key

FRAMEWORK_RUNG = "1784022148429320_72-algo-2"
MINUTE_RUNG = 1_784_022_120
NOTHING_FAILED: dict[str, Any] = {"batchItemFailures": []}
JUST_SERVICE = frozenset({("service",)})
OF_A_FIRE = JUST_SERVICE | {("service", "RuleName"), ("service", "Severity")}

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


@pytest.fixture
def training(deployment: Deployment) -> Deployment:
    """Return a deployment that has seen four minutes before those that ``sqs_objects.json`` announces."""
    return play(deployment, since=MINUTE_RUNG - 180)


def play(deployment: Deployment, *, since: float) -> Deployment:
    """Let the recorded job run up to the objects that ``sqs_objects.json`` announces, and let these lie in S3."""
    seen = [each for each in recorded_objects() if since <= each.appears_at < MINUTE_RUNG + 61]
    rung = [each for each in seen if FRAMEWORK_RUNG in each.key or str(MINUTE_RUNG) in each.key]
    evaluated_once(deployment, [each for each in seen if each not in rung])
    deployment.put(rung)
    return deployment


def failed(*message_ids: str) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in message_ids]}


def minute_of(deployment: Deployment, node_kind: str) -> str:
    minute: str = deployment.world.node(JOB, node_kind)["Cursors"]["M"]["minute"]["N"]
    return minute


def statuses(deployment: Deployment) -> dict[str, Status]:
    return {row.target: row.status for row in deployment.world.rows.of_job(JOB)}


def refuse_writes_of(monkeypatch: pytest.MonkeyPatch, node_kind: str) -> None:
    """Let DynamoDB refuse to write one item, as it does with one that is too large."""
    write = DynamoDBBackend.put_item

    def put_item(self: DynamoDBBackend, table_name: str, item_attrs: dict[str, Any], *rest: Any, **named: Any) -> Any:
        if item_attrs.get("NodeKind") == {"S": node_kind}:
            raise MockValidationException("Item size has exceeded the maximum allowed size")
        return write(self, table_name, item_attrs, *rest, **named)

    monkeypatch.setattr(DynamoDBBackend, "put_item", put_item)


def test_recorded_messages_give_states_rows_and_one_fire(deployment: Deployment) -> None:
    training = play(deployment, since=0)
    shown = statuses(training)
    inapplicable = {name.partition("#")[0] for name, status in shown.items() if status is Status.NOT_APPLICABLE}
    assert inapplicable == {"GPUHealth", "HungJob"}
    assert set(shown.values()) == {Status.OK, Status.NOT_APPLICABLE}
    assert training.world.started() == {}

    answer = training.function("evaluate_objects")(event("sqs_objects"))

    assert answer.value == NOTHING_FAILED
    assert minute_of(training, "algo-1#system") == minute_of(training, "algo-2#system") == str(MINUTE_RUNG)
    assert training.world.node(JOB, "algo-2#framework")["Pending"]["M"]
    shown = statuses(training)
    assert shown["LowGPUUtilization#algo-1"] is shown["LowGPUUtilization#algo-2"] is Status.FIRED
    assert shown["CPUBottleneck#algo-1"] is Status.OK
    (fire,) = training.world.started().values()
    assert {name: fire[name] for name in ("kind", "job", "rule", "episode", "bucket", "prefix")} == {
        "kind": "fire",
        "job": JOB,
        "rule": "LowGPUUtilization",
        "episode": 0,
        "bucket": BUCKET,
        "prefix": PREFIX,
    }
    assert fire["severity"] == "critical"
    assert fire["advice"]
    assert str(fire["cost"]).startswith("about USD ")
    row = training.world.row(JOB, "LowGPUUtilization#algo-1")
    assert (row["Severity"], row["AffectedPercent"]) == ({"S": "critical"}, {"N": "100.0"})
    assert row["Advice"]["S"]
    assert row["CostLost"]["S"].startswith("about USD ")
    assert (answer.metrics["FiresStarted"], answer.metrics["FiresAlreadyStarted"]) == (1, 1)
    assert answer.metrics["ObjectsApplied"] == 3  # both minutes, and framework events that waited for later ones
    assert answer.dimensions == OF_A_FIRE


def test_first_objects_register_a_job_as_sagemaker_describes_it(
    training: Deployment,
) -> None:
    job = training.world.jobs.load(JOB)
    assert job is not None
    assert (job.bucket, job.prefix, job.instance_type, job.instance_count) == (BUCKET, PREFIX, "ml.p3.8xlarge", 2)
    assert (job.profiling_interval_ms, job.stop_allowed, job.active) == (500, True, True)


def test_job_unknown_to_sagemaker_is_followed(
    deployment: Deployment,
) -> None:
    assert deployment.function("evaluate_objects")(event("sqs_objects")).value == NOTHING_FAILED
    item = deployment.world.job(f"{JOB}@{PREFIX}")
    assert (item["Status"], item["StopAllowed"]) == ({"S": "Unknown"}, {"BOOL": False})


def test_repeated_batch_changes_no_state(training: Deployment) -> None:
    evaluate = training.function("evaluate_objects")
    evaluate(event("sqs_objects"))
    before = training.world.nodes.of_job(JOB)
    assert evaluate(event("sqs_objects")).value == NOTHING_FAILED
    after = training.world.nodes.of_job(JOB)
    assert [(item.state, item.cursors, item.pending) for item in after] == [
        (item.state, item.cursors, item.pending) for item in before
    ]


def test_failing_node_store_returns_only_its_messages(training: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = event("sqs_objects")
    (of_algo_2,) = (
        record["messageId"] for record in batch["Records"] if f"{MINUTE_RUNG}.algo-2.json" in record["body"]
    )
    evaluate = training.function("evaluate_objects")
    with monkeypatch.context() as store:
        refuse_writes_of(store, "algo-2#system")
        answer = evaluate(batch)
    assert answer.value == failed(of_algo_2)
    assert answer.metrics["PortFailures"] == 1
    (line,) = (line for line in answer.logged if line["message"] == "port_failures")
    assert (line["job"], line["node"]) == (JOB, "algo-2#system")
    assert "PutItem" in line["reason"]
    assert minute_of(training, "algo-1#system") == str(MINUTE_RUNG)
    assert minute_of(training, "algo-2#system") == str(MINUTE_RUNG - 60)

    batch["Records"] = [record for record in batch["Records"] if record["messageId"] == of_algo_2]
    assert evaluate(batch).value == NOTHING_FAILED
    assert minute_of(training, "algo-2#system") == str(MINUTE_RUNG)


def test_look_alikes_and_garbage_are_counted_and_rest_applied(
    training: Deployment,
) -> None:
    rubbish = ["", "{}", "not JSON", '{"trainguard":"task","job":"j","node":"n","stream":"s","action":"close"}']
    batch = ringing(rubbish)
    batch["Records"] += [*event("sqs_rule_output")["Records"], *event("sqs_objects")["Records"]]
    answer = training.function("evaluate_objects")(batch)
    assert answer.value == NOTHING_FAILED
    assert answer.metrics["ForeignKeys"] == 1
    assert answer.metrics["MalformedMessages"] == len(rubbish)
    assert answer.dimensions == JUST_SERVICE
    assert minute_of(training, "algo-1#system") == str(MINUTE_RUNG)


def test_look_alike_alone_touches_no_store(deployment: Deployment) -> None:
    answer = deployment.function("evaluate_objects")(event("sqs_rule_output"))
    assert answer.value == NOTHING_FAILED
    assert answer.metrics == {"ForeignKeys": 1}
    assert deployment.world.jobs.active() == []


def test_objects_of_the_job_name_in_another_bucket_are_foreign(
    training: Deployment,
) -> None:
    key = recorded_objects()[0].key
    answer = training.function("evaluate_objects")(ringing([object_message(key, at=MINUTE_RUNG, bucket="another")]))
    assert answer.value == NOTHING_FAILED
    assert answer.metrics == {"ForeignKeys": 1}


def below(account: str, objects: list[RecordedObject]) -> dict[str, Any]:
    """Return the batch that announces the recorded job's objects below the prefix of another account."""
    keys = [(f"{account}/{each.key.removeprefix(PREFIX)}", each.appears_at) for each in objects]
    return ringing([object_message(key, at=at) for key, at in keys])


def test_other_account_writing_under_our_job_name_is_foreign(
    training: Deployment,
) -> None:
    before = training.world.jobs.load(JOB)
    answer = training.function("evaluate_objects")(below("444455556666", list(recorded_objects()[:3])))
    assert (answer.value, answer.metrics) == (NOTHING_FAILED, {"ForeignKeys": 3})
    assert training.world.jobs.load(JOB) == before


def test_equal_job_names_of_two_accounts_are_judged_by_place(
    deployment: Deployment,
) -> None:
    objects = list(recorded_objects()[:3])
    evaluate = deployment.function("evaluate_objects")
    for account in ("444455556666", "777788889999"):
        deployment.put([replace(each, key=f"{account}/{each.key.removeprefix(PREFIX)}") for each in objects])
        answer = evaluate(below(account, objects))
        assert answer.value == NOTHING_FAILED
        assert "ForeignKeys" not in answer.metrics
        met = deployment.world.jobs.load(f"{JOB}@{account}/")
        assert met is not None
        assert (met.prefix, met.is_outside) == (f"{account}/", True)


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        "Records",
        {},
        {"Records": None},
        {"Records": [{}]},
        {"Records": [{"eventSource": "aws:s3", "s3": {"object": {"key": "a"}}}]},
        {"Records": [{"messageId": "m", "body": "{}", "attributes": {"ApproximateReceiveCount": "many"}}]},
        event("scheduler"),
        event("s3_object_created_system"),
        event("training_job_completed"),
    ],
    ids=["none", "list", "text", "empty", "null", "blank", "s3-notification", "no-count", "scheduler", "bare", "job"],
)
def test_malformed_event_is_counted_without_failure(deployment: Deployment, given: object) -> None:
    answer = deployment.function("evaluate_objects")(given)
    assert answer.value == NOTHING_FAILED
    assert answer.metrics == {"MalformedEvents": 1}
    assert answer.dimensions == JUST_SERVICE


def test_timeout_saves_progress_and_returns_the_messages(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    root, first, count, in_time = ProfileRoot(PREFIX, JOB), MINUTE_RUNG, 10, 6
    backlog = [minute_object(root, first + 60 * number) for number in range(count)]
    deployment.put(backlog)
    batch = ringing([object_message(each.key, at=each.appears_at) for each in backlog[-3:]])
    evaluate = deployment.function("evaluate_objects")

    answer = evaluate(batch, remaining_ms=[*[60_000] * in_time, 5_000])
    assert answer.value == failed("m0", "m1", "m2")
    assert answer.metrics["EvaluationsUnfinished"] == 1
    assert answer.metrics["ObjectsApplied"] == in_time
    assert minute_of(deployment, "algo-1#system") == str(first + 60 * (in_time - 1))

    answer = evaluate(batch)
    assert answer.value == NOTHING_FAILED
    assert answer.metrics["ObjectsApplied"] == count - in_time
    assert minute_of(deployment, "algo-1#system") == str(first + 60 * (count - 1))


def test_no_time_left_returns_all_messages_and_writes_nothing(
    training: Deployment,
) -> None:
    before = training.world.nodes.of_job(JOB)
    batch = event("sqs_objects")
    answer = training.function("evaluate_objects")(batch, remaining_ms=[5_000])
    assert {entry["itemIdentifier"] for entry in answer.value["batchItemFailures"]} == {
        record["messageId"] for record in batch["Records"]
    }
    assert answer.metrics == {"EvaluationsUnfinished": 3}
    assert training.world.nodes.of_job(JOB) == before


def minute_object(root: ProfileRoot, minute: int) -> RecordedObject:
    """Return a minute with one sample."""
    line = {"Type": "cpu", "Name": "cpu0", "Dimension": "CPUUtilization", "Value": 50.0, "NodeId": "algo-1"}
    body = json.dumps(line | {"Timestamp": minute + 0.5}) + "\n"
    return RecordedObject(system_key(root, "algo-1", minute), body.encode(), minute + 61.0)


def test_end_marks_of_a_running_job_close_nothing(training: Deployment) -> None:
    assert training.function("evaluate_objects")(event("sqs_training_job_end")).value == NOTHING_FAILED
    assert training.world.job(JOB)["Closing"] == {"BOOL": False}
    assert training.world.drain() == []


def test_end_marks_close_all_streams_and_request_one_report(
    training: Deployment,
) -> None:
    training.set_status("Completed")
    evaluate = training.function("evaluate_objects")
    assert evaluate(event("sqs_training_job_end")).value == NOTHING_FAILED
    assert training.world.job(JOB)["Closing"] == {"BOOL": True}
    tasks = training.tasks()
    assert len(tasks["Records"]) == 4  # two streams of two nodes
    for _ in range(2):
        assert evaluate(tasks).value == NOTHING_FAILED
    assert all(item.closed for item in training.world.nodes.of_job(JOB) if item.key.stream != "job")
    assert "Active" not in training.world.job(JOB)
    assert list(training.world.reported().values()) == [{"kind": "end", "job": JOB}]


def test_redelivered_flush_task_applies_what_waited(deployment: Deployment) -> None:
    deployment.create_training_job()
    (waiting,) = (each for each in recorded_objects() if each.key.endswith("1784021040.algo-2.json"))
    deployment.put([waiting])
    evaluate = deployment.function("evaluate_objects")
    evaluate(ringing([object_message(waiting.key, at=waiting.appears_at)]))
    stored = deployment.world.nodes.load(StreamKey(JOB, "algo-2", "system"))
    assert stored is not None
    assert (dict(stored.pending), stored.watermark_s) == ({waiting.key: 1_784_021_040}, None)
    assert evaluate(event("sqs_task_flush")).value == NOTHING_FAILED
    assert minute_of(deployment, "algo-2#system") == "1784021040"
