"""S3, EventBridge and SQS on the emulator: the product's message."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.localstack.emulator_kit import make_function, make_queue, make_rule, receive, until

if TYPE_CHECKING:
    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack


def _object_pattern(bucket: str, wildcard: str) -> str:
    detail = {"bucket": {"name": [bucket]}, "object": {"key": [{"wildcard": wildcard}]}}
    return json.dumps({"source": ["aws.s3"], "detail-type": ["Object Created"], "detail": detail})


def _bucket_with_events(emulator: Emulator, bucket: str) -> Any:
    s3 = emulator.client("s3")
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={"EventBridgeConfiguration": {}})
    return s3


def test_wildcard_rule_queues_matching_keys_unchanged(
    emulator: Emulator,
) -> None:
    s3 = _bucket_with_events(emulator, "message")
    url, arn = make_queue(emulator, "message")
    pattern = _object_pattern("message", "*/profiler-output/system/incremental/*.json")
    make_rule(emulator, "message", arn, EventPattern=pattern)
    wanted = [
        "job a+b/profiler-output/system/incremental/2026013123/1.algo-1.json",
        "job/profiler-output/system/incremental/.json",  # `*` stands for no character, too
    ]

    for key in [*wanted, "job/profiler-output/system/incremental/1.txt", "job/system/incremental/1.json"]:
        s3.put_object(Bucket="message", Key=key, Body=b"{}")

    messages: list[dict[str, Any]] = []

    def both_arrived() -> bool:
        messages.extend(receive(emulator, url))
        return len(messages) >= 2

    until(both_arrived, what="two messages")
    messages += receive(emulator, url)
    events = [json.loads(message["Body"]) for message in messages]
    assert sorted(event["detail"]["object"]["key"] for event in events) == sorted(wanted)
    assert {event["detail"]["object"]["size"] for event in events} == {2}


def test_invalid_pattern_is_refused(emulator: Emulator) -> None:
    events = emulator.client("events")

    with pytest.raises(ClientError, match="Event pattern is not valid"):
        events.put_rule(Name="bad", EventPattern=json.dumps({"detail": {"key": [{"wildcat": "*"}]}}))

    assert events.list_rules(NamePrefix="bad")["Rules"] == []


def test_rule_and_mapped_queue_invoke_the_function(
    emulator: Emulator,
) -> None:
    s3 = _bucket_with_events(emulator, "chain")
    _, arn = make_queue(emulator, "chain", VisibilityTimeout="120")
    make_rule(emulator, "chain", arn, EventPattern=_object_pattern("chain", "*/in/*.json"))
    source = """
import json, boto3
s3 = boto3.client("s3")
def handler(event, context):
    for record in event["Records"]:
        key = json.loads(record["body"])["detail"]["object"]["key"]
        body = s3.get_object(Bucket="chain", Key=key)["Body"].read()
        s3.put_object(Bucket="chain", Key=key.replace("/in/", "/out/"), Body=body.upper())
    return {"batchItemFailures": []}
"""
    make_function(emulator, "chain", source)
    emulator.client("lambda").create_event_source_mapping(
        FunctionName="chain", EventSourceArn=arn, BatchSize=100, MaximumBatchingWindowInSeconds=1
    )

    s3.put_object(Bucket="chain", Key="job/in/1.json", Body=b"abc")

    until(lambda: s3.list_objects_v2(Bucket="chain", Prefix="job/out/").get("Contents"), what="the output")
    assert s3.get_object(Bucket="chain", Key="job/out/1.json")["Body"].read() == b"ABC"


@pytest.mark.thorough
def test_rate_rule_calls_its_function_once_a_minute(emulator: Emulator) -> None:
    url, _ = make_queue(emulator, "ticks")
    source = """
import os, json, boto3
sqs = boto3.client("sqs")
def handler(event, context):
    sqs.send_message(QueueUrl=os.environ["TICKS"], MessageBody=json.dumps(event))
"""
    arn = make_function(emulator, "tick", source, Environment={"Variables": {"TICKS": url}})
    events = emulator.client("events")
    started = time.monotonic()
    make_rule(emulator, "tick", arn, ScheduleExpression="rate(1 minute)")
    ticks: list[str] = []

    def count() -> bool:
        ticks.extend(json.loads(message["Body"])["id"] for message in receive(emulator, url))
        return len(ticks) >= 3

    until(count, timeout_s=30 * emulator.minute_s, what="three ticks")
    events.disable_rule(Name="tick")

    # A loaded machine may deliver ticks late and together, but never more of them than there were minutes.
    assert len(set(ticks)) == len(ticks)
    assert len(ticks) <= (time.monotonic() - started) / emulator.minute_s + 1
