"""The tensors of a step that a rule checks: members of collections, and names that patterns match."""

from collections.abc import Iterable
from functools import lru_cache

from trainguard.formats.tensors.name_patterns import NamePatternError, name_pattern
from trainguard.formats.tensors.step_view import StepView

LOSSES, GRADIENTS, WEIGHTS, LEARNING_RATE = "losses", "gradients", "weights", "learning_rate"
_ANYTHING = ".*"
_KEPT_MATCHES = 128
"""A run saves the same names at most of its steps, in a handful of sets: one for each mode and interval."""
COSTLIEST_STEP = 2_000_000_000
"""Steps of all searches with a pattern in the names of one training step, at worst, about 20 s."""


@lru_cache(maxsize=_KEPT_MATCHES)
def _matching(pattern: str, names: tuple[str, ...]) -> tuple[str, ...]:
    searched = name_pattern(_without_ends(pattern))
    if sum(map(searched.cost, names)) > COSTLIEST_STEP:
        raise NamePatternError(f"{pattern!r} could take too long in the {len(names):,} names of a step")
    return tuple(name for name in names if searched.matches(name))


def _without_ends(pattern: str) -> str:
    """Return a pattern that is found where this one is, without ``.*`` at its ends: a search begins anywhere."""
    if "|" in pattern:
        return pattern
    while pattern.startswith(_ANYTHING) and pattern[2:3] not in {"?", "+", "*", "{"}:
        pattern = pattern[2:]
    while pattern.endswith(_ANYTHING) and pattern[-3:-2] != "\\":
        pattern = pattern[:-2]
    return pattern


def matching(step: StepView, pattern: str) -> tuple[str, ...]:
    """Return the names saved at a step that a pattern is found in, sorted; raises NamePatternError."""
    return _matching(pattern, tuple(step.names))


def selected(step: StepView, collections: Iterable[str] | None, patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the union of the collections' members and the patterns' matches, restricted to a step, sorted."""
    sets = [step.members(collection) for collection in collections or ()]
    sets += [frozenset(matching(step, pattern)) for pattern in patterns or ()]
    found = frozenset().union(*sets)
    return tuple(name for name in step.names if name in found)
