"""An SQS event to messages of the core, and the core's outcome to the partial batch response."""

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.data_classes import SQSEvent

from trainguard.engine.batch import BatchOutcome
from trainguard.engine.doorbells import Message
from trainguard.ports import Journal


def messages_of(event: Mapping[str, Any], journal: Journal) -> list[Message]:
    """Return the messages of an SQS event; anything else is counted, named and empty."""
    if "Records" not in event:
        journal.count("malformed_events", reason=f"no Records, expected an SQS event; it has {sorted(event)[:10]}")
        return []
    return [
        Message(record.message_id, record.body, int(record.attributes.approximate_receive_count))
        for record in SQSEvent(dict(event)).records
    ]


def batch_response(outcome: BatchOutcome) -> dict[str, list[dict[str, str]]]:
    """Return what tells the queue which messages to deliver again."""
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in outcome.failed]}
