"""What a rule says of the state that it was shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from trainguard.finding import Fact, Progress
from trainguard.records import Status
from trainguard.rules.details import Details, plain
from trainguard.rules.words import FactSheet, Text, Words

IdleNode = Literal["never used", "idle"]


@dataclass(frozen=True, slots=True)
class Measure:
    """What a number is, and its unit; a number of things, or without a dimension, has an empty one."""

    what: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a rule says of the state it was shown.

    ``status`` FIRED says that the firing condition holds now; whether that is a new fire is the engine's to know.
    ``reason`` is one sentence with the job's own numbers, and ``advice`` one on what to do about it, with them too;
    a judgement that has not fired needs none. ``worst`` names the series or process that is worst, for example
    ``gpu3``. ``measure`` says what ``measured`` and ``threshold`` are where that is not the first of the rule's
    measures. ``details`` goes into the report's JSON: of one node, or of a job that of nodes by their names; a rule of
    a deployment's own may give finite numbers, strings, lists and dicts as they are.

    ``affected_share`` is the share, 0 to 1, of the judged time in which the condition was seen; None leaves it to the
    share of evaluations in violation. ``wasted_share`` is the share, 0 to 1, of the node's paid time since the job's
    start that the finding cost, as far as the rule can say; None for a risk that has cost nothing yet. ``pooled``, of a
    rule that counts points, is in how many the condition was seen and how many were judged; nodes' counts add up.
    ``confidence``, 0 to 1, says how sure the rule is that it names the reason, where another rule may name a better
    one; None of a rule that has no doubt. ``idle_node`` says that the finding is of a node that does nothing at all.
    ``oversized`` says that what runs would do with a smaller instance.

    ``onset`` is when the condition that holds now began, epoch seconds, as the data show it; None leaves it to the
    first evaluation at which it held. ``until`` is when it was over, epoch seconds, of a rule whose finding stands
    although its condition is past. ``gpus`` are the GPUs on which it holds.

    ``past_reason`` and ``past_advice`` are what to say of it once the condition holds no more, where ``reason`` and
    ``advice`` would not be true then.

    ``score``, 0 to 100, is how much the finding matters, of a rule that knows it; None leaves it to what was lost.

    ``near`` says that the condition does not hold, and may within the next minutes: the node is evaluated each minute
    then.

    ``time_left_s``, of a risk that has cost nothing yet, is in how many seconds it comes true if it goes on as it did;
    None where nobody can say.

    ``kind`` is one of the rule's enumeration, and ``facts`` are what the judgement rests on: the sentences are made
    of these alone, by the rule's own text. ``clause`` is what was found in a few words. ``found`` are the words of
    a finding that is over, beside those of now; the engine sets them. ``facts_now`` are then what the words of now
    rest on. ``progress`` is how far its patience is, in every status. ``needs_longer`` says, of a judgement that is
    none yet, that a job as short cannot have what the rule looks for: it leaves no doubt that the job is healthy.
    """

    status: Status
    reason: str
    measured: float | None = None
    threshold: float | None = None
    measure: Measure | None = None
    worst: str | None = None
    data_points: int = 0
    progress: Progress | None = None
    advice: str | None = None
    affected_share: float | None = None
    wasted_share: float | None = None
    pooled: tuple[int, int] | None = None
    confidence: float | None = None
    idle_node: IdleNode | None = None
    oversized: bool = False
    onset: float | None = None
    until: float | None = None
    gpus: tuple[str, ...] = ()
    time_left_s: float | None = None
    score: float | None = None
    near: bool = False
    past_reason: str | None = None
    past_advice: str | None = None
    details: Details | Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    facts: tuple[Fact, ...] = ()
    clause: str = ""
    found: Words | None = None
    facts_now: tuple[Fact, ...] = ()
    needs_longer: bool = False

    @classmethod
    def of(cls, text: Text, status: Status, kind: str, facts: tuple[Fact, ...] = (), **more: Any) -> Self:
        """Return what a rule says by its facts, in the words that its ``text`` makes of them.

        ``kind`` is one of the rule's enumeration. ``more`` are the other fields, none of which holds a sentence.
        """
        now = text(FactSheet(status, kind, facts))
        past = text(FactSheet(status, kind, facts, past=True)) if status is Status.FIRED else None
        return cls(
            status,
            now.reason,
            advice=now.advice,
            clause=now.clause,
            past_reason=None if past is None else past.reason,
            past_advice=None if past is None else past.advice,
            kind=kind,
            facts=facts,
            **more,
        )

    @property
    def patience(self) -> str | None:
        """How far the rule is, for example ``240/1000``."""
        return None if self.progress is None else self.progress.words

    @property
    def found_words(self) -> Words:
        """The words of what was found: now, or before."""
        return Words(self.reason, self.advice, self.clause) if self.found is None else self.found

    @property
    def kept_texts(self) -> tuple[str, str | None]:
        """Reason and advice that stay true when the condition holds no more."""
        return self.past_reason or self.reason, self.past_advice or self.advice

    @property
    def plain_details(self) -> dict[str, Any]:
        """The details as JSON has them."""
        return plain(self.details)
