"""The rules over training steps, as stateless instances in the order in which they are shown."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from trainguard.rules import family_rules
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.selection import SCALAR_NAMES_SPEC, ScalarNamesParameters
from trainguard.rules.training.step_rule import StepRule

AnyStepRule = StepRule[Any, Any]


def _made(modules: Mapping[str, str]) -> tuple[AnyStepRule, ...]:
    return tuple(getattr(import_module(f"{__package__}.{module}"), rule)() for rule, module in modules.items())


TENSOR_RULES = _made(family_rules.TENSOR_RULES)
TRUSTED_RULES = _made(family_rules.TRUSTED_RULES)
TRAINING_RULES = (*TENSOR_RULES, *TRUSTED_RULES)
SETTINGS_TYPES: Mapping[str, type[RuleParameters]] = {SCALAR_NAMES_SPEC.name: ScalarNamesParameters}
PARAMETERS_TYPES: Mapping[str, type[RuleParameters]] = {
    **{rule.name: rule.parameters_type for rule in TRAINING_RULES},
    **SETTINGS_TYPES,
}
SPECS: Mapping[str, RuleSpec] = {
    **{rule.name: rule.spec for rule in TRAINING_RULES},
    SCALAR_NAMES_SPEC.name: SCALAR_NAMES_SPEC,
}
