"""The items of a job, opened: every unit's streams, and the job's own item ``*#job``.

The job's own item belongs to the tick: the episodes and outbox of fires of the whole job, and what was last shown of
each rule. Nothing in it is needed to rebuild a verdict.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

import msgspec

from trainguard.engine.streams.family_streams import FamilyStreams
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.streams.session import Stream
from trainguard.records import NodeRecord, StreamKey


class Watched(msgspec.Struct):
    """What a stream's item said of its data, and since when (epoch seconds) the tick has seen that unchanged.

    ``mark`` is `JobStreams.mark_of`.
    """

    mark: int
    since: float


class Notified(msgspec.Struct, array_like=True):
    """The last notification about a rule's finding.

    ``episode`` is the job's, ``since`` the event time in epoch seconds at which it began; ``severity`` is the gravest
    told, ``cleared`` whether they were told that it is over.
    """

    episode: int
    since: float | None
    severity: str | None
    cleared: bool = False


class JobState(msgspec.Struct):
    """What is stored in ``*#job``.

    ``published`` maps a rule to what its row said and the time at which it was last written, ``watermark_s`` to the
    event time up to which that row was evaluated, ``notified`` to the last notification. ``reported`` names what was
    applied when a full report was asked for at the job's end.
    """

    stored_rules: dict[str, StoredRule] = msgspec.field(default_factory=dict, name="slots")
    published: dict[str, tuple[str, float]] = msgspec.field(default_factory=dict, name="shown")
    watched: dict[str, Watched] = msgspec.field(default_factory=dict)
    notified: dict[str, Notified] = msgspec.field(default_factory=dict, name="told")
    watermark_s: dict[str, float] = msgspec.field(default_factory=dict, name="through")
    reported: list[str] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class JobStreams:
    """A job's streams by family, ``records`` their items; ``own`` and ``state`` are the job's own item."""

    families: Mapping[str, FamilyStreams]
    records: Mapping[StreamKey, NodeRecord]
    own: NodeRecord
    state: JobState

    @property
    def closed(self) -> bool:
        """Whether every stream has ended."""
        return all(record.closed for record in self.records.values())

    @cached_property
    def watermark_s(self) -> float | None:
        """The furthest watermark of all streams, epoch seconds."""
        marks = (family.watermark_s for family in self.families.values())
        return max((mark for mark in marks if mark is not None), default=None)

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The nodes that the job is known to have."""
        return frozenset().union(*(family.nodes for family in self.families.values()))

    def doubted(self, now: float) -> frozenset[StreamKey]:
        """Return the streams of which a family wants to know whether S3 has something newer, at ``now``."""
        return frozenset().union(*(family.doubted(now) for family in self.families.values()))

    @cached_property
    def counters(self) -> dict[str, int]:
        """What was counted on all units together, by name."""
        total: Counter[str] = Counter()
        for record in self.records.values():
            total.update(record.counters)
        return dict(sorted(total.items()))

    @property
    def last_fault(self) -> str | None:
        """What was wrong last, on the first unit that has something to say."""
        return next((family.last_fault for family in self.families.values() if family.last_fault), None)

    def mark_of(self, key: StreamKey) -> int:
        """Return what changes when a stream's unit writes something, and not when the engine looks for it in vain.

        The Version of its item does not tell: a watch over silence writes the item, too.
        """
        record = self.records[key]
        heard = self.families[key.family].heard_at(key)
        said = (sorted(record.cursors.items()), sorted(record.pending), record.watermark_s, heard)
        return crc32(repr(said).encode())

    def stream_of(self, key: StreamKey) -> Stream:
        """Return one stream; KeyError when there is none."""
        return self.families[key.family].streams[key]
