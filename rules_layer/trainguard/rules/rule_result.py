"""A rule's result: a status, a kind and facts; only the rule's text makes sentences of them, and no code reads one."""

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias

from trainguard.core.finding import Fact, Patience, Status
from trainguard.render.details import Details, plain


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a judgement.

    ``advice``: what to do about it; None where nothing was found. ``clause``: the finding as a clause in the past
    tense, for a report's first sentence; empty where nothing was found.
    """

    reason: str
    advice: str | None = None
    clause: str = ""


@dataclass(frozen=True, slots=True)
class FactSheet:
    """All that a text may describe; with ``past`` the condition holds no more, and verbs are in the past tense.

    A name stands for the first fact that has it; KeyError where there is none.
    """

    status: Status
    kind: str
    facts: tuple[Fact, ...] = ()
    past: bool = False

    def __getitem__(self, name: str) -> Fact:
        fact = self.get(name)
        if fact is None:
            raise KeyError(name)
        return fact

    def get(self, name: str) -> Fact | None:
        return next((fact for fact in self.facts if fact.name == name), None)

    def all(self, name: str) -> tuple[Fact, ...]:
        return tuple(fact for fact in self.facts if fact.name == name)

    def number(self, name: str) -> float:
        return float(self[name].value)

    def count(self, name: str) -> int:
        return int(self[name].value)

    def name(self, name: str) -> str:
        return str(self[name].value)

    def say(self, text: str, **named: object) -> str:
        """Fill in a text; KeyError where a fact is missing.

        ``{name}`` is a fact by its unit, ``{name:GPU}`` how many GPUs it counts, ``{name.limit}`` its threshold;
        ``{node}`` and ``{device}`` are the first fact's, ``{was/is}`` is the verb by tense, others are ``named``:
        values, or functions of the sheet.
        """
        return text.format_map(Named(self, named))

    def fill(self, words: Words, **named: object) -> Words:
        """Fill in the texts of a judgement as `say` does."""
        advice = None if words.advice is None else self.say(words.advice, **named)
        return Words(self.say(words.reason, **named), advice, self.say(words.clause, **named))

    def say_if(self, name: str, text: str, **named: object) -> str:
        """Fill in a text where there is a fact of the name; empty elsewhere."""
        return "" if self.get(name) is None else self.say(text, **named)


class Named(dict[str, object]):
    """What the places of a text stand for; ``shown`` is how a fact is written, by itself where it is not given."""

    def __init__(
        self,
        sheet: FactSheet,
        named: Mapping[str, object],
        shown: Callable[[FactSheet, Fact], object] = lambda _, fact: fact,
    ) -> None:
        super().__init__(named)
        self._sheet = sheet
        self._shown = shown

    def __getitem__(self, name: str) -> object:
        if name in self:
            value = super().__getitem__(name)
            return value(self._sheet) if callable(value) else value
        past, is_verb, now = name.partition("/")
        if is_verb:
            return past if self._sheet.past else now
        if name in {"node", "device"}:
            return getattr(self._sheet.facts[0], name) or ""
        return self._shown(self._sheet, self._sheet[name])


class JudgedKind(StrEnum):
    """Kinds of a rule's judgements, each with its status: OK where it names none."""

    status: Status

    def __new__(cls, value: str, status: Status = Status.OK) -> Self:
        kind = str.__new__(cls, value)
        kind._value_, kind.status = value, status
        return kind


Text: TypeAlias = Callable[[FactSheet], Words]
# Parts of a rule's texts by name, each said when a text has it.
Parts: TypeAlias = Mapping[str, Callable[[FactSheet], str]]

IdleNode = Literal["never used", "idle"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number's meaning and its unit; a number of things, or without a dimension, has an empty one."""

    what: str
    unit: str = ""


@dataclass(frozen=True)
class ResultFields:
    """What a rule says: the parameters of `RuleResult`.

    Its words may be written by the rule itself. They are parameters here and properties there, as one dataclass cannot
    have both under one name.
    """

    # FIRED says that the condition holds now; whether that is a new fire, the engine decides.
    status: Status
    # A sentence; empty where ``text`` makes all words.
    reason: InitVar[str] = ""
    measured: float | None = None
    threshold: float | None = None
    # Of ``measured`` and ``threshold``; None for the rule's first.
    measure: Measure | None = None
    # A series or process such as ``gpu3``.
    worst: str | None = None
    data_points: int = 0
    # How far patience is, in every status.
    progress: Patience | None = None
    # A sentence.
    advice: InitVar[str | None] = None
    # Share, 0 to 1, of the judged time; None takes the share of evaluations in violation.
    affected_share: float | None = None
    # Cost, 0 to 1, in the node's paid time since the job's start; None for a risk that has cost nothing yet.
    wasted_share: float | None = None
    # In how many points the condition was seen, and how many were judged; nodes' counts add up.
    pooled: tuple[int, int] | None = None
    # The same of the kinds that have other points.
    pooled_by: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # How sure the named reason is, 0 to 1; None of a certain rule.
    confidence: float | None = None
    # Says that the node does nothing at all.
    idle_node: IdleNode | None = None
    # Says that a smaller instance would do.
    oversized: bool = False
    # The condition's start, epoch seconds; None takes the first evaluation at which it held.
    onset: float | None = None
    # When it was over, of a finding that stands.
    until: float | None = None
    gpus: tuple[str, ...] = ()
    # When a risk comes true; None where unknown.
    time_left_s: float | None = None
    # How much it matters, 0 to 100; None derives it from the loss.
    score: float | None = None
    # The node is evaluated each minute.
    near_threshold: bool = False
    # Reason and advice once the condition holds no more; None where those of now stay true.
    past_reason: InitVar[str | None] = None
    past_advice: InitVar[str | None] = None
    # Of one node, or of a job's nodes by name; custom rules may give finite numbers, strings, lists and dicts.
    details: Details | Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    facts: tuple[Fact, ...] = ()
    # See `Words`.
    clause: InitVar[str] = ""
    # The words of a finding that is over, set by the engine.
    found: Words | None = None
    # A job as short cannot have the condition: it is healthy without reservation.
    needs_longer: bool = False
    # What a finding's evidence names as its cause, which may come after the fire: people are notified once it is known.
    cause: str = ""
    # Makes the words of the status, the kind and the facts when they are read: of most results they never are.
    text: Text | None = field(default=None, repr=False, compare=False)
    # The words that the rule has written itself, and those once the condition holds no more.
    written: Words = field(init=False)
    past_written: Words | None = field(init=False)

    def __post_init__(
        self, reason: str, advice: str | None, past_reason: str | None, past_advice: str | None, clause: str
    ) -> None:
        has_past = past_reason is not None or past_advice is not None
        past = Words("" if past_reason is None else past_reason, past_advice) if has_past else None
        object.__setattr__(self, "written", Words(reason, advice, clause))
        object.__setattr__(self, "past_written", past)


class RuleResult(ResultFields):
    """A rule's judgement of the state that it was shown."""

    @classmethod
    def of(cls, text: Text, status: Status, kind: str, facts: tuple[Fact, ...] = (), **more: Any) -> Self:
        """Return a rule's result by its facts, in the words that ``text`` makes of them when they are read."""
        return cls(status, kind=kind, facts=facts, text=text, **more)

    @classmethod
    def of_kind(cls, text: Text, kind: JudgedKind, facts: tuple[Fact, ...] = (), **more: Any) -> Self:
        return cls.of(text, kind.status, kind, facts, **more)

    @cached_property
    def words(self) -> Words:
        if self.text is None or self.written.reason:
            return self.written
        return self.text(FactSheet(self.status, self.kind, self.facts))

    @cached_property
    def past_words(self) -> Words | None:
        """The words once the condition holds no more; None where those of now stay true."""
        if self.text is None or self.written.reason:
            return self.past_written
        if self.status is not Status.FIRED:
            return None
        return self.text(FactSheet(self.status, self.kind, self.facts, past=True))

    @property
    def reason(self) -> str:
        return self.words.reason

    @property
    def advice(self) -> str | None:
        return self.words.advice

    @property
    def clause(self) -> str:
        return self.words.clause

    @property
    def past_reason(self) -> str | None:
        return None if self.past_words is None else self.past_words.reason

    @property
    def past_advice(self) -> str | None:
        return None if self.past_words is None else self.past_words.advice

    def pooled_as(self, kind: str) -> tuple[int, int] | None:
        """Return in how many points a kind was seen, and how many were judged; None of no points."""
        return self.pooled_by.get(kind, self.pooled)

    @property
    def patience(self) -> str | None:
        """How far the rule is, for example ``240/1000``."""
        return None if self.progress is None else self.progress.words

    @property
    def found_words(self) -> Words:
        """The words of what was found: now, or before."""
        return self.words if self.found is None else self.found

    @property
    def kept_texts(self) -> tuple[str, str | None]:
        """Reason and advice that stay true when the condition holds no more."""
        return self.past_reason or self.reason, self.past_advice or self.advice

    @property
    def plain_details(self) -> dict[str, Any]:
        return plain(self.details)
