"""The queue in front of the evaluators: tasks into it, an event's messages, and the partial batch response."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.aws_errors import translated
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import Journal, StreamTask
from trainguard.engine.messages import Message, encode_task

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from trainguard.engine.batch import BatchOutcome


BATCH_SIZE = 10


class SqsTaskQueue:
    """Sends tasks to the evaluators' queue."""

    def __init__(self, *, client: "SQSClient", queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def send(self, tasks: Sequence[StreamTask]) -> None:
        """Enqueue tasks in batches, trying all; raises PortUnavailableError that names those not accepted."""
        refused: list[str] = []
        for start in range(0, len(tasks), BATCH_SIZE):
            refused += self._send_batch(tasks[start : start + BATCH_SIZE])
        if refused:
            raise PortUnavailableError(
                "SQS", "SendMessageBatch", f"{len(refused)} of {len(tasks)} tasks not taken: {'; '.join(refused)}"
            )

    def _send_batch(self, batch: Sequence[StreamTask]) -> list[str]:
        with translated("SQS", "SendMessageBatch"):
            answer = self._client.send_message_batch(
                QueueUrl=self._queue_url,
                Entries=[{"Id": str(index), "MessageBody": encode_task(task)} for index, task in enumerate(batch)],
            )
        return [
            f"{task.action} {task.job}/{task.node}#{task.stream} ({failure['Code']})"
            for failure in answer.get("Failed", [])
            for task in [batch[int(failure["Id"])]]
        ]


class _Attributes(msgspec.Struct, rename="pascal"):
    approximate_receive_count: int


class _Record(msgspec.Struct, rename="camel"):
    message_id: str
    body: str
    attributes: _Attributes


class _SqsEvent(msgspec.Struct, rename="pascal"):
    records: list[_Record]


def messages_of(event: object, journal: Journal) -> list[Message]:
    """Return the messages of an SQS event; an event of another shape is counted, named and empty."""
    try:
        # SQS writes the count as text, which only the lax mode reads as a number.
        records = msgspec.convert(event, _SqsEvent, strict=False).records
    except (msgspec.ValidationError, UnicodeError) as fault:
        journal.count("malformed_events", reason=f"{fault}, expected an SQS event")
        return []
    return [Message(record.message_id, record.body, record.attributes.approximate_receive_count) for record in records]


def batch_response(outcome: "BatchOutcome") -> dict[str, list[dict[str, str]]]:
    """Return the batch response, which names the messages to deliver again."""
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in outcome.failed]}
