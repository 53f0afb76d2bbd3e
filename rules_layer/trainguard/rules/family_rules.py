"""Rules of other families than the profiler's, by name alone: who knows settings imports none of them.

A family's settings are given under the bare names of its rules, without the family.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from trainguard.rules.kernels import names as kernels
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import RuleSpec, SettingsSpec
from trainguard.rules.training import names as training


@dataclass(frozen=True, slots=True)
class FamilyRules:
    """A family's rules: their names, and the module that has them as ``PARAMETERS_TYPES`` and ``SPECS``, by name.

    ``settings`` are names of groups of settings that are no rule's, which the module has as ``SETTINGS_TYPES`` and
    ``SETTINGS_SPECS``. ``title`` is the family's name for people.
    """

    family: str
    title: str
    names: tuple[str, ...]
    module: str
    settings: tuple[str, ...] = ()

    def parameters_types(self) -> Mapping[str, type[RuleParameters]]:
        """Import the family's rules, and return the parameter classes of rules and groups of settings by name."""
        module = import_module(self.module)
        types: Mapping[str, type[RuleParameters]] = {**module.PARAMETERS_TYPES, **module.SETTINGS_TYPES}
        return types

    def specs(self) -> Mapping[str, RuleSpec]:
        """Import the family's rules, and return their specs by name."""
        specs: Mapping[str, RuleSpec] = import_module(self.module).SPECS
        return specs

    def settings_specs(self) -> Mapping[str, SettingsSpec]:
        """Import the family's rules, and return what is said of groups of settings by name."""
        specs: Mapping[str, SettingsSpec] = import_module(self.module).SETTINGS_SPECS
        return specs


OTHER_FAMILIES: tuple[FamilyRules, ...] = (
    FamilyRules(
        training.FAMILY, training.TITLE, training.NAMES, "trainguard.rules.training.registry", training.SETTINGS
    ),
    FamilyRules(kernels.FAMILY, kernels.TITLE, kernels.NAMES, "trainguard.rules.kernels.registry"),
)


def bare(rule: str) -> str:
    """Return a rule's name without its family."""
    return rule.rpartition("/")[2]


def names() -> Iterator[str]:
    """Iterate over the names of all rules of other families."""
    for family in OTHER_FAMILIES:
        yield from family.names


def spec_of_other(rule: str) -> RuleSpec | None:
    """Return the spec of a rule of another family, which is imported then; None of any other rule."""
    found = next((family for family in OTHER_FAMILIES if rule in family.names), None)
    return None if found is None else found.specs()[rule]


def settings_spec(group: str) -> SettingsSpec | None:
    """Return what is said of a group of settings, whose family is imported then; None of any other name."""
    found = next((family for family in OTHER_FAMILIES if group in family.settings), None)
    return None if found is None else found.settings_specs()[group]


def parameters_type_of_other(name: str) -> type[RuleParameters] | None:
    """Return the parameter class of a rule of another family, or of a group of settings; None of any other name."""
    found = next((family for family in OTHER_FAMILIES if name in (*family.names, *family.settings)), None)
    return None if found is None else found.parameters_types()[name]
