"""The queue in front of the evaluators."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainguard.aws.aws_errors import translated
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import NodeTask
from trainguard.engine.messages.created_objects import encode_task

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

BATCH_SIZE = 10


class SqsTaskQueue:
    """Sends tasks to the evaluators' queue."""

    def __init__(self, *, client: "SQSClient", queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def send(self, tasks: Sequence[NodeTask]) -> None:
        """Enqueue tasks in batches, trying all; raises PortUnavailableError that names those not accepted."""
        refused: list[str] = []
        for start in range(0, len(tasks), BATCH_SIZE):
            refused += self._send_batch(tasks[start : start + BATCH_SIZE])
        if refused:
            raise PortUnavailableError(
                "SQS", "SendMessageBatch", f"{len(refused)} of {len(tasks)} tasks not taken: {'; '.join(refused)}"
            )

    def _send_batch(self, batch: Sequence[NodeTask]) -> list[str]:
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
