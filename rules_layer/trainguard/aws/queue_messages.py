"""An SQS event to messages of the core, and the core's outcome to the partial batch response."""

import msgspec

from trainguard.core.ports import Journal
from trainguard.engine.messages.batch import BatchOutcome
from trainguard.engine.messages.created_objects import Message


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


def batch_response(outcome: BatchOutcome) -> dict[str, list[dict[str, str]]]:
    """Return the batch response, which names the messages to deliver again."""
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in outcome.failed]}
