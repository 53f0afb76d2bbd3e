"""From facts to words: what a rule's text gets, and what it returns.

A rule gives a status, a kind of its own enumeration and facts. Its text, one function in one module beside the rule,
makes all sentences of them. Nothing else composes a sentence on a finding, and no code reads one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from trainguard.finding import Fact
from trainguard.statuses import Status


@dataclass(frozen=True, slots=True)
class Words:
    """What people read of a judgement.

    Attributes
    ----------
    reason : str
        What was found, or why nothing was, in sentences with full stops.
    advice : str or None
        What to do about it; None where nothing was found.
    clause : str
        What was found on the job as a clause in the past tense, for the first sentence of a report; empty where
        nothing was found.
    """

    reason: str
    advice: str | None = None
    clause: str = ""


@dataclass(frozen=True, slots=True)
class FactSheet:
    """What a text may speak of: nothing else is known to it.

    ``past`` says that the condition holds no more, so that verbs are in the past tense.
    """

    status: Status
    kind: str
    facts: tuple[Fact, ...] = ()
    past: bool = False

    def __getitem__(self, name: str) -> Fact:
        """Return the first fact of a name; KeyError when there is none."""
        for fact in self.facts:
            if fact.name == name:
                return fact
        raise KeyError(name)

    def get(self, name: str) -> Fact | None:
        """Return the first fact of a name; None when there is none."""
        return next((fact for fact in self.facts if fact.name == name), None)

    def all(self, name: str) -> tuple[Fact, ...]:
        """Return all facts of a name, in their order."""
        return tuple(fact for fact in self.facts if fact.name == name)

    def number(self, name: str) -> float:
        """Return the value of the first fact of a name as a number; KeyError when there is none."""
        return float(self[name].value)

    def name(self, name: str) -> str:
        """Return the value of the first fact of a name as a text; KeyError when there is none."""
        return str(self[name].value)


Text: TypeAlias = Callable[[FactSheet], Words]
