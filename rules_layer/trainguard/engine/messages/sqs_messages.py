"""Queue messages, read: what an evaluator receives, and which node each message is for.

A message says which objects are new, or is one of our own tasks. Its shape is checked, and nothing in it is believed
but the object's name: the object in S3 is the truth.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from trainguard.engine.evaluate import NodeWork
from trainguard.engine.family import Families
from trainguard.engine.messages.created_objects import CreatedObject, created_objects
from trainguard.engine.streams.session import Announced
from trainguard.errors import ForeignKeyError, MessageError, PortUnavailableError
from trainguard.layout import EndKey, ProfileRoot, is_future, parse_job_file_key
from trainguard.ports import NodeTask
from trainguard.records import StreamKey
from trainguard.telemetry.unpack import UNREADABLE

TASK_MARK = "task"


@dataclass(frozen=True, slots=True)
class Message:
    """A queue message; ``deliveries`` counts this delivery too."""

    message_id: str
    body: str
    deliveries: int = 1


@dataclass(slots=True)
class StreamMessages:
    """Messages of one node, and what they ask."""

    work: NodeWork
    message_ids: list[str] = field(default_factory=list)


@dataclass(slots=True)
class JobMessages:
    """Messages of one job. ``source`` is where the objects lie; None when only our own tasks name the job.

    ``generation`` is that of the registration for which the tasks are. ``written_at`` is when S3 got the newest of the
    objects, epoch seconds; None without any. ``ended`` are the messages of marks of the end,
    ``job_files`` those of the job's own file.
    """

    job: str
    source: tuple[str, ProfileRoot] | None = None
    nodes: dict[StreamKey, StreamMessages] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    job_files: list[str] = field(default_factory=list)
    generation: int = 0
    written_at: float | None = None

    @property
    def message_ids(self) -> list[str]:
        """All messages of the job."""
        of_streams = (each for stream_messages in self.nodes.values() for each in stream_messages.message_ids)
        return list(dict.fromkeys((*self.ended, *self.job_files, *of_streams)))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that cannot be used: ``what`` is the name under which it is counted.

    ``is_delivered_again`` says that reading it failed in a way that nobody foresaw, or that a service did not answer:
    where it never succeeds, the message ends in the dead-letter queue, where somebody can look at it.
    """

    message_id: str
    what: str
    reason: str
    is_delivered_again: bool = False


class _Task(msgspec.Struct):
    trainguard: str
    job: str
    node: str
    stream: str
    action: str
    flush_before: float | None = None
    generation: int = 0


_Jobs = dict[tuple[str, tuple[str, ProfileRoot] | None, int], JobMessages]
Places = Callable[[str, str], ProfileRoot | None]
"""From a bucket and a key to the innermost folder above it that is known to be a job's."""

_TASK_DECODER = msgspec.json.Decoder(_Task)


def encode_task(task: NodeTask) -> str:
    """Return the message body of a task."""
    body = _Task(TASK_MARK, task.job, task.node, task.stream, task.action, task.flush_before, task.generation)
    return msgspec.json.encode(body).decode()


def sort_messages(
    messages: Iterable[Message], families: Families, places: Places = lambda _bucket, _key: None
) -> tuple[list[JobMessages], list[Refusal]]:
    """Group messages by job and node; those that can never be used are refused with their reason, each alone.

    A message may name several objects. One that cannot be used is refused, and the others are evaluated. A message is
    to be delivered again where ``places`` raises PortUnavailableError.
    """
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
            except ForeignKeyError as error:
                refusals.append(Refusal(message.message_id, "foreign_keys", str(error)))
            except MessageError as error:
                refusals.append(Refusal(message.message_id, "malformed_messages", str(error)))
            except PortUnavailableError as error:
                refusals.append(Refusal(message.message_id, "port_failures", str(error), is_delivered_again=True))
            except Exception as error:
                # A defect of ours: it must not take the other messages of the batch along.
                reason = f"{type(error).__name__}: {error}"
                refusals.append(Refusal(message.message_id, "evaluation_failures", reason, is_delivered_again=True))
    return list(jobs.values()), refusals


def _add_task(jobs: _Jobs, message: Message, families: Families) -> None:
    try:
        task = _TASK_DECODER.decode(message.body)
    except UNREADABLE as fault:
        raise MessageError("body", message.body[:200], f"a task ({fault})") from fault
    if task.action not in {"close", "flush"}:
        raise MessageError("action", task.action, "close or flush")
    key = _stream_of(task, families)
    job_messages = jobs.setdefault((task.job, None, task.generation), JobMessages(task.job, generation=task.generation))
    work = NodeWork(
        key,
        close=task.action == "close",
        modified_before=task.flush_before if task.action == "flush" else None,
        repeated=message.deliveries > 1,
    )
    _join(job_messages, work, message.message_id)


def _stream_of(task: _Task, families: Families) -> StreamKey:
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
        raise ForeignKeyError(key, f"its time lies more than an hour after the object's own, {found.at.isoformat()}")
    source = (bucket, parsed.root)
    job_messages = jobs.setdefault((parsed.root.job, source, 0), JobMessages(parsed.root.job, source))
    if isinstance(parsed, EndKey):
        job_messages.ended.append(message.message_id)
    unit = parsed.unit if isinstance(parsed, EndKey) else parsed.node
    if unit is None:
        return
    if not isinstance(parsed, EndKey):
        job_messages.written_at = max(found.at.timestamp(), job_messages.written_at or 0.0)
    node_key = StreamKey(parsed.root.job, unit, parsed.stream)
    work = NodeWork(node_key, messages=[Announced(key, parsed)], repeated=message.deliveries > 1)
    _join(job_messages, work, message.message_id)


def _join(job_messages: JobMessages, work: NodeWork, message_id: str) -> None:
    stream_messages = job_messages.nodes.get(work.key)
    if stream_messages is None:
        job_messages.nodes[work.key] = StreamMessages(work, [message_id])
        return
    flushes = [each for each in (stream_messages.work.modified_before, work.modified_before) if each is not None]
    stream_messages.work = NodeWork(
        work.key,
        messages=[*stream_messages.work.messages, *work.messages],
        close=stream_messages.work.close or work.close,
        modified_before=max(flushes, default=None),
        repeated=stream_messages.work.repeated or work.repeated,
    )
    stream_messages.message_ids.append(message_id)
