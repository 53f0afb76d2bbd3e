"""The tensors of a step that a rule checks, by collections and patterns, and settings for the names of scalars."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import ClassVar

from trainguard.core.errors import RuleConfigError
from trainguard.formats.tensors.name_patterns import NamePatternError, name_pattern
from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.family_rules import SCALAR_NAMES, TRAINING, bare
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import ParameterHelp, RuleSpec

LOSSES, GRADIENTS, WEIGHTS, LEARNING_RATE = "losses", "gradients", "weights", "learning_rate"
GRADIENT_NORM = "gradient_norm"
_ANYTHING = ".*"
# A run saves the same names at most of its steps, in a handful of sets: one for each mode and interval.
_KEPT_MATCHES = 128
# Steps of all searches with a pattern in the names of one training step, at worst, about 20 s.
COSTLIEST_STEP = 2_000_000_000


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


def check_pattern(rule: str, parameter: str, pattern: str) -> None:
    """Refuse a pattern that is no regular expression, or could take too long; raises RuleConfigError."""
    try:
        name_pattern(pattern)
    except NamePatternError as fault:
        expected = f"a regular expression ({fault})"
        raise RuleConfigError(rule, f"{rule}_{parameter}", pattern, expected) from fault


def matching(step: StepView, pattern: str) -> tuple[str, ...]:
    """Return the names saved at a step that a pattern is found in, sorted; raises NamePatternError."""
    return _matching(pattern, tuple(step.names))


def selected(step: StepView, collections: Iterable[str] | None, patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the union of the collections' members and the patterns' matches, restricted to a step, sorted."""
    sets = [step.members(collection) for collection in collections or ()]
    sets += [frozenset(matching(step, pattern)) for pattern in patterns or ()]
    found = frozenset().union(*sets)
    return tuple(name for name in step.names if name in found)


_PATTERN = "pattern"
SCALAR_NAMES_SPEC = RuleSpec(
    name=SCALAR_NAMES,
    family=TRAINING,
    looks_at="names of scalars",
    fires_when="never: the settings say what names mean",
    condition="never",
    parameters={
        "losses": ParameterHelp(_PATTERN, "names with a match are losses"),
        "metrics": ParameterHelp(_PATTERN, "names with a match are metrics"),
        "errors": ParameterHelp(_PATTERN, "metrics with a match are errors, of which less is better"),
        "learning_rate": ParameterHelp(_PATTERN, "names with a match are the learning rate"),
        "gradient_norm": ParameterHelp(_PATTERN, "names with a match are the norm of gradients"),
        "evaluation": ParameterHelp(_PATTERN, "names with a match are of evaluation, all others of training"),
        "ignored": ParameterHelp(_PATTERN, "names with a match are not used"),
    },
)


class ScalarNamesParameters(RuleParameters, frozen=True, kw_only=True):
    """A regular expression for each meaning of a name, searched in it; None leaves the documented one."""

    rule_name: ClassVar[str] = bare(SCALAR_NAMES)

    losses: str | None = None
    metrics: str | None = None
    errors: str | None = None
    learning_rate: str | None = None
    gradient_norm: str | None = None
    evaluation: str | None = None
    ignored: str | None = None

    def __post_init__(self) -> None:
        for meaning, pattern in self.replaced().items():
            check_pattern(self.rule_name, meaning, pattern)

    def replaced(self) -> Mapping[str, str]:
        given = {meaning: getattr(self, meaning) for meaning in SCALAR_NAMES_SPEC.parameters}
        return {meaning: text for meaning, text in given.items() if text is not None}
