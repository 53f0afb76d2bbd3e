"""Which tensors of a step a rule looks at: members of collections, and names that patterns match."""

import re
from collections.abc import Iterable
from functools import lru_cache

from trainguard.tensors.step_view import StepView

LOSSES, GRADIENTS, WEIGHTS = "losses", "gradients", "weights"
_KEPT_MATCHES = 128
"""A run saves the same names at most of its steps, in a handful of sets: one for each mode and interval."""


@lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern; raises re.error where it is none."""
    return re.compile(pattern)


@lru_cache(maxsize=_KEPT_MATCHES)
def _matching(pattern: str, names: tuple[str, ...]) -> tuple[str, ...]:
    search = compiled(pattern).search
    return tuple(name for name in names if search(name))


def matching(step: StepView, pattern: str) -> tuple[str, ...]:
    """Return the names saved at a step that a pattern is found in, sorted."""
    return _matching(pattern, tuple(step.names))


def selected(step: StepView, collections: Iterable[str] | None, patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the union of the collections' members and the patterns' matches, restricted to a step, sorted."""
    sets = [step.members(collection) for collection in collections or ()]
    sets += [frozenset(matching(step, pattern)) for pattern in patterns or ()]
    found = frozenset().union(*sets)
    return tuple(name for name in step.names if name in found) if found else ()
