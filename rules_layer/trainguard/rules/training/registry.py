"""The rules over training steps, as stateless instances in the order in which they are shown."""

from collections.abc import Mapping
from typing import Any

from trainguard.rules import family_rules
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.selection import SCALAR_NAMES_SPEC, ScalarNamesParameters
from trainguard.rules.training.step_rule import StepRule

AnyStepRule = StepRule[Any, Any]


_PACKAGE = "trainguard.rules.training"
TENSOR_RULES: tuple[AnyStepRule, ...] = family_rules.made(_PACKAGE, family_rules.TENSOR_RULES)
TRUSTED_RULES: tuple[AnyStepRule, ...] = family_rules.made(_PACKAGE, family_rules.TRUSTED_RULES)
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
