"""The streams of one family of rules on a job, opened: what the family judges the job from."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.gaps import Gap
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.streams.session import Stream
from trainguard.engine.verdicts.liveness import with_liveness
from trainguard.engine.verdicts.verdict import Fire, Verdict
from trainguard.ledger.job import Ledger
from trainguard.ledger.shares import StepShares
from trainguard.pricing.cost import Account
from trainguard.records import JobRecord, NodeRecord, StreamKey

UnitVerdicts = dict[str, dict[str, Verdict]]
"""Verdicts by rule and unit."""

Seen = Callable[[StreamKey, Stream, Sequence[Verdict]], None]


@dataclass(frozen=True, slots=True)
class FamilyVerdicts:
    """What a family's rules say of a job, one verdict a rule, and the fires of rules over the whole job that began."""

    verdicts: Sequence[Verdict]
    fires: Sequence[Fire]


@dataclass(frozen=True, slots=True)
class JobRules:
    """What the job's own item holds for the rules over the whole job: slots by rule, and how far each was shown."""

    stored_rules: dict[str, StoredRule]
    watermark_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Look:
    """How a job is looked at.

    Attributes
    ----------
    closed : bool
        Whether every stream of the job has ended, other families' too.
    now : float or None
        The time of the look, epoch seconds; None of one that has no clock, such as a report.
    ledger : function
        Returns the job's ledger; asked for when something fires.
    """

    closed: bool
    now: float | None = None
    ledger: Callable[[], Ledger | None] = lambda: None


@dataclass(frozen=True)
class FamilyStreams(ABC):
    """One family's streams of a job by key, and their items; empty before the family's first object."""

    records: Mapping[StreamKey, NodeRecord]
    streams: Mapping[StreamKey, Stream]

    @abstractmethod
    def judge(self, job: JobRecord, plan: RulePlan, own: JobRules, look: Look) -> FamilyVerdicts:
        """Return the verdict of each of the family's rules on the job; moves the episodes in ``own``."""

    def doubted(self, now: float) -> frozenset[StreamKey]:
        """Return the streams about whose silence S3 is to be asked at ``now``, epoch seconds, though nothing waits."""
        del now
        return frozenset()

    def heard_at(self, key: StreamKey) -> float | None:
        """Return when S3 got a stream's newest object, epoch seconds; None where its item's cursors say enough."""
        del key
        return None

    @property
    def near(self) -> bool:
        """Whether a rule over one of the units is near a change."""
        return False

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that the job is known to have from this family."""
        return frozenset()

    @property
    def first_at(self) -> float | None:
        """The earliest time that the family has data of, epoch seconds; None where it does not say."""
        return None

    @property
    def unpaid_s(self) -> float:
        """For how many seconds the job had no instances, as far as the family can tell."""
        return 0.0

    @property
    def step_shares(self) -> StepShares | None:
        """What a kernel trace says of the job's steps; None from a family that reads none."""
        return None

    def gaps(self, job: JobRecord) -> Sequence[Gap]:
        """Return what of the job nobody saw, in which a fault could hide."""
        del job
        return ()

    def ledger(self, account: Account, *, ended: bool, shares: StepShares | None = None) -> Ledger | None:
        """Return where the paid time of the job went; None from a family that does not know.

        ``ended`` says that every stream of the job has ended, ``shares`` what a kernel trace says of its steps.
        """
        del account, ended, shares
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
        """What was wrong last, on the first unit that has something to say."""
        return next((stream.state.last_fault for stream in self.streams.values() if stream.state.last_fault), None)

    @property
    def stored_rules(self) -> list[Mapping[str, StoredRule]]:
        """What is stored of rules, stream by stream."""
        return [stream.state.stored_rules for stream in self.streams.values()]

    def unit_verdicts(self, seen: Seen | None = None) -> UnitVerdicts:
        """Return the verdicts by rule and unit; a unit that has fallen silent counts as `liveness` says.

        Each kind of stream is compared with its own kind: kinds come at different times. ``seen`` is called with each
        stream and its verdicts as soon as it is judged.
        """
        judged: dict[StreamKey, Sequence[Verdict]] = {}
        for key, stream in self.streams.items():
            judged[key] = stream.verdicts(closed=self.records[key].closed)
            if seen is not None:
                seen(key, stream, judged[key])
        verdicts: defaultdict[str, dict[str, Verdict]] = defaultdict(dict)
        for key, of_stream in judged.items():
            watermark_s, ahead = self.streams[key].state.watermark_s, self.watermarks.get(key.stream)
            for verdict in of_stream:
                verdicts[verdict.rule][key.node] = with_liveness(verdict, watermark_s, ahead)
        return dict(verdicts)
