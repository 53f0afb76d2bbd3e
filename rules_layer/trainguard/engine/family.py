"""The seam between the engine and a family of rules over one kind of data that training jobs write."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from trainguard.core.errors import StateDamagedError, UnreadableKeyError
from trainguard.core.job_policy import ALL
from trainguard.core.layout import EndKey, ProfileRoot, check_key
from trainguard.core.ports import ReadableObjects
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.plan import RulePlan, plan_rules
from trainguard.engine.streams.job_streams import FamilyStreams, JobState, JobStreams, LazyStreams
from trainguard.engine.streams.session import AnyStream, Session, state_of
from trainguard.pricing.table import PriceTable
from trainguard.rules.parameters import Defaults
from trainguard.rules.protocol import AnyRule, RuleParameters


class ObjectKey(Protocol):
    @property
    def root(self) -> ProfileRoot: ...

    @property
    def node(self) -> str:
        """The unit that wrote the object: a node, a worker or a rank."""
        ...

    @property
    def stream(self) -> str: ...

    @property
    def named_at(self) -> float | None:
        """The time in the object's name, epoch seconds; None where a name holds no time."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectEvents:
    """Which new objects of a bucket are brought to a family.

    EventBridge refuses a rule when more than about ten beginnings of its ``wildcards`` could match one key at once: two
    wildcards with three free parts each make eight. ``ends`` are suffixes. Look-alikes pass: `Family.parse_key` has the
    last word.
    """

    wildcards: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()

    def admits(self, key: str) -> bool:
        return key.endswith(self.ends) or any(_matches(wildcard, key) for wildcard in self.wildcards)


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """Where a stream's objects are read from; ``place_of`` returns where another job's profile lies, or None."""

    objects: ReadableObjects
    bucket: str
    root: ProfileRoot
    cap_bytes: int
    shared: object = None
    place_of: Callable[[str], tuple[str, ProfileRoot] | None] = lambda _: None

    def get(self, key: str) -> bytes:
        """Return an object's bytes, at most ``cap_bytes + 1``; raises as `ReadableObjects.get` does."""
        return self.objects.get(self.bucket, key, self.cap_bytes)


class Family(ABC):
    """One family of rules.

    ``name`` stands in the keys of its streams and rules; those of ``profiler`` are bare. ``units`` are what writes its
    streams, in the plural. ``expected_keys`` is for the message about a key that no family reads. An object larger than
    ``object_cap_bytes`` is counted, and not used. ``reads`` are keys as IAM writes them. ``settings_types`` are groups
    of settings that are no rule's. ``report`` is its half in reports, as ``module:object``, imported by those alone.
    ``rules`` are in the order in which they are shown; with ``defaults`` a job's owner chooses.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    units: ClassVar[str]
    expected_keys: ClassVar[str]
    events: ClassVar[ObjectEvents]
    object_cap_bytes: ClassVar[int]
    reads: ClassVar[tuple[str, ...]]
    report: ClassVar[str]
    streams_type: ClassVar[type[FamilyStreams]]
    settings_types: ClassVar[Mapping[str, type[RuleParameters]]] = MappingProxyType({})
    rules: Sequence[AnyRule]
    defaults: Collection[str] | None = None

    @abstractmethod
    def parse_key(self, key: str) -> ObjectKey | EndKey | None:
        """Read a key; None when it is of another layout, UnreadableKeyError when it is the family's and cannot be."""

    def parse_below(self, key: str, known: Callable[[str], ProfileRoot | None]) -> ObjectKey | None:
        """Read a key that does not name its job, or None; ``known`` reads a table for the job's folder above."""
        del key, known
        return None

    @abstractmethod
    def open_session(self, record: StreamRecord, source: ObjectSource, plan: RulePlan) -> Session[Any]:
        """Return the session that applies a stream's objects in order; raises StateCodecError."""

    @abstractmethod
    def open_stream(self, record: StreamRecord, plan: RulePlan) -> AnyStream:
        """Return a stream from its item, to be judged; raises StateCodecError."""

    def streams_of(self, records: Mapping[StreamKey, StreamRecord], streams: Mapping[StreamKey, AnyStream]) -> Any:
        """Return the family's streams of a job, of its ``streams_type``."""
        return self.streams_type(records, streams)

    def unit_rules(self, stream: str) -> Sequence[str]:
        """Return the names of the rules that have rows of their own for each unit of a stream: all, unless few are."""
        del stream
        return [rule.name for rule in self.rules]

    def chosen(self, job: JobRecord) -> Sequence[AnyRule]:
        """Return those of the family's rules that run on a job: all, where the choice is not its owner's.

        Else those that the owner named or gave a parameter; without any, ``defaults``.
        """
        named = job.training_rules
        if self.defaults is None:
            return self.rules
        if named is not None and not named:
            return ()
        with_parameters = {setting.partition("_")[0].rpartition("/")[2].lower() for setting in job.rule_settings}
        chosen = [
            rule
            for rule in self.rules
            if (named is not None and (rule.name in named or ALL in named))
            or rule.name.rpartition("/")[2].lower() in with_parameters
        ]
        return chosen or [rule for rule in self.rules if rule.name in self.defaults]

    @property
    def written(self) -> Sequence[str]:
        """The keys that jobs write for the family, as IAM writes them: those that it reads, where none are its own."""
        return self.reads

    def share(self, objects: ReadableObjects) -> object:
        """Return what the sessions of one evaluator share, from batch to batch; None where they share nothing."""
        del objects
        return None

    def expected(self, job: JobRecord, known: set[StreamKey]) -> set[StreamKey]:
        """Return the streams that the job must have, be they ``known`` from an object or not."""
        del job, known
        return set()


class Families:
    """The families of a deployment; raises ValueError for two families or rules of one name."""

    def __init__(self, *families: Family) -> None:
        self._by_name = {family.name: family for family in families}
        owners: dict[str, str] = {}
        for family in families:
            for rule in family.rules:
                if owners.setdefault(rule.name, family.name) != family.name:
                    raise ValueError(f"rule {rule.name} is of {owners[rule.name]} and of {family.name}, expected one")
        if len(self._by_name) != len(families):
            raise ValueError(f"families {[family.name for family in families]}, expected each name once")

    def __iter__(self) -> Iterator[Family]:
        return iter(self._by_name.values())

    @property
    def rule_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rule.name for family in self for rule in family.rules))

    def get(self, name: str) -> Family | None:
        return self._by_name.get(name)

    def of(self, key: StreamKey) -> Family:
        """Return the family of a stream; raises UnreadableKeyError when this version does not have it."""
        family = self._by_name.get(key.family)
        if family is None:
            known = ", ".join(self._by_name)
            raise UnreadableKeyError(key.node_kind, f"family {key.family} is unknown, expected one of {known}")
        return family

    def admits(self, key: str) -> bool:
        """Return whether any family's events let an object through; some that no family reads pass."""
        return any(family.events.admits(key) for family in self)

    def parse_key(self, key: str, known: Callable[[str], ProfileRoot | None] = lambda _: None) -> ObjectKey | EndKey:
        """Read the key of any family's object; raises UnreadableKeyError. ``known`` is as in `Family.parse_below`."""
        check_key(key)
        for family in sorted(self, key=lambda family: not family.events.admits(key)):
            parsed = family.parse_key(key)
            if parsed is not None:
                return parsed
        for family in self:
            below = family.parse_below(key, known)
            if below is not None:
                return below
        raise UnreadableKeyError(key, "expected " + ", or ".join(family.expected_keys for family in self))

    def expected(self, job: JobRecord, known: set[StreamKey]) -> set[StreamKey]:
        """Return the streams that the job must have; none outside SageMaker, where anybody may write the size."""
        if job.is_outside:
            return set()
        return set().union(*(family.expected(job, known) for family in self))

    def share(self, objects: ReadableObjects) -> Mapping[str, object]:
        return {family.name: family.share(objects) for family in self}

    def plan(self, job: JobRecord, *, defaults: Defaults = "documented", prices: PriceTable | None = None) -> RulePlan:
        rules = {family.name: tuple(family.chosen(job)) for family in self}
        groups = {name: kind for family in self for name, kind in family.settings_types.items()}
        return plan_rules(job, rules, others=self.rule_names, groups=groups, defaults=defaults, prices=prices)

    def open(self, job: str, plan: RulePlan, records: Sequence[StreamRecord]) -> JobStreams:
        """Decode a job's items; a stream that has ended is finished, on what was decoded.

        With a plan without details each stream is decoded when it is asked for. Items of an unknown family stay. Raises
        StateCodecError, StateDamagedError when a stream's item is damaged; the job's own item then starts again, and
        what was sent is not sent again.
        """
        opened = {record.key: record for record in records}
        own = next((record for key, record in opened.items() if key.is_own), StreamRecord(StreamKey.own(job)))
        held = {key: record for key, record in opened.items() if not key.is_own}
        families: dict[str, FamilyStreams] = {}
        for family in self:
            of_family = {key: record for key, record in held.items() if key.family == family.name}
            families[family.name] = family.streams_of(of_family, _streams(family, of_family, plan))
        try:
            state = state_of(own, JobState)
        except StateDamagedError:
            state = JobState()
        return JobStreams(
            families=families,
            records={key: record for key, record in held.items() if key.family in families},
            job_item=own,
            state=state,
        )


def _matches(wildcard: str, key: str) -> bool:
    """Return whether a key matches, in time that grows with its length: ``*`` stands for any characters."""
    first, *parts = wildcard.split("*")
    if not parts:
        return key == wildcard
    if not key.startswith(first):
        return False
    at = len(first)
    for part in parts[:-1]:
        found = key.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(key) - len(parts[-1]) >= at and key.endswith(parts[-1])


def _streams(
    family: Family, records: Mapping[StreamKey, StreamRecord], plan: RulePlan
) -> Mapping[StreamKey, AnyStream]:
    def opened(key: StreamKey) -> AnyStream:
        stream = family.open_stream(records[key], plan)
        if records[key].closed:
            stream.finish()
        return stream

    streams = LazyStreams(records, opened)
    return dict(streams) if plan.detailed else streams
