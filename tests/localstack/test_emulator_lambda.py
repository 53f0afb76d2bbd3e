"""Lambda on the emulator: real code in real processes, behind LocalStack's own Lambda and SQS."""

from __future__ import annotations

import json
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.localstack.emulator_kit import RUNTIME, invoke, make_function, make_queue, receive, until, zipped

if TYPE_CHECKING:
    from emulator.launch import Emulator

pytestmark = pytest.mark.localstack


def _numpy_layer(emulator: Emulator) -> str:
    site_packages = Path(sysconfig.get_paths()["platlib"])
    files = {
        f"python/{path.relative_to(site_packages)}": path
        for package in ("numpy", "numpy.libs")
        for path in (site_packages / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "tests" not in path.parts
    }
    s3 = emulator.client("s3")
    s3.create_bucket(Bucket="layers")
    s3.put_object(Bucket="layers", Key="numpy.zip", Body=zipped(files))
    arn: str = emulator.client("lambda").publish_layer_version(
        LayerName="numpy", Content={"S3Bucket": "layers", "S3Key": "numpy.zip"}, CompatibleRuntimes=[RUNTIME]
    )["LayerVersionArn"]
    return arn


def test_numpy_is_imported_from_the_layer(emulator: Emulator) -> None:
    source = """
import numpy
def handler(event, context):
    return {"mean": float(numpy.mean(event)), "file": numpy.__file__, "left_ms": context.get_remaining_time_in_millis()}
"""
    make_function(emulator, "uses-numpy", source, Layers=[_numpy_layer(emulator)])

    result, error = invoke(emulator, "uses-numpy", [1, 2, 6])

    assert error is None
    assert result["mean"] == 3.0
    assert "/lambda/" in result["file"]
    assert 10_000 < result["left_ms"] <= 20_000


def test_handler_that_cannot_be_imported_gives_the_aws_error(
    emulator: Emulator,
) -> None:
    make_function(emulator, "no-import", "import not_there\n")

    result, error = invoke(emulator, "no-import", {})

    assert error == "Unhandled"
    assert result["errorType"] == "Runtime.ImportModuleError"
    assert "not_there" in result["errorMessage"]


def test_package_of_the_project_is_missing_in_a_function(
    emulator: Emulator,
) -> None:
    source = """
import importlib.util, boto3
def handler(event, context):
    return {name: importlib.util.find_spec(name) is not None for name in ("numpy", "pytest", "localstack")}
"""
    make_function(emulator, "bare", source)

    assert invoke(emulator, "bare", {}) == ({"numpy": False, "pytest": False, "localstack": False}, None)


@pytest.mark.thorough
def test_handler_is_ended_at_its_timeout_and_the_next_call_works(
    emulator: Emulator,
) -> None:
    source = """
import time
def handler(event, context):
    time.sleep(event)
    return "done"
"""
    make_function(emulator, "slow", source, Timeout=5)

    result, error = invoke(emulator, "slow", 30)

    assert error == "Unhandled"
    assert result["errorType"] == "Sandbox.Timedout"
    assert invoke(emulator, "slow", 0) == ("done", None)


@pytest.mark.thorough
def test_invocation_during_a_code_update_ends_with_its_result(
    emulator: Emulator,
) -> None:
    source = """
import boto3, time
def handler(event, context):
    boto3.client("s3").put_object(Bucket="in-flight", Key=f"began-{event}", Body=b"")
    time.sleep(event)
    return "old"
"""
    s3 = emulator.client("s3")
    s3.create_bucket(Bucket="in-flight")
    make_function(emulator, "updated", source)
    client = emulator.client("lambda")
    assert invoke(emulator, "updated", 0) == ("old", None)

    with ThreadPoolExecutor(1) as pool:
        in_flight = pool.submit(invoke, emulator, "updated", 3)
        until(lambda: "Contents" in s3.list_objects_v2(Bucket="in-flight", Prefix="began-3"), what="the invocation")
        client.update_function_code(FunctionName="updated", ZipFile=zipped({"app.py": source.replace("old", "new")}))
        client.get_waiter("function_updated_v2").wait(FunctionName="updated", WaiterConfig={"Delay": 1})

        assert in_flight.result() == ("old", None)
    assert invoke(emulator, "updated", 0) == ("new", None)


def test_raising_handler_is_in_error_and_log(emulator: Emulator) -> None:
    source = """
def handler(event, context):
    print("before the fall")
    raise ValueError("fell")
"""
    make_function(emulator, "raises", source)

    result, error = invoke(emulator, "raises", {})

    assert (result["errorType"], result["errorMessage"], error) == ("ValueError", "fell", "Unhandled")
    logs = emulator.client("logs")
    until(lambda: logs.describe_log_groups(logGroupNamePrefix="/aws/lambda/raises")["logGroups"], what="the log group")
    events = until(lambda: logs.filter_log_events(logGroupName="/aws/lambda/raises")["events"], what="the log")
    messages = [event["message"].strip() for event in events]
    assert "before the fall" in messages
    assert "[ERROR] ValueError: fell" in messages


@pytest.mark.thorough
def test_failed_asynchronous_event_is_dead_lettered(
    emulator: Emulator,
) -> None:
    url, arn = make_queue(emulator, "async-dlq")
    source = "def handler(event, context):\n    raise RuntimeError('boom')\n"
    make_function(emulator, "async-fails", source, DeadLetterConfig={"TargetArn": arn})
    client = emulator.client("lambda")
    client.put_function_event_invoke_config(FunctionName="async-fails", MaximumRetryAttempts=0)

    client.invoke(FunctionName="async-fails", InvocationType="Event", Payload=b'{"n": 1}')

    message = until(lambda: receive(emulator, url), what="dead letter")[0]
    assert json.loads(message["Body"]) == {"n": 1}
    assert message["MessageAttributes"]["ErrorMessage"]["StringValue"] == "boom"


@pytest.mark.thorough
def test_failed_asynchronous_event_of_an_alias_reaches_its_queue(
    emulator: Emulator,
) -> None:
    url, arn = make_queue(emulator, "async-destination")
    source = "import os\ndef handler(event, context):\n    os._exit(1)\n"
    make_function(emulator, "async-dies", source)
    client = emulator.client("lambda")
    version = client.publish_version(FunctionName="async-dies")["Version"]
    client.create_alias(FunctionName="async-dies", Name="live", FunctionVersion=version)
    client.put_function_event_invoke_config(
        FunctionName="async-dies",
        Qualifier="live",
        MaximumRetryAttempts=0,
        MaximumEventAgeInSeconds=60,
        DestinationConfig={"OnFailure": {"Destination": arn}},
    )

    client.invoke(FunctionName="async-dies", Qualifier="live", InvocationType="Event", Payload=b'{"n": 1}')

    kept = json.loads(until(lambda: receive(emulator, url), what="the event that failed")[0]["Body"])
    assert kept["requestPayload"] == {"n": 1}
    assert kept["requestContext"]["condition"] == "RetriesExhausted"
    assert kept["responseContext"]["functionError"] == "Unhandled"


@pytest.mark.thorough
def test_events_beyond_the_concurrency_wait_and_none_is_lost(
    emulator: Emulator,
) -> None:
    done_url, _ = make_queue(emulator, "bounded-done")
    source = """
import json, os, time, boto3
sqs = boto3.client("sqs")
def handler(event, context):
    began = time.time()
    time.sleep(0.5)
    sqs.send_message(QueueUrl=os.environ["DONE"], MessageBody=json.dumps([event["n"], began, time.time()]))
"""
    make_function(emulator, "bounded", source, Environment={"Variables": {"DONE": done_url}})
    client = emulator.client("lambda")
    client.put_function_concurrency(FunctionName="bounded", ReservedConcurrentExecutions=2)
    client.put_function_event_invoke_config(FunctionName="bounded", MaximumRetryAttempts=0, MaximumEventAgeInSeconds=60)

    for n in range(6):
        client.invoke(FunctionName="bounded", InvocationType="Event", Payload=json.dumps({"n": n}).encode())

    done: list[list[float]] = []

    def all_done() -> bool:
        done.extend(json.loads(message["Body"]) for message in receive(emulator, done_url))
        return len({n for n, _, _ in done}) == 6

    until(all_done, what="six events")
    assert len(done) == 6
    assert max(sum(began <= at < ended for _, began, ended in done) for _, at, _ in done) <= 2


def test_only_the_bad_message_of_a_batch_is_retried(
    emulator: Emulator,
) -> None:
    dead_url, dead_arn = make_queue(emulator, "batch-dlq")
    done_url, _ = make_queue(emulator, "batch-done")
    redrive = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": "2"})
    url, arn = make_queue(emulator, "batch", RedrivePolicy=redrive, VisibilityTimeout="1")
    source = """
import json, os, boto3
sqs = boto3.client("sqs")
def handler(event, context):
    numbers = [json.loads(record["body"])["n"] for record in event["Records"]]
    sqs.send_message(QueueUrl=os.environ["DONE"], MessageBody=json.dumps(numbers))
    bad = [record["messageId"] for record, n in zip(event["Records"], numbers) if n == 13]
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in bad]}
"""
    make_function(emulator, "batch", source, Environment={"Variables": {"DONE": done_url}})
    sqs = emulator.client("sqs")
    for first in range(0, 30, 10):
        entries = [{"Id": str(n), "MessageBody": json.dumps({"n": n})} for n in range(first, first + 10)]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)

    emulator.client("lambda").create_event_source_mapping(
        FunctionName="batch",
        EventSourceArn=arn,
        BatchSize=100,
        MaximumBatchingWindowInSeconds=1,
        FunctionResponseTypes=["ReportBatchItemFailures"],
        ScalingConfig={"MaximumConcurrency": 2},
    )

    dead = until(lambda: receive(emulator, dead_url), what="dead letter")
    assert [json.loads(message["Body"]) for message in dead] == [{"n": 13}]
    batches = [json.loads(message["Body"]) for message in receive(emulator, done_url)]
    seen = sorted(n for batch in batches for n in batch)
    assert seen == sorted([*range(30), 13])
    assert max(len(batch) for batch in batches) > 10
