"""The items of a job, opened: every unit's streams, and the job's own item ``*#job``.

The job's own item belongs to the scheduler: episodes and outbox of the whole job's fires, and each rule's last row.
Nothing in it is needed to rebuild a verdict.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from zlib import crc32

import msgspec

from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.streams.session import AnyStream, Gap
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome, with_liveness
from trainguard.ledger.bucket import StepShares
from trainguard.ledger.job import Ledger
from trainguard.ledger.node import Span
from trainguard.planning.finish import Point
from trainguard.pricing.cost import PaidTime
from trainguard.rules.rule_inputs import KnownHang


class LazyStreams(Mapping[StreamKey, AnyStream]):
    """Streams by key, in the order of ``keys``; raises StateCodecError when the item of one cannot be decoded."""

    def __init__(self, keys: Iterable[StreamKey], open_stream: Callable[[StreamKey], AnyStream]) -> None:
        self._opened: dict[StreamKey, AnyStream | None] = dict.fromkeys(keys)
        self._open = open_stream

    def __getitem__(self, key: StreamKey) -> AnyStream:
        stream = self._opened[key]
        if stream is None:
            stream = self._opened[key] = self._open(key)
        return stream

    def __iter__(self) -> Iterator[StreamKey]:
        return iter(self._opened)

    def __len__(self) -> int:
        return len(self._opened)

    def opener(self, key: StreamKey) -> Callable[[], AnyStream]:
        return partial(self._open, key)

    def in_order(self, keys: Iterable[StreamKey]) -> "LazyStreams":
        """Return streams that are still to be opened, in another order."""
        return LazyStreams(keys, self._open)


UnitVerdicts = dict[str, dict[str, RuleOutcome]]

Seen = Callable[[StreamKey, AnyStream, Sequence[RuleOutcome]], None]


# A family's rules about a job, one verdict a rule, and the job-wide fires.
FamilyVerdicts = tuple[Sequence[RuleOutcome], Sequence[Fire]]


@dataclass(frozen=True, slots=True)
class JobMoment:
    """How a job is evaluated; ``closed``: every stream has ended. ``now`` is in epoch seconds; None in a report."""

    closed: bool
    now: float | None = None
    ledger: Callable[[], Ledger | None] = lambda: None

    def busy(self, span: Span) -> float | None:
        """Return which share, 0 to 1, of a span in epoch seconds the GPUs were busy; None where it is not known."""
        ledger = self.ledger()
        return None if ledger is None else ledger.busy(span)


@dataclass(frozen=True)
class FamilyStreams(ABC):
    """One family's streams of a job by key, and their items; empty before the family's first object."""

    records: Mapping[StreamKey, StreamRecord]
    streams: Mapping[StreamKey, AnyStream]

    @abstractmethod
    def judge(self, job: JobRecord, plan: RulePlan, job_state: "JobState", moment: JobMoment) -> FamilyVerdicts:
        """Return the verdict of each of the family's rules on the job; moves the episodes in ``job_state``."""

    def due_for_listing(self, now: float) -> frozenset[StreamKey]:
        """Return the streams whose silence S3 is asked about at ``now``, epoch seconds, though nothing waits."""
        del now
        return frozenset()

    def last_write_at(self, key: StreamKey) -> float | None:
        """Return when S3 got a stream's newest object, epoch seconds; None where its item's cursors say enough."""
        del key
        return None

    @property
    def near_threshold(self) -> bool:
        """Whether a rule over one of the units is near a change."""
        return False

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset()

    @property
    def first_at(self) -> float | None:
        """The earliest time of the family's data, epoch seconds; None where it does not say."""
        return None

    @property
    def unpaid_s(self) -> float:
        """For how many seconds the job had no instances, as far as the family can tell."""
        return 0.0

    @property
    def step_shares(self) -> StepShares | None:
        return None

    @property
    def newest_step(self) -> Point | None:
        """When the newest training step was done, epoch seconds, and its number; None without numbers."""
        return None

    def gaps(self, job: JobRecord) -> Sequence[Gap]:
        """Return the gaps of the job's data, in which a fault could hide."""
        del job
        return ()

    def ledger(self, paid_time: PaidTime, *, ended: bool, shares: StepShares | None = None) -> Ledger | None:
        del paid_time, ended, shares
        return None

    @cached_property
    def watermarks(self) -> Mapping[str, float]:
        """The furthest watermark of each kind of stream, epoch seconds."""
        furthest: defaultdict[str, float] = defaultdict(float)
        for key, stream in self.streams.items():
            if stream.state.watermark_s is not None:
                furthest[key.stream] = max(furthest[key.stream], stream.state.watermark_s)
        return dict(furthest)

    @cached_property
    def watermark_s(self) -> float | None:
        """The furthest watermark of all the family's streams, epoch seconds."""
        return max(self.watermarks.values(), default=None)

    @cached_property
    def last_fault(self) -> str | None:
        return next((stream.state.last_fault for stream in self.streams.values() if stream.state.last_fault), None)

    @property
    def stored_rules(self) -> list[Mapping[str, StoredRule]]:
        return [stream.state.stored_rules for stream in self.streams.values()]

    def unit_verdicts(self, seen: Seen | None = None) -> UnitVerdicts:
        """Return the verdicts by rule and unit, with liveness within each kind of stream; ``seen`` gets each stream."""
        judged: dict[StreamKey, Sequence[RuleOutcome]] = {}
        for key, stream in self.streams.items():
            judged[key] = stream.verdicts(closed=self.records[key].closed)
            if seen is not None:
                seen(key, stream, judged[key])
        verdicts: defaultdict[str, dict[str, RuleOutcome]] = defaultdict(dict)
        for key in list(judged):
            of_stream = judged.pop(key)
            watermark_s, ahead = self.streams[key].state.watermark_s, self.watermarks.get(key.stream)
            for verdict in of_stream:
                verdicts[verdict.rule][key.node] = with_liveness(verdict, watermark_s, ahead)
        return dict(verdicts)


class Watched(msgspec.Struct):
    """`JobStreams.mark_of` a stream, and since when (epoch seconds) the scheduler has seen it unchanged."""

    mark: int
    since: float


class Notified(msgspec.Struct, array_like=True):
    """The last notification about a rule's finding; ``since`` in epoch seconds, ``severity`` the highest notified.

    ``has_cause``: What caused it was known and notified.
    """

    episode: int
    since: float | None
    severity: str | None
    cleared: bool = False
    has_cause: bool = False


# A point is kept for each such part of a job's steps.
_PARTS = 100


class StepProgress(msgspec.Struct, array_like=True):
    """When further parts of a job's steps were reached, how often in a row the limit was missed, and the warning."""

    points: list[Point] = msgspec.field(default_factory=list)
    misses: int = 0
    warned: bool = False

    def add(self, point: Point, total: int) -> bool:
        """Keep a point that is a part further than the last one; say whether it was kept."""
        if self.points and (point[0] <= self.points[-1][0] or _PARTS * (point[1] - self.points[-1][1]) < total):
            return False
        self.points.append(point)
        return True


class JobState(msgspec.Struct):
    """What is stored in ``*#job``.

    ``published`` maps a rule to its row and the time of its last write, ``watermark_s`` to the event time up to which
    that row was evaluated. ``reported`` names what was applied at the last full report of the job's end. ``hang`` is
    what the dumps of the newest standstill say, ``hang_asked`` are the sets of dumps that were asked to be read.
    ``progress`` is kept of a job of known length.
    """

    stored_rules: dict[str, StoredRule] = msgspec.field(default_factory=dict, name="slots")
    published: dict[str, tuple[str, float]] = msgspec.field(default_factory=dict, name="shown")
    watched: dict[str, Watched] = msgspec.field(default_factory=dict)
    notified: dict[str, Notified] = msgspec.field(default_factory=dict, name="told")
    watermark_s: dict[str, float] = msgspec.field(default_factory=dict, name="through")
    reported: list[str] = msgspec.field(default_factory=list)
    hang: KnownHang | None = None
    hang_asked: list[str] = msgspec.field(default_factory=list)
    progress: StepProgress = msgspec.field(default_factory=StepProgress)


@dataclass(frozen=True)
class JobStreams:
    """A job's streams by family, ``records`` their items; ``job_item`` and ``state`` are of the job itself."""

    families: Mapping[str, FamilyStreams]
    records: Mapping[StreamKey, StreamRecord]
    job_item: StreamRecord
    state: JobState

    @property
    def closed(self) -> bool:
        return all(record.closed for record in self.records.values())

    @cached_property
    def watermark_s(self) -> float | None:
        marks = (family.watermark_s for family in self.families.values())
        return max((mark for mark in marks if mark is not None), default=None)

    @property
    def newest_step(self) -> Point | None:
        """That of the first family that has any: families may count otherwise."""
        return next((step for family in self.families.values() if (step := family.newest_step) is not None), None)

    @cached_property
    def nodes(self) -> frozenset[str]:
        return frozenset().union(*(family.nodes for family in self.families.values()))

    def due_for_listing(self, now: float) -> frozenset[StreamKey]:
        """Return the streams of which a family wants to know whether S3 has something newer, at ``now``."""
        return frozenset().union(*(family.due_for_listing(now) for family in self.families.values()))

    @cached_property
    def counters(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for record in self.records.values():
            total.update(record.counters)
        return dict(sorted(total.items()))

    @property
    def last_fault(self) -> str | None:
        return next((family.last_fault for family in self.families.values() if family.last_fault), None)

    def mark_of(self, key: StreamKey) -> int:
        """Return a number that changes when a stream's unit writes; its item's Version changes with a watch, too."""
        record = self.records[key]
        heard = self.families[key.family].last_write_at(key)
        contents = (sorted(record.cursors.items()), sorted(record.pending), record.watermark_s, heard)
        return crc32(repr(contents).encode())

    def stream_of(self, key: StreamKey) -> AnyStream:
        return self.families[key.family].streams[key]
