"""What the emulator's own tests build with boto3: functions, queues, rules, and patience."""

from __future__ import annotations

import io
import json
import sys
import time
import uuid
import zipfile
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from emulator.launch import Emulator

T = TypeVar("T")
ROLE = "arn:aws:iam::000000000000:role/emulator-test"
GONE = frozenset({"NoSuchBucket", "AWS.SimpleQueueService.NonExistentQueue", "ParameterNotFound"})
RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"


def until(probe: Callable[[], T | None], *, timeout_s: float = 90.0, what: str = "the condition") -> T:
    """Return the first truthy value of `probe`; fail after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        value = probe()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"{what} did not come true within {timeout_s:.0f} s")


@contextmanager
def deleting() -> Iterator[None]:
    """Take what is gone for deleted: botocore repeats a deletion whose answer it lost, and the second finds nothing."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] not in GONE:
            raise


def zipped(files: Mapping[str, str | Path]) -> bytes:
    """Return a ZIP archive: name → text, or the file to take."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            if isinstance(content, str):
                archive.writestr(name, content)
            else:
                archive.write(content, name)
    return buffer.getvalue()


def make_function(emulator: Emulator, name: str, source: str, **settings: Any) -> str:
    """Create a function from the text of its module, wait until it is active, and return its ARN."""
    client = emulator.client("lambda")
    arn: str = client.create_function(
        FunctionName=name,
        Runtime=RUNTIME,
        Role=ROLE,
        Handler="app.handler",
        Code={"ZipFile": zipped({"app.py": source})},
        **({"Timeout": 20, "MemorySize": 256} | settings),
    )["FunctionArn"]
    until(lambda: client.get_function_configuration(FunctionName=name)["State"] == "Active", what=f"{name} active")
    return arn


def invoke(emulator: Emulator, name: str, event: object) -> tuple[Any, str | None]:
    """Invoke a function; return its result and, if it failed, AWS's word for the kind of failure."""
    response = emulator.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
    return json.load(response["Payload"]), response.get("FunctionError")


def make_queue(emulator: Emulator, name: str, **attributes: str) -> tuple[str, str]:
    """Create a queue; return its URL and ARN."""
    client = emulator.client("sqs")
    url: str = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    arn: str = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return url, arn


def receive(emulator: Emulator, url: str) -> list[dict[str, Any]]:
    """Receive and delete what a queue holds, waiting for up to a second."""
    client = emulator.client("sqs")
    messages: list[dict[str, Any]] = client.receive_message(
        QueueUrl=url, WaitTimeSeconds=1, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
    ).get("Messages", [])
    for message in messages:
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return messages


def make_rule(emulator: Emulator, name: str, target_arn: str, **settings: str) -> None:
    """Create a rule of the default bus with one target."""
    events = emulator.client("events")
    events.put_rule(Name=name, **settings)
    events.put_targets(Rule=name, Targets=[{"Id": "target", "Arn": target_arn}])


def make_table(emulator: Emulator, name: str) -> Any:
    """Create a table with a string key ``id`` and return its boto3 resource."""
    return emulator.resource("dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def make_training_job(emulator: Emulator, name: str, **tags: str) -> str:
    """Create a training job and return its ARN."""
    arn: str = emulator.client("sagemaker").create_training_job(
        TrainingJobName=name,
        AlgorithmSpecification={"TrainingInputMode": "File", "TrainingImage": "image"},
        RoleArn=ROLE,
        OutputDataConfig={"S3OutputPath": "s3://bucket/output"},
        ResourceConfig={"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
        ProfilerConfig={"S3OutputPath": "s3://bucket/output", "ProfilingIntervalInMilliseconds": 500},
        Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
    )["TrainingJobArn"]
    return arn


def object_message(bucket: str, key: str) -> str:
    """Return the event that EventBridge sends for a new object."""
    return json.dumps(
        {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Object Created",
            "source": "aws.s3",
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "detail": {"bucket": {"name": bucket}, "object": {"key": key}, "reason": "PutObject"},
        }
    )


def batch(bodies: Sequence[str], *, deliveries: int = 1) -> dict[str, Any]:
    """Return the event with which a queue invokes a function: one message a body, ``message-0`` and so on."""
    return {
        "Records": [
            {
                "messageId": f"message-{index}",
                "receiptHandle": "handle",
                "body": body,
                "attributes": {"ApproximateReceiveCount": str(deliveries), "SentTimestamp": "0"},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "awsRegion": "us-east-1",
            }
            for index, body in enumerate(bodies)
        ]
    }
