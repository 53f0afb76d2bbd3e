"""The rules of a training job as the SageMaker Python SDK has them: profiler rules, rules over tensors, containers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainguard.config.actions import Actions, action_json, stops
from trainguard.config.debugger_hook import CollectionConfig
from trainguard.config.rule_configs import RuleConfig
from trainguard.config.tensor_rules import TensorRuleConfig, Value, check_settings, written, written_settings
from trainguard.core.errors import LaunchConfigError
from trainguard.rules.profiler_report import PROFILER_REPORT

DEFAULT_IMAGE = "DEFAULT_RULE_EVALUATOR_IMAGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredRule:
    """A rule as CreateTrainingJob has it."""

    name: str
    image_uri: str
    instance_type: str | None = None
    container_local_output_path: str | None = None
    s3_output_path: str | None = None
    volume_size_in_gb: int | None = None
    rule_parameters: Mapping[str, Value] = field(default_factory=dict)

    def request(self, texts: Mapping[str, str]) -> dict[str, Any]:
        optional = {
            "InstanceType": self.instance_type,
            "VolumeSizeInGB": self.volume_size_in_gb,
            "LocalPath": self.container_local_output_path,
            "S3OutputPath": self.s3_output_path,
            "RuleParameters": texts,
        }
        named = {"RuleConfigurationName": self.name, "RuleEvaluatorImage": self.image_uri}
        return named | {name: value for name, value in optional.items() if value}


def container_code(where: str, source: str | None, rule_to_invoke: str | None) -> dict[str, Value]:
    """Return the parameters of a container's code; raises LaunchConfigError for one of the two alone."""
    if bool(source) != bool(rule_to_invoke):
        pair = f"source={source!r}, rule_to_invoke={rule_to_invoke!r}"
        raise LaunchConfigError(where, "source", pair, "both of them, or neither")
    return {"source_s3_uri": source, "rule_to_invoke": rule_to_invoke} if source else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerRule(ConfiguredRule):
    """A rule: one of TrainGuard's by `sagemaker`, or a container by `custom`, whose ``config`` is None."""

    config: RuleConfig | None = None

    @classmethod
    def sagemaker(
        cls,
        base_config: RuleConfig,
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
    ) -> "ProfilerRule":
        """Return one of the twelve rules; raises LaunchConfigError when ``base_config`` is none of `rule_configs`."""
        if not isinstance(base_config, RuleConfig):
            expected = f"an object of trainguard.config.rule_configs, such as {PROFILER_REPORT}()"
            raise LaunchConfigError("ProfilerRule.sagemaker", "base_config", base_config, expected)
        return cls(
            name=name or base_config.rule_name,
            image_uri=DEFAULT_IMAGE,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            rule_parameters=base_config.rule_parameters,
            config=base_config,
        )

    @classmethod
    def custom(  # noqa: PLR0913, PLR0917 -- the parameters that launch code passes
        cls,
        name: str,
        image_uri: str,
        instance_type: str,
        volume_size_in_gb: int,
        source: str | None = None,
        rule_to_invoke: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        rule_parameters: Mapping[str, Value] | None = None,
    ) -> "ProfilerRule":
        """Return a rule in a container; raises LaunchConfigError for one of ``source`` and ``rule_to_invoke`` alone."""
        code = container_code("ProfilerRule.custom", source, rule_to_invoke)
        return cls(
            name=name,
            image_uri=image_uri,
            instance_type=instance_type,
            volume_size_in_gb=volume_size_in_gb,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            rule_parameters=code | dict(rule_parameters or {}),
        )

    def to_profiler_rule_config_dict(self) -> dict[str, Any]:
        """Return an entry of ``ProfilerRuleConfigurations`` of CreateTrainingJob."""
        return self.request({name: str(value) for name, value in self.rule_parameters.items()})


_LONGEST_NAME, _LONGEST_VALUE, _MOST_PARAMETERS = 256, 256, 100

_ACTIONS = "action_json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(ConfiguredRule):
    """A rule over tensors: a managed one by `sagemaker`, which TrainGuard evaluates, or a container by `custom`.

    ``config`` is None for a container, which SageMaker runs. ``settings`` are all parameters as ``<Rule>_<parameter>``.
    """

    collection_configs: tuple[CollectionConfig, ...] = ()
    actions: Actions | None = None
    config: TensorRuleConfig | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def stops(self) -> bool:
        """Whether the rule has the action StopTraining."""
        return stops(self.actions)

    @classmethod
    def sagemaker(  # noqa: PLR0913, PLR0917 -- the parameters that launch code passes
        cls,
        base_config: TensorRuleConfig,
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        other_trials_s3_input_paths: Sequence[str] | None = None,
        rule_parameters: Mapping[str, Value] | None = None,
        collections_to_save: Sequence[CollectionConfig] | None = None,
        actions: Actions | None = None,
    ) -> "Rule":
        """Return one of the managed rules; ``collections_to_save`` takes the place of its collections of the same name.

        Raises LaunchConfigError when ``base_config`` is none of `rule_configs`, or a value is more than SageMaker
        takes; RuleConfigError when the rule does not take a parameter, or lacks one.
        """
        if not isinstance(base_config, TensorRuleConfig):
            expected = "an object of trainguard.config.rule_configs, such as VanishingGradient()"
            raise LaunchConfigError("Rule.sagemaker", "base_config", base_config, expected)
        given = _given("Rule.sagemaker", rule_parameters, other_trials_s3_input_paths)
        asked = {config.name: config for config in (*base_config.collections, *(collections_to_save or ()))}
        rule = base_config.rule_name
        settings = {**base_config.settings, **written_settings(rule, given)}
        check_settings(rule, settings)
        return cls(
            name=_named(name or rule),
            image_uri=DEFAULT_IMAGE,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            rule_parameters=_checked(base_config.rule_parameters | given, actions),
            collection_configs=tuple(asked.values()),
            actions=actions,
            config=base_config,
            settings=settings,
        )

    @classmethod
    def custom(  # noqa: PLR0913, PLR0917 -- the parameters that launch code passes
        cls,
        name: str,
        image_uri: str,
        instance_type: str,
        volume_size_in_gb: int,
        source: str | None = None,
        rule_to_invoke: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        other_trials_s3_input_paths: Sequence[str] | None = None,
        rule_parameters: Mapping[str, Value] | None = None,
        collections_to_save: Sequence[CollectionConfig] | None = None,
        actions: Actions | None = None,
    ) -> "Rule":
        """Return a rule in a container; raises LaunchConfigError for one of ``source`` and ``rule_to_invoke`` alone."""
        code = container_code("Rule.custom", source, rule_to_invoke)
        given = _given("Rule.custom", rule_parameters, other_trials_s3_input_paths)
        return cls(
            name=_named(name),
            image_uri=image_uri,
            instance_type=instance_type,
            volume_size_in_gb=volume_size_in_gb,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            rule_parameters=_checked(code | given, actions),
            collection_configs=tuple(collections_to_save or ()),
            actions=actions,
        )

    def to_debugger_rule_config_dict(self) -> dict[str, Any]:
        """Return an entry of ``DebugRuleConfigurations`` of CreateTrainingJob."""
        return self.request({name: written(self.name, name, value) for name, value in self.rule_parameters.items()})


def _given(where: str, parameters: Mapping[str, Value] | None, others: Sequence[str] | None) -> dict[str, Value]:
    """Raise LaunchConfigError where actions are passed by hand."""
    given = dict(parameters or {})
    if _ACTIONS in given:
        raise LaunchConfigError(where, _ACTIONS, given[_ACTIONS], "actions=StopTraining(), Email(…) or SMS(…)")
    return given | {f"other_trial_{place}": uri for place, uri in enumerate(others or ())}


def _named(name: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise LaunchConfigError("Rule", "name", name, f"a text of 1 to {_LONGEST_NAME} characters")
    return name


def _checked(parameters: Mapping[str, Value], actions: Actions | None) -> dict[str, Value]:
    named = dict(parameters) if actions is None else {**parameters, _ACTIONS: action_json(actions)}
    if len(named) > _MOST_PARAMETERS:
        raise LaunchConfigError("Rule", "rule_parameters", len(named), f"at most {_MOST_PARAMETERS} parameters")
    for name, value in named.items():
        if isinstance(value, str) and len(value) > _LONGEST_VALUE:
            raise LaunchConfigError("Rule", name, value, f"at most {_LONGEST_VALUE} characters")
    return named
