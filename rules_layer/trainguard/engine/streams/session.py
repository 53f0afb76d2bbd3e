"""One unit's stream in hand: its state, the rules that judge it, and its item, to which objects are applied in order.

An unreadable object is counted and blocks nothing.
"""

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Self, TypeVar

import msgspec

from trainguard.core.errors import (
    ObjectMissingError,
    PortUnavailableError,
    StateConflictError,
    StateDamagedError,
    TelemetryFormatError,
    error_text,
)
from trainguard.core.ports import Journal
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.core.stores import NodeStates
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.rule_runner import Evaluate, Observe, RuleRunner, StoredRule
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.state.codec import CODEC, decode_state, encode_state

ITEM_CAP_BYTES = 64 * 1024
FAULT_LENGTH = 500
# A stream that waits this long on S3's clock waits for an object that does not come.
STREAM_SILENT_S = 300.0
# The cursor that holds the newest position seen, applied or not.
NEWEST = "newest"

# Counts how often more objects waited than an item has room for: the newest of them are listed again.
LISTED_NAMES = "degraded_to_listed_names"

# Depend on how messages were delivered, and so are no part of the state.
DELIVERY_COUNTERS = ("duplicates", "late", LISTED_NAMES)

# Begins the names of counters that say what was given up to keep an item under its cap.
DEGRADED = "degraded"

# No fault of anybody: a begin and its end may lie in two files.
HARMLESS_COUNTERS = frozenset({"lines", "events", "gzip_objects", "duplicates", "unpaired_events"})


class StreamState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is stored of every stream; ``watermark_s`` in epoch seconds."""

    watermark_s: float | None = msgspec.field(default=None, name="through")
    last_fault: str | None = None
    stored_rules: dict[str, StoredRule] = msgspec.field(default_factory=dict, name="slots")


State = TypeVar("State", bound=StreamState)


class Stream(ABC, Generic[State]):
    """Works on a state; `store` writes it back."""

    def __init__(self, node: str, state: State, plan: RulePlan) -> None:
        self.node = node
        self.state = state
        self._plan = plan
        self._rules = self._runner()

    def _runner(self) -> RuleRunner[Any]:
        return RuleRunner(self.rules_of(self._plan), self.state.stored_rules, self._plan)

    @staticmethod
    @abstractmethod
    def rules_of(plan: RulePlan) -> Sequence[Any]:
        """Return the rules that judge each such stream by itself."""

    @abstractmethod
    def _judge(self, *, closed: bool) -> Evaluate[Any]:
        """Return what judges a rule's state as it is now."""

    def _run(self, observe: Observe[Any] | None, *, closed: bool = False) -> list[Fire]:
        """Show each rule something new, and let it judge; before the first watermark nothing is judged."""
        if self.state.watermark_s is None:
            return []
        return self._rules.run(
            observe,
            self._judge(closed=closed),
            watermark_s=self.state.watermark_s,
            interval_s=self.interval_s,
            closed=closed,
        )

    @property
    def interval_s(self) -> float:
        return self._plan.interval_s

    @property
    def due(self) -> set[str]:
        """Rules whose row changed, or is as old as `publish_every_s` allows."""
        return self._rules.due

    @property
    def raised(self) -> list[str]:
        return self._rules.raised

    def finish(self) -> list[Fire]:
        """Judge as a stream that has ended."""
        return self._run(None, closed=True)

    def finished(self) -> Self:
        """Return a copy to finish: the stored state goes on if a late object arrives after the end."""
        self.store()
        return type(self)(self.node, copy.deepcopy(self.state), self._plan)

    def verdicts(self, *, closed: bool, of: Collection[str] | None = None) -> list[RuleOutcome]:
        """Judge the state for the rules that ``of`` names; None means all."""
        return self._rules.verdicts(self._judge(closed=closed), interval_s=self.interval_s, closed=closed, of=of)

    def ledger(self, paid_time: PaidTime) -> Ledger | None:
        """Return where the paid time of the unit's GPUs went; None where the stream holds no samples of GPUs."""
        del paid_time
        return None

    def state_of(self, rule: str) -> Any:
        """Return a rule's state; RuleFailedError when it failed here, KeyError when it does not run."""
        return self._rules.state_of(rule)

    def store(self) -> State:
        self._rules.store()
        return self.state

    def degrade(self) -> str | None:
        """Make the state smaller at a named cost; None when nothing is left to give up."""
        return None


AnyStream = Stream[Any]


@dataclass(frozen=True, slots=True)
class Announced:
    """An object that a message named; ``parsed`` is what the family reads in its key."""

    key: str
    parsed: Any


@dataclass(frozen=True, slots=True)
class Applied:
    """One object that was applied, with its fires, counts and fault."""

    key: str
    fires: tuple[Fire, ...]
    tally: Counter[str]
    fault: str | None


S = TypeVar("S", bound=Stream[Any])
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why nothing could be read of an object, as a sentence: unlike what its reader raised, that crosses processes."""

    why: str


def readable(key: str, read: Callable[[], Parsed]) -> Parsed | Unreadable:
    """Read one object; whatever is wrong with it is the result. Raises PortUnavailableError."""
    try:
        return read()
    except (TelemetryFormatError, ObjectMissingError) as fault:
        return Unreadable(str(fault))
    except PortUnavailableError:
        raise
    except Exception as fault:
        # An unforeseen fault of a reader must not block the node for good.
        return Unreadable(f"object {key}: {error_text(fault)}")


# Returns an object by its key as `readable` does; is called with one that was read.
Load = Callable[[str], Any]
Tap = Callable[[Any], object]


class Session(ABC, Generic[S]):
    """``load`` takes the place of ``get`` and the session's own reader; ``tap`` is called with what is applied."""

    def __init__(
        self,
        record: StreamRecord,
        get: Callable[[str], bytes],
        stream: S,
        *,
        load: Load | None = None,
        tap: Tap | None = None,
    ) -> None:
        self.record = record
        self.stream = stream
        self.counters: Counter[str] = Counter(record.counters)
        self._get, self._load, self._tap = get, load, tap

    @abstractmethod
    def announce(self, messages: Sequence[Announced]) -> None:
        """Take in messages of this node."""

    @abstractmethod
    def apply(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        """Apply what is ready, object by object; see the order engines for the parameters."""

    def defers(self, messages: Sequence[Announced], *, every_s: float, now: float, in_turn: bool) -> bool:
        """Whether messages may be dropped, since a later one, a flush or the close finds their objects.

        ``every_s`` is the job's interval of evaluation; ``now`` is in epoch seconds; with ``in_turn`` rules that are
        near a change wait for their turn, too.
        """
        del messages, every_s, now, in_turn
        return False

    @property
    def near_threshold(self) -> bool:
        """Whether a rule is near a change, so that the whole job is to be evaluated each minute."""
        return False

    @property
    @abstractmethod
    def has_changes(self) -> bool:
        """Whether there is something to save although nothing was applied."""

    @property
    def requests(self) -> Sequence[tuple[str, Mapping[str, object]]]:
        """Name and input of executions that the stream waits for, as the item has them: a lost start is repeated."""
        return ()

    @abstractmethod
    def to_record(self, *, closed: bool) -> StreamRecord:
        """Return the record to save."""

    def _use(
        self, key: str, read: Callable[[bytes], Parsed], fold: Callable[[Parsed], tuple[Counter[str], list[Fire]]]
    ) -> Applied:
        parsed = readable(key, lambda: read(self._get(key))) if self._load is None else self._load(key)
        if isinstance(parsed, Unreadable):
            return self._settle(key, Counter({"bad_objects": 1}), [], parsed.why)
        if self._tap is not None:
            self._tap(parsed)
        tally, fires = fold(parsed)
        return self._settle(key, tally, fires, None)

    def _settle(self, key: str, tally: Counter[str], fires: list[Fire], fault: str | None) -> Applied:
        self.counters.update(tally)
        unused = {name: amount for name, amount in tally.items() if name not in HARMLESS_COUNTERS}
        if fault is None and unused:
            fault = f"object {key}: " + ", ".join(f"{amount} {name}" for name, amount in sorted(unused.items()))
        if fault is not None:
            self.stream.state.last_fault = fault[:FAULT_LENGTH]
        return Applied(key, tuple(fires), tally, fault)

    def _record(self, *, cursors: Mapping[str, int | None], pending: Mapping[str, int], closed: bool) -> StreamRecord:
        data = encode_state(self.stream.store())
        while len(data) > ITEM_CAP_BYTES and (step := self.stream.degrade()) is not None:
            self.counters[step] += 1
            data = encode_state(self.stream.store())
        return replace(
            self.record,
            state=data,
            codec=CODEC,
            cursors={partition: position for partition, position in sorted(cursors.items()) if position is not None},
            pending=dict(sorted(pending.items())),
            counters={name: amount for name, amount in sorted(self.counters.items()) if amount},
            watermark_s=self.stream.state.watermark_s,
            closed=closed,
        )


def item_name(record: StreamRecord) -> str:
    return f"{record.key.job}/{record.key.node_kind}"


Decoded = TypeVar("Decoded", bound=msgspec.Struct)


def state_of(record: StreamRecord, kind: type[Decoded]) -> Decoded:
    """Return the state of an item, empty for a new one; raises StateCodecError."""
    return decode_state(item_name(record), record.codec, record.state, kind) if record.state else kind()


REBUILT = "items_rebuilt"

Opened = TypeVar("Opened")


def opened(record: StreamRecord, open_session: Callable[[StreamRecord], Opened], journal: Journal) -> Opened:
    """Open the session of an item, emptied where its state is damaged; StateCodecError for a later version's."""
    try:
        return open_session(record)
    except StateDamagedError as fault:
        journal.count(REBUILT, job=record.key.job, node=record.key.node_kind, reason=str(fault))
        return open_session(emptied(record))


def emptied(record: StreamRecord) -> StreamRecord:
    """Return an item as before its first object, with Version, outbox and registration."""
    return replace(
        record, state=b"", cursors={}, pending={}, counters={}, watermark_s=None, closed=False, expires_at=None
    )


RETENTION_S = 90 * 24 * 3_600


def item_of(job: JobRecord, key: StreamKey, nodes: NodeStates) -> StreamRecord:
    """Return the item of a stream, maybe empty; raises StateConflictError for one of a later registration."""
    stored = nodes.load(key)
    return StreamRecord(key, generation=job.generation) if stored is None else _current(job, stored)


def items_of(job: JobRecord, nodes: NodeStates) -> list[StreamRecord]:
    """Return the items of a job's streams, and its own, emptied of earlier registrations; StateConflictError."""
    own = StreamKey.own(job.job)
    records = {stored.key: (stored, _current(job, stored)) for stored in nodes.of_job(job.job)}
    found = [record for stored, record in records.values() if record is stored or record.key == own]
    if job.generation and own not in records:
        found.append(StreamRecord(own, generation=job.generation))
    return found


def _current(job: JobRecord, stored: StreamRecord) -> StreamRecord:
    if stored.generation > job.generation:
        raise StateConflictError(f"NodeState/{job.job}/{stored.key.node_kind}", stored.version)
    if stored.generation == job.generation:
        return stored
    return StreamRecord(stored.key, version=stored.version, generation=job.generation)


def expiry(watermark_s: float | None, now: float) -> int:
    """Return when a closed item may be deleted, epoch seconds: 90 days after its job's end, as far as known."""
    return int(max(watermark_s or now, now)) + RETENTION_S


# The node wrote nothing; it stopped writing long before the others; too much of its time has no samples.
GapKind = Literal["silent", "stopped", "no samples"]


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap in which a fault could hide; ``seconds`` of ``of_s`` are 0 where unknown, ``spans`` epoch seconds."""

    kind: GapKind
    node: str
    seconds: float = 0.0
    of_s: float = 0.0
    spans: tuple[tuple[float, float], ...] = ()
