"""Rules of other families than the profiler's, by name alone: who knows settings imports none of them.

A family's settings are given under the bare names of its rules, without the family.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from trainguard.rules.protocol import RuleParameters
from trainguard.rules.training.names import NAMES as TRAINING


@dataclass(frozen=True, slots=True)
class FamilyRules:
    """A family's rules: their names, and as ``module:object`` their parameter classes by name."""

    names: tuple[str, ...]
    parameters: str

    def parameters_types(self) -> Mapping[str, type[RuleParameters]]:
        """Import the family's rules, and return their parameter classes by name."""
        module, _, name = self.parameters.partition(":")
        types: Mapping[str, type[RuleParameters]] = getattr(import_module(module), name)
        return types


OTHER_FAMILIES: tuple[FamilyRules, ...] = (
    FamilyRules(TRAINING, "trainguard.rules.training.registry:PARAMETERS_TYPES"),
)


def bare(rule: str) -> str:
    """Return a rule's name without its family."""
    return rule.rpartition("/")[2]


def names() -> Iterator[str]:
    """Iterate over the names of all rules of other families."""
    for family in OTHER_FAMILIES:
        yield from family.names
