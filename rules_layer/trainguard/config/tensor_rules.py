"""Settings of the managed rules over tensors, a class a rule, and the collections that each has saved by default."""

from collections.abc import Callable, Mapping

from trainguard.config.debugger_hook import CollectionConfig
from trainguard.core.errors import RuleConfigError
from trainguard.rules.parameters import parameters_of
from trainguard.rules.training.registry import TENSOR_RULES

Value = float | int | str | bool | None


def written(rule: str, name: str, value: object) -> str:
    """Return a parameter's value as a setting says it; raises RuleConfigError for what is no value."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, int | float | str):
        return str(value)
    raise RuleConfigError(rule, name, value, "a number, a text, True, False or None")


_EVERY_500 = {"save_interval": "500"}
_EVERY_5 = {"save_interval": "5"}


def _at_500(name: str, include: str | None = None) -> CollectionConfig:
    return CollectionConfig(name, _EVERY_500 if include is None else {"include_regex": include, **_EVERY_500})


# The collections that a rule has saved where the launch code names none, as the SDK does.
_COLLECTIONS: Mapping[str, tuple[CollectionConfig, ...]] = {
    "VanishingGradient": (_at_500("gradients"),),
    "WeightUpdateRatio": (_at_500("weights"),),
    "LossNotDecreasing": (_at_500("losses"),),
    "CheckInputImages": (_at_500("input_image", ".*hybridsequential0_input_0"),),
    "DeadRelu": (_at_500("relu_output", ".*relu_output"),),
    # The SDK saves the inputs of activations alone, and so two of the rule's three checks never run.
    "PoorWeightInitialization": (_at_500("relu_input", ".*relu_input"), _at_500("gradients"), _at_500("losses")),
    "NLPSequenceRatio": (_at_500("input_sequence", ".*embedding0_input_0"),),
    "FeatureImportanceOverweight": (_at_500("feature_importance"),),
    "CreateXgboostReport": (
        *(CollectionConfig(name, _EVERY_5) for name in ("metrics", "feature_importance", "predictions", "labels")),
        CollectionConfig("hyperparameters", {"save_steps": "0"}),
    ),
}


class TensorRuleConfig:
    """Settings of one rule over tensors: ``parameters`` are given by their names on the rule's page.

    ``settings`` are what was given, as ``<Rule>_<parameter>``: what tags say; ``rule_parameters`` the same with
    ``rule_to_invoke``, as the managed service has them. ``collections`` is what the rule has saved by default. Raises
    RuleConfigError when the rule has no such parameter, or the value is not allowed.
    """

    def __init__(self, **parameters: Value) -> None:
        self.rule_name = type(self).__name__
        self.settings: Mapping[str, str] = written_settings(self.rule_name, parameters)
        try:
            check_settings(self.rule_name, self.settings)
        except RuleConfigError as fault:
            if fault.field in self.settings:
                raise  # what the rule lacks may be given to Rule.sagemaker
        self.rule_parameters: dict[str, Value] = parameters | {"rule_to_invoke": self.rule_name}
        self.collections: tuple[CollectionConfig, ...] = _COLLECTIONS.get(self.rule_name, ())


_BY_NAME = {rule.name.rpartition("/")[2]: rule for rule in TENSOR_RULES}


def written_settings(rule: str, parameters: Mapping[str, Value]) -> dict[str, str]:
    """Return a rule's parameters as settings; raises RuleConfigError for what is no value."""
    return {f"{rule}_{name}": written(rule, name, value) for name, value in parameters.items()}


def check_settings(rule: str, settings: Mapping[str, str]) -> None:
    """Raise RuleConfigError when a tensor rule does not take one of its settings, or lacks one."""
    found = _BY_NAME[rule]
    parameters_of(found.name, found.parameters_type, settings)


def _class_of(rule: str) -> type[TensorRuleConfig]:
    return type(rule, (TensorRuleConfig,), {"__doc__": _BY_NAME[rule].spec.looks_at, "__module__": __name__})


# The classes by their rules' names.
TENSOR_CONFIGS: Mapping[str, type[TensorRuleConfig]] = {name: _class_of(name) for name in _BY_NAME}


def _snake(name: str) -> str:
    """Return a rule's name as the SDK's functions have it: ``vanishing_gradient``, ``nlp_sequence_ratio``."""
    if name == "NLPSequenceRatio":
        return "nlp_sequence_ratio"
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in name).lstrip("_")


# The names of the SDK's functions, which take no arguments.
SDK_FUNCTIONS: Mapping[str, Callable[[], TensorRuleConfig]] = {
    _snake(name): kind for name, kind in TENSOR_CONFIGS.items()
}
