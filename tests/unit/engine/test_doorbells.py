"""Messages to work: grouped by job and node; what can never be used is refused by name."""

import json
from typing import Any
from urllib.parse import quote_plus

import pytest

from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import StreamTask
from trainguard.core.records import StreamKey
from trainguard.engine.installed import FAMILIES
from trainguard.engine.messages import Message, encode_task, sort_messages

TIME = "2026-11-21T08:01:00Z"
MINUTE = 1_795_248_000


def created(key: Any, bucket: Any = "profiles", time: Any = TIME) -> Any:
    detail = {"version": "0", "bucket": {"name": bucket}, "object": {"key": key, "size": 1, "sequencer": "00"}}
    return json.dumps({"source": "aws.s3", "detail-type": "Object Created", "time": time, "detail": detail})


def record(key: Any, *, name: str = "ObjectCreated:Put", bucket: Any = "profiles", time: Any = TIME) -> Any:
    s3 = {"s3SchemaVersion": "1.0", "bucket": {"name": bucket}, "object": {"key": quote_plus(key, safe="/"), "size": 1}}
    return {"eventVersion": "2.1", "eventSource": "aws:s3", "eventTime": time, "eventName": name, "s3": s3}


def notified(*records: Any) -> str:
    return json.dumps({"Records": records})


def system(job: Any = "job", node: Any = "algo-1", minute: Any = MINUTE) -> Any:
    return f"{job}/profiler-output/system/incremental/2026112108/{minute}.{node}.json"


def messages(*bodies: Any, deliveries: Any = 1) -> Any:
    return [Message(f"m{index}", body, deliveries) for index, body in enumerate(bodies)]


def test_objects_of_two_nodes_are_sorted_by_node() -> None:
    (job,), refusals = sort_messages(
        messages(created(system()), created(system(node="algo-2")), created(system(minute=MINUTE + 60))), FAMILIES
    )
    assert refusals == []
    assert job.source == ("profiles", ProfileRoot("", "job"))
    assert {key.node: stream_messages.message_ids for key, stream_messages in job.nodes.items()} == {
        "algo-1": ["m0", "m2"],
        "algo-2": ["m1"],
    }


def test_notification_keys_are_decoded_and_sorted_by_node() -> None:
    keys = ["my team+1/" + system(), "my team+1/" + system(node="algo-2")]
    (job,), refusals = sort_messages(messages(notified(*map(record, keys)), created(keys[0])), FAMILIES)
    assert refusals == []
    assert job.source == ("profiles", ProfileRoot("my team+1/", "job"))
    announced = {key.node: [each.key for each in of_node.messages] for key, of_node in job.nodes.items()}
    assert announced == {"algo-1": [keys[0], keys[0]], "algo-2": [keys[1]]}
    assert job.message_ids == ["m0", "m1"]


def test_unusable_record_is_refused_without_its_neighbours() -> None:
    escaped = record(system())
    escaped["s3"]["object"]["key"] = "%ff"
    removed = record(system(), name="ObjectRemoved:Delete")
    future = record(system(minute=MINUTE + 7_200))
    look_alike = record("job/rule-output/a/" + system())
    bad = [escaped, removed, future, look_alike, {}, 5, None]
    (job,), refusals = sort_messages(messages(notified(*bad, record(system()))), FAMILIES)
    assert [key.node for key in job.nodes] == ["algo-1"]
    malformed, foreign = "malformed_messages", "foreign_keys"
    assert [each.what for each in refusals] == [malformed, malformed, foreign, foreign, malformed, malformed, malformed]
    assert not any(each.is_delivered_again for each in refusals)


@pytest.mark.parametrize(
    "body",
    [
        notified(record("job/rule-output/TrainGuardReport/report.html"), record("job/output/model.tar.gz")),
        notified(record("job/debug-output/events/000000000000/000000000000_worker_0.tfevents")),
        notified(record("job/checkpoints/job.json.bak"), record("a" * 1_024)),
        notified(),
        json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Time": TIME, "Bucket": "profiles"}),
    ],
)
def test_notified_objects_of_no_family_are_ignored_uncounted(
    body: str,
) -> None:
    assert sort_messages(messages(body), FAMILIES) == ([], [])


def test_notified_job_file_belongs_to_its_job() -> None:
    (job,), _ = sort_messages(messages(notified(record("team/job/job.json"))), FAMILIES)
    assert (job.job, job.job_files) == ("job", ["m0"])


def test_one_job_name_under_two_roots_is_not_mixed() -> None:
    jobs, _ = sort_messages(
        messages(created(system()), created("copy/" + system()), created(system(), bucket="other")), FAMILIES
    )
    assert len(jobs) == 3


def test_given_a_task_when_sorted_then_it_closes_its_stream() -> None:
    task = StreamTask("job", "algo-1", "system", "close")
    (job,), _ = sort_messages(messages(encode_task(task), deliveries=2), FAMILIES)
    work = job.nodes[StreamKey("job", "algo-1", "system")]
    assert (work.close, work.modified_before, work.repeated) == (True, None, True)


def test_given_a_flush_task_when_sorted_then_its_time_is_kept() -> None:
    (job,), _ = sort_messages(messages(encode_task(StreamTask("job", "algo-1", "framework", "flush", 12.5))), FAMILIES)
    assert job.nodes[StreamKey("job", "algo-1", "framework")].modified_before == 12.5


def test_end_marker_ends_the_job_and_announces_no_node() -> None:
    (job,), _ = sort_messages(messages(created("job/profiler-output/framework/training_job_end.ts")), FAMILIES)
    assert job.ended == ["m0"]
    assert job.nodes == {}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("", "malformed_messages"),
        ("not json", "malformed_messages"),
        ("[]", "malformed_messages"),
        (json.dumps({"Records": {}}), "malformed_messages"),
        (json.dumps({"Event": "s3:AnotherEvent"}), "malformed_messages"),
        ("{}", "malformed_messages"),
        (json.dumps({"source": "aws.s3", "time": TIME, "detail": {"bucket": {}}}), "malformed_messages"),
        (json.dumps({"source": "aws.s3", "time": "soon", "detail": {}}), "malformed_messages"),
        (json.dumps({"trainguard": "task", "job": "job"}), "malformed_messages"),
        (encode_task(StreamTask("job", "algo-1", "system", "explode")), "malformed_messages"),
        (encode_task(StreamTask("job", "algo-1", "stream", "close")), "malformed_messages"),
        (created("some/other/object.csv"), "foreign_keys"),
        (
            created("j/rule-output/R/profiler-output/system/incremental/2026112108/1795248000.algo-1.json"),
            "foreign_keys",
        ),
        (created(system(minute=MINUTE + 7_200)), "foreign_keys"),
    ],
)
def test_permanently_unusable_message_is_refused_by_name(body: Any, what: Any) -> None:
    jobs, refusals = sort_messages(messages(created(system()), body), FAMILIES)
    assert len(jobs) == 1
    assert [(refusal.message_id, refusal.what) for refusal in refusals] == [("m1", what)]
    assert refusals[0].reason


def test_name_up_to_an_hour_ahead_is_accepted() -> None:
    jobs, refusals = sort_messages(messages(created(system(minute=MINUTE + 3_600))), FAMILIES)
    assert (len(jobs), refusals) == (1, [])
