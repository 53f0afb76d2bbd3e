"""The items of a job, opened: every node's streams, and the job's own item ``*#job``.

The job's own item belongs to the tick: the episodes and outbox of fires of the whole job, and what was last shown of
each rule. Nothing in it is needed to rebuild a verdict.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from trainguard.engine.framework_stream import FrameworkState, FrameworkStream
from trainguard.engine.plan import RulePlan
from trainguard.engine.session import item_name
from trainguard.engine.slots import RuleSlot
from trainguard.engine.system_stream import SystemState, SystemStream
from trainguard.records import JOB_NODE, NodeKey, NodeRecord
from trainguard.state.codec import decode_state


class Watched(msgspec.Struct):
    """The Version of a node's item, and since when (epoch seconds) the tick has seen it unchanged."""

    version: int
    since: float


class Told(msgspec.Struct, array_like=True):
    """What people were last told of a rule's finding.

    ``episode`` is the job's, ``since`` the event time in epoch seconds at which it began; ``severity`` is the gravest
    told, ``cleared`` whether they were told that it is over.
    """

    episode: int
    since: float | None
    severity: str | None
    cleared: bool = False


class JobState(msgspec.Struct):
    """What is stored in ``*#job``.

    ``shown`` maps a rule to what its row said and the time at which it was last written, ``through`` to how far that
    row said that the rule was judged, ``told`` to what was last told of it.
    """

    slots: dict[str, RuleSlot] = msgspec.field(default_factory=dict)
    shown: dict[str, tuple[str, float]] = msgspec.field(default_factory=dict)
    watched: dict[str, Watched] = msgspec.field(default_factory=dict)
    told: dict[str, Told] = msgspec.field(default_factory=dict)
    through: dict[str, float] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobStreams:
    """A job's items: ``records`` those of its nodes, ``own`` and ``state`` the job's own."""

    system: Mapping[str, SystemStream]
    framework: Mapping[str, FrameworkStream]
    records: Mapping[NodeKey, NodeRecord]
    own: NodeRecord
    state: JobState

    @property
    def closed(self) -> bool:
        """Whether every stream has ended."""
        return all(record.closed for record in self.records.values())

    @property
    def system_through(self) -> float | None:
        """The furthest watermark of the system streams, epoch seconds."""
        marks = (stream.state.through for stream in self.system.values())
        return max((mark for mark in marks if mark is not None), default=None)

    @property
    def framework_through(self) -> float | None:
        """The furthest watermark of the framework streams, epoch seconds."""
        marks = (stream.state.through for stream in self.framework.values())
        return max((mark for mark in marks if mark is not None), default=None)

    @property
    def through(self) -> float | None:
        """The furthest watermark of all streams, epoch seconds."""
        marks = (self.system_through, self.framework_through)
        return max((mark for mark in marks if mark is not None), default=None)

    @property
    def counters(self) -> dict[str, int]:
        """What was counted on all nodes together, by name."""
        total: Counter[str] = Counter()
        for record in self.records.values():
            total.update(record.counters)
        return dict(sorted(total.items()))

    @property
    def last_fault(self) -> str | None:
        """What was wrong last, on the first node that has something to tell."""
        system = (stream.state.last_fault for stream in self.system.values())
        framework = (stream.state.last_fault for stream in self.framework.values())
        return next((fault for fault in (*system, *framework) if fault), None)


def open_streams(job: str, plan: RulePlan, records: Sequence[NodeRecord]) -> JobStreams:
    """Decode a job's items; a stream that has ended is finished, on what was decoded.

    Raises
    ------
    StateCodecError
        When an item cannot be decoded.
    """
    nodes = {record.key: record for record in records if record.key.stream != "job"}
    own = next((record for record in records if record.key.stream == "job"), NodeRecord(NodeKey(job, JOB_NODE, "job")))
    return JobStreams(
        system={key.node: _system(record, plan) for key, record in nodes.items() if key.stream == "system"},
        framework={key.node: _framework(record, plan) for key, record in nodes.items() if key.stream == "framework"},
        records=nodes,
        own=own,
        state=decode_state(item_name(own), own.codec, own.state, JobState) if own.state else JobState(),
    )


def _system(record: NodeRecord, plan: RulePlan) -> SystemStream:
    state = decode_state(item_name(record), record.codec, record.state, SystemState)
    stream = SystemStream(record.key.node, state, plan)
    if record.closed:
        stream.finish()
    return stream


def _framework(record: NodeRecord, plan: RulePlan) -> FrameworkStream:
    state = decode_state(item_name(record), record.codec, record.state, FrameworkState)
    stream = FrameworkStream(record.key.node, state, plan)
    if record.closed:
        stream.finish()
    return stream
