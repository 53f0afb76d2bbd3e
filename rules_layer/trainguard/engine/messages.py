"""Queue messages: read, and sorted by job and stream.

Messages are of EventBridge, or of S3 itself with URL-encoded keys.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, NamedTuple
from urllib.parse import unquote_plus

import msgspec

from trainguard.core.errors import MessageError, PortUnavailableError, UnreadableKeyError, error_text
from trainguard.core.layout import EndKey, ProfileRoot, is_future, parse_job_file_key
from trainguard.core.ports import StreamTask
from trainguard.core.records import StreamKey
from trainguard.engine.family import Families
from trainguard.engine.streams.session import Announced
from trainguard.formats.profile.system import DECODE_ERRORS

_TEST, _CREATED = "s3:TestEvent", "ObjectCreated:"
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class CreatedObject(NamedTuple):
    """A new object; ``at`` is when S3 got it. ``is_filtered`` says that a rule let it through, not all objects."""

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
    detail: _Place
    time: _Time
    source: str


class _Record(msgspec.Struct, rename="camel"):
    event_name: str
    event_time: _Time
    s3: _Place


class _Form(msgspec.Struct, rename="pascal"):
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
    except DECODE_ERRORS as fault:
        yield MessageError("body", body[:200], f"an S3 Object Created event ({fault})")
        return
    for record in form.records:
        yield _created(bytes(record))


def _created(body: bytes) -> CreatedObject | MessageError:
    try:
        record = _RECORD_DECODER.decode(body)
        key = unquote_plus(record.s3.object.key, errors="strict")
    except DECODE_ERRORS as fault:
        shown = body[:200].decode(errors="replace")
        return MessageError("record", shown, f"a record of an S3 notification ({fault})")
    if not record.event_name.startswith(_CREATED):
        return MessageError("eventName", record.event_name[:200], f"one that begins with {_CREATED}")
    return CreatedObject(record.s3.bucket.name, key, record.event_time, is_filtered=False)


TASK_MARK = "task"


class Message(NamedTuple):
    """A queue message; ``deliveries`` counts this delivery too."""

    message_id: str
    body: str
    deliveries: int = 1


@dataclass(frozen=True, slots=True)
class StreamWork:
    """Work of one batch for a node; after a ``repeated`` message rows are published whatever changed."""

    key: StreamKey
    messages: Sequence[Announced] = ()
    close: bool = False
    modified_before: float | None = None
    repeated: bool = False
    message_ids: Sequence[str] = ()


@dataclass(slots=True)
class JobMessages:
    """Messages of one job; ``source`` is None for mere tasks. ``written_at`` is S3's newest, epoch seconds."""

    job: str
    source: tuple[str, ProfileRoot] | None = None
    nodes: dict[StreamKey, StreamWork] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    job_files: list[str] = field(default_factory=list)
    generation: int = 0
    written_at: float | None = None

    @property
    def message_ids(self) -> list[str]:
        of_streams = (each for work in self.nodes.values() for each in work.message_ids)
        return list(dict.fromkeys((*self.ended, *self.job_files, *of_streams)))


class Refusal(NamedTuple):
    """A message that cannot be used; delivered again where a repeat may help, until the dead-letter queue gets it."""

    message_id: str
    what: str
    reason: str
    is_delivered_again: bool = False


_Jobs = dict[tuple[str, tuple[str, ProfileRoot] | None, int], JobMessages]
# From a bucket and a key to the innermost known job's folder above it.
Places = Callable[[str, str], ProfileRoot | None]

_TASK_DECODER = msgspec.json.Decoder(StreamTask)


def encode_task(task: StreamTask) -> str:
    return msgspec.json.encode({"trainguard": TASK_MARK, **asdict(task)}).decode()


def sort_messages(
    messages: Iterable[Message], families: Families, places: Places = lambda _bucket, _key: None
) -> tuple[list[JobMessages], list[Refusal]]:
    """Group messages by job and node; an unusable one is refused alone, with its reason."""
    jobs: _Jobs = {}
    refusals: list[Refusal] = []
    for message in messages:
        is_task = f'"{TASK_MARK}"' in message.body[:64]
        for found in (None,) if is_task else created_objects(message.body):
            try:
                if found is None:
                    _add_task(jobs, message, families)
                else:
                    _add_object(jobs, message, found, families, places)
            except (UnreadableKeyError, MessageError) as error:
                what = "foreign_keys" if isinstance(error, UnreadableKeyError) else "malformed_messages"
                refusals.append(Refusal(message.message_id, what, str(error)))
            except PortUnavailableError as error:
                refusals.append(Refusal(message.message_id, "port_failures", str(error), is_delivered_again=True))
            except Exception as error:
                # A defect of TrainGuard must not fail the other messages of the batch.
                reason = error_text(error)
                refusals.append(Refusal(message.message_id, "evaluation_failures", reason, is_delivered_again=True))
    return list(jobs.values()), refusals


def _add_task(jobs: _Jobs, message: Message, families: Families) -> None:
    try:
        task = _TASK_DECODER.decode(message.body)
    except DECODE_ERRORS as fault:
        raise MessageError("body", message.body[:200], f"a task ({fault})") from fault
    if task.action not in {"close", "flush"}:
        raise MessageError("action", task.action, "close or flush")
    key = _stream_of(task, families)
    job_messages = jobs.setdefault((task.job, None, task.generation), JobMessages(task.job, generation=task.generation))
    close, before = task.action == "close", task.flush_before if task.action == "flush" else None
    repeated, ids = message.deliveries > 1, [message.message_id]
    _join(job_messages, StreamWork(key, close=close, modified_before=before, repeated=repeated, message_ids=ids))


def _stream_of(task: StreamTask, families: Families) -> StreamKey:
    try:
        key = StreamKey.parse(task.job, f"{task.node}#{task.stream}")
    except ValueError as fault:
        raise MessageError("stream", task.stream, f"the name of a stream ({fault})") from fault
    if families.get(key.family) is None:
        raise MessageError("stream", task.stream, f"a stream of {', '.join(family.name for family in families)}")
    return key


def _add_object(
    jobs: _Jobs, message: Message, found: CreatedObject | MessageError, families: Families, places: Places
) -> None:
    if isinstance(found, MessageError):
        raise found
    key = found.key
    if (root := parse_job_file_key(key)) is not None:
        source = (found.bucket, root)
        jobs.setdefault((root.job, source, 0), JobMessages(root.job, source)).job_files.append(message.message_id)
        return
    if not (found.is_filtered or families.admits(key)):
        # A bucket notifies of all its objects: reports, checkpoints and models are nobody's fault.
        return
    bucket = found.bucket
    parsed = families.parse_key(key, lambda each: places(bucket, each))
    if not isinstance(parsed, EndKey) and is_future(parsed.named_at, found.at.timestamp()):
        raise UnreadableKeyError(key, f"its time lies more than an hour after the object's own, {found.at.isoformat()}")
    source = (bucket, parsed.root)
    job_messages = jobs.setdefault((parsed.root.job, source, 0), JobMessages(parsed.root.job, source))
    if isinstance(parsed, EndKey):
        job_messages.ended.append(message.message_id)
        unit = parsed.unit
    else:
        unit = parsed.node
        job_messages.written_at = max(found.at.timestamp(), job_messages.written_at or 0.0)
    if unit is not None:
        node_key = StreamKey(parsed.root.job, unit, parsed.stream)
        repeated, ids = message.deliveries > 1, [message.message_id]
        _join(job_messages, StreamWork(node_key, messages=[Announced(key, parsed)], repeated=repeated, message_ids=ids))


def _join(job_messages: JobMessages, work: StreamWork) -> None:
    known = job_messages.nodes.get(work.key)
    if known is None:
        job_messages.nodes[work.key] = work
        return
    flushes = [each for each in (known.modified_before, work.modified_before) if each is not None]
    job_messages.nodes[work.key] = StreamWork(
        work.key,
        messages=[*known.messages, *work.messages],
        close=known.close or work.close,
        modified_before=max(flushes, default=None),
        repeated=known.repeated or work.repeated,
        message_ids=[*known.message_ids, *work.message_ids],
    )
