"""A rule's result: a status, a kind and facts; only the rule's text makes sentences of them, and no code reads one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

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
# The fields that a rule's text makes when one of them is read: of most judgements none is.
_WORDS = ("reason", "advice", "clause", "past_reason", "past_advice")


@dataclass(frozen=True, slots=True)
class Measure:
    """A number's meaning and its unit; a number of things, or without a dimension, has an empty one."""

    what: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """A rule's judgement of the state that it was shown.

    ``status`` FIRED says that the condition holds now; whether that is a new fire, the engine decides. ``reason`` and
    ``advice`` are a sentence each, ``past_reason`` and ``past_advice`` theirs once the condition holds no more.
    ``worst`` is a series or process such as ``gpu3``. ``measure`` is of ``measured`` and ``threshold``, None for the
    rule's first. ``details`` are of one node, or of a job's nodes by name; custom rules may give finite numbers,
    strings, lists and dicts.

    ``affected_share``, 0 to 1, is of the judged time; None takes the share of evaluations in violation.
    ``wasted_share``, 0 to 1, is the cost in the node's paid time since the job's start; None for a risk that has cost
    nothing yet. ``pooled`` is in how many points the condition was seen, and how many were judged; nodes' counts add
    up. ``confidence``, 0 to 1, is how sure the named reason is; None of a certain rule. ``idle_node`` says that the
    node does nothing at all, ``oversized`` that a smaller instance would do.

    ``onset`` is the condition's start, epoch seconds; None takes the first evaluation at which it held. ``until`` is
    when it was over, of a finding that stands. ``score``, 0 to 100, is how much it matters; None derives it from the
    loss. With ``near_threshold`` the node is evaluated each minute. ``time_left_s`` is when a risk comes true; None
    where unknown.

    ``cause`` names what a finding's evidence names as its cause, which may come after the fire: people are notified
    once it is known.

    ``found`` are the words of a finding that is over, set by the engine. ``progress`` is that of patience, in every
    status. ``needs_longer`` says that a job as short cannot have the condition: it is healthy without reservation.
    """

    status: Status
    reason: str
    measured: float | None = None
    threshold: float | None = None
    measure: Measure | None = None
    worst: str | None = None
    data_points: int = 0
    progress: Patience | None = None
    advice: str | None = None
    affected_share: float | None = None
    wasted_share: float | None = None
    pooled: tuple[int, int] | None = None
    pooled_by: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    confidence: float | None = None
    idle_node: IdleNode | None = None
    oversized: bool = False
    onset: float | None = None
    until: float | None = None
    gpus: tuple[str, ...] = ()
    time_left_s: float | None = None
    score: float | None = None
    near_threshold: bool = False
    past_reason: str | None = None
    past_advice: str | None = None
    details: Details | Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    facts: tuple[Fact, ...] = ()
    clause: str = ""
    found: Words | None = None
    needs_longer: bool = False
    cause: str = ""
    text: Text | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, text: Text, status: Status, kind: str, facts: tuple[Fact, ...] = (), **more: Any) -> Self:
        """Return a rule's result by its facts, in the words that ``text`` makes of them when they are read."""
        result = cls(status, "", kind=kind, facts=facts, text=text, **more)
        for name in _WORDS:
            object.__delattr__(result, name)
        return result

    @classmethod
    def of_kind(cls, text: Text, kind: JudgedKind, facts: tuple[Fact, ...] = (), **more: Any) -> Self:
        return cls.of(text, kind.status, kind, facts, **more)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a field of words that is read for the first time."""
            if name not in _WORDS:
                raise AttributeError(f"{type(self).__name__} has no {name!r}")
            sheet = FactSheet(self.status, self.kind, self.facts)
            now, past = self.text(sheet), None
            if self.status is Status.FIRED:
                past = self.text(replace(sheet, past=True))
            object.__setattr__(self, "reason", now.reason)
            object.__setattr__(self, "advice", now.advice)
            object.__setattr__(self, "clause", now.clause)
            object.__setattr__(self, "past_reason", None if past is None else past.reason)
            object.__setattr__(self, "past_advice", None if past is None else past.advice)
            return object.__getattribute__(self, name)

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
        return Words(self.reason, self.advice, self.clause) if self.found is None else self.found

    @property
    def kept_texts(self) -> tuple[str, str | None]:
        """Reason and advice that stay true when the condition holds no more."""
        return self.past_reason or self.reason, self.past_advice or self.advice

    @property
    def plain_details(self) -> dict[str, Any]:
        return plain(self.details)
