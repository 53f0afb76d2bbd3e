"""The objects that a queue message says are new, in either of the forms in which S3 sends that.

An existing bucket sends its events through EventBridge, one a message. The stack's own bucket sends notifications right
to the queue: a list of records, whose keys are URL-encoded. Nothing is believed but an object's bucket, key and time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import unquote_plus

import msgspec

from trainguard.errors import MessageError
from trainguard.telemetry.unpack import UNREADABLE

_TEST = "s3:TestEvent"
"""What S3 sends when a bucket's notifications are configured."""

_CREATED = "ObjectCreated:"

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, slots=True)
class CreatedObject:
    """A new object; ``at`` is when S3 got it. ``is_filtered`` says that a rule let it through, and not all objects."""

    bucket: str
    key: str
    at: datetime
    is_filtered: bool


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    key: str


class _Place(msgspec.Struct):
    bucket: _Bucket
    object: _Object


class _Event(msgspec.Struct):
    """An event as EventBridge delivers it."""

    detail: _Place
    time: _Time
    source: str


class _Record(msgspec.Struct, rename="camel"):
    """A record of a notification."""

    event_name: str
    event_time: _Time
    s3: _Place


class _Form(msgspec.Struct, rename="pascal"):
    """What tells a notification from an event."""

    records: list[msgspec.Raw] | None = None
    event: str | None = None


_FORM_DECODER = msgspec.json.Decoder(_Form)
_EVENT_DECODER = msgspec.json.Decoder(_Event)
_RECORD_DECODER = msgspec.json.Decoder(_Record)


def created_objects(body: str) -> Iterator[CreatedObject | MessageError]:
    """Yield the objects of a message's body; for a record that cannot be read, what is wrong with it."""
    try:
        form = _FORM_DECODER.decode(body)
        if form.records is None:
            if form.event != _TEST:
                event = _EVENT_DECODER.decode(body)
                yield CreatedObject(event.detail.bucket.name, event.detail.object.key, event.time, is_filtered=True)
            return
    except UNREADABLE as fault:
        yield MessageError("body", body[:200], f"an S3 Object Created event ({fault})")
        return
    for record in form.records:
        yield _created(bytes(record))


def _created(body: bytes) -> CreatedObject | MessageError:
    shown = body[:200].decode(errors="replace")
    try:
        record = _RECORD_DECODER.decode(body)
        key = unquote_plus(record.s3.object.key, errors="strict")
    except UNREADABLE as fault:
        return MessageError("record", shown, f"a record of an S3 notification ({fault})")
    if not record.event_name.startswith(_CREATED):
        return MessageError("eventName", record.event_name[:200], f"one that begins with {_CREATED}")
    return CreatedObject(record.s3.bucket.name, key, record.event_time, is_filtered=False)
