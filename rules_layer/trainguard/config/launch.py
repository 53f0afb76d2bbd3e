"""Arguments with which a training job is started so that TrainGuard evaluates it.

Rule settings become the job's tags. All profiler rules run, whatever rules are given; of the rules over tensors those
that are given.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeGuard

from trainguard.config.debugger_hook import DebuggerHookConfig, TensorBoardOutputConfig
from trainguard.config.job_rules import ProfilerRule, Rule
from trainguard.config.profiler_config import ProfilerConfig
from trainguard.config.rule_configs import CONFIGS, RuleConfig
from trainguard.config.tensor_rules import TENSOR_CONFIGS, TensorRuleConfig, Value
from trainguard.core.errors import LaunchConfigError
from trainguard.core.job_policy import ALL
from trainguard.engine.settings.job_settings import STOP_RULES, TRAINING_RULES
from trainguard.engine.settings.tag_names import (
    FRAMEWORK_EXPECTED,
    FRAMEWORK_TAG,
    NAMESPACE,
    PROFILE_TAG,
    STOP_ALLOWED,
    STOP_TAG,
    to_tag,
)
from trainguard.rules.profiler_report import PROFILER_REPORT

AnyRule = ProfilerRule | RuleConfig | Rule | TensorRuleConfig
Tag = Mapping[str, str]

STALLED = "StalledTrainingRule"
# Launch code asks the managed rule for a stop by it.
STALL_STOPS = f"{STALLED}_stop_training_on_fire"

MOST_TAGS, LONGEST_KEY, LONGEST_VALUE = 50, 128, 256

# Letters and digits of any script, spaces, and these signs; ``aws:`` is AWS's own.
ALLOWED = re.compile(r"(?!aws:)[\w .:/=+\-@]*")


def tags(
    *rules: AnyRule,
    stop_on_fire: bool = False,
    framework_metrics: bool = False,
    profile_path: str | None = None,
    settings: Mapping[str, Value] | None = None,
    others: Sequence[Tag] = (),
) -> list[dict[str, str]]:
    """Return the tags by which TrainGuard knows what to do with a training job; ``others`` come first.

    ``rules`` are of `rule_configs`, bare or in `ProfilerRule.sagemaker` or `Rule.sagemaker`. With ``stop_on_fire`` any
    rule may stop the job; without it, a rule with the action StopTraining, and StalledTrainingRule with
    ``stop_training_on_fire``. ``framework_metrics`` says that the job writes them in a way that its ProfilerConfig does
    not show; ``profile_path``, ``s3://<bucket>/<prefix>``, is for a job that has none. ``settings`` are more settings,
    as ``<Rule>_<parameter>``.

    Raises RuleConfigError when a setting is none; LaunchConfigError when a rule is a custom container, a setting is
    given twice, or SageMaker would not take the tags.
    """
    named = {each["Key"]: each["Value"] for each in others}
    _check_once(rules)
    given = [_settings_of(rule) for rule in rules] + (
        [CONFIGS[PROFILER_REPORT](**settings).settings] if settings else []
    )
    for setting, text in ((setting, text) for each in given for setting, text in each.items()):
        key, value = f"{NAMESPACE}{setting}", to_tag(text)
        if named.setdefault(key, value) != value:
            raise LaunchConfigError("tags", setting, text, f"the same as before, {named[key]!r}")
    configs = [config for rule in rules if isinstance(config := _config_of(rule), TensorRuleConfig)]
    if chosen := list(dict.fromkeys(config.rule_name for config in configs)):
        named[f"{NAMESPACE}{TRAINING_RULES}"] = ALL if len(chosen) == len(TENSOR_CONFIGS) else " ".join(chosen)
    stopping = [rule.config.rule_name for rule in rules if isinstance(rule, Rule) and rule.config and rule.stops]
    if named.get(f"{NAMESPACE}{STALL_STOPS}", "").lower() == "true" and STALLED not in stopping:
        stopping.append(STALLED)
    if stop_on_fire or stopping:
        named[STOP_TAG] = STOP_ALLOWED
    if stopping and not stop_on_fire:
        named.setdefault(f"{NAMESPACE}{STOP_RULES}", " ".join(stopping))
    if framework_metrics:
        named[FRAMEWORK_TAG] = FRAMEWORK_EXPECTED
    if profile_path is not None:
        named[PROFILE_TAG] = profile_path
    _check_tags(named, len(others))
    return [{"Key": key, "Value": value} for key, value in named.items()]


def create_training_job_arguments(
    profiler_config: ProfilerConfig | None = None,
    rules: Iterable[AnyRule] = (),
    *,
    debugger_hook_config: DebuggerHookConfig | bool | None = None,
    tensorboard_output_config: TensorBoardOutputConfig | None = None,
    managed_rules: bool = False,
    **tagged: Any,
) -> dict[str, Any]:
    """Return arguments of boto3's ``create_training_job``: configurations, Tags, and rule configurations.

    ``profiler_config`` has the ``s3_output_path`` of the stack's bucket. ``rules`` are of `rule_configs`, ProfilerRule
    or Rule; the hook saves their collections, and False switches it off. ``managed_rules`` has the rules evaluated by
    SageMaker's own containers too, in an account that still has them. ``tagged`` and errors are as in `tags`;
    LaunchConfigError also when the profile or the tensors have no place.
    """
    given = [ProfilerRule.sagemaker(rule) if isinstance(rule, RuleConfig) else rule for rule in rules]
    given = [Rule.sagemaker(rule) if isinstance(rule, TensorRuleConfig) else rule for rule in given]
    ours = [rule for rule in given if _config_of(rule) is not None]
    hook = _hook(debugger_hook_config, given)
    boards = {} if tensorboard_output_config is None else tensorboard_output_config.to_request_dict()
    sent = [rule for rule in given if managed_rules or _config_of(rule) is None]
    arguments = {
        "ProfilerConfig": {} if profiler_config is None else _placed(profiler_config).to_request_dict(),
        "DebugHookConfig": hook.to_request_dict() if isinstance(hook, DebuggerHookConfig) else {},
        "TensorBoardOutputConfig": boards,
        "Tags": tags(*ours, **tagged),
        "ProfilerRuleConfigurations": [
            rule.to_profiler_rule_config_dict() for rule in sent if isinstance(rule, ProfilerRule)
        ],
        "DebugRuleConfigurations": [rule.to_debugger_rule_config_dict() for rule in sent if isinstance(rule, Rule)],
    }
    return {name: value for name, value in arguments.items() if value or name == "Tags"}


def for_estimator(
    profiler_config: ProfilerConfig | None = None,
    rules: Iterable[AnyRule] = (),
    *,
    debugger_hook_config: DebuggerHookConfig | bool | None = None,
    tensorboard_output_config: TensorBoardOutputConfig | None = None,
    **tagged: Any,
) -> dict[str, Any]:
    """Return configurations and ``tags`` of an estimator of the SageMaker Python SDK, version 2.

    ``rules`` are TrainGuard's own. The hook saves their collections; with False the estimator switches it off, which it
    has on by default. ``tagged`` and errors are as in `create_training_job_arguments`.
    """
    given = list(rules)
    arguments = {
        "profiler_config": None if profiler_config is None else _placed(profiler_config),
        "debugger_hook_config": _hook(debugger_hook_config, given),
        "tensorboard_output_config": tensorboard_output_config,
        "tags": tags(*given, **tagged),
    }
    return {name: value for name, value in arguments.items() if value is not None}


def for_model_trainer(rules: Iterable[AnyRule] = (), **tagged: Any) -> dict[str, Any]:
    """Return ``tags`` for a ModelTrainer of the SageMaker Python SDK, version 3.

    It takes no profiler configuration: use `update_training_job_arguments` when the job has been started, and give
    ``profile_path``. ``tagged`` and errors are as in `tags`.
    """
    return {"tags": [{"key": each["Key"], "value": each["Value"]} for each in tags(*rules, **tagged)]}


def update_training_job_arguments(job: str, profiler_config: ProfilerConfig) -> dict[str, Any]:
    """Return arguments of boto3's ``update_training_job`` that set the profiler of a job in progress.

    Raises LaunchConfigError when the profile has no place.
    """
    return {"TrainingJobName": job, "ProfilerConfig": _placed(profiler_config).to_request_dict()}


def _config_of(rule: AnyRule) -> RuleConfig | TensorRuleConfig | None:
    """Return None for a container."""
    return rule.config if isinstance(rule, ProfilerRule | Rule) else rule


def _settings_of(rule: AnyRule) -> Mapping[str, str]:
    config = _config_of(rule)
    if not isinstance(config, RuleConfig | TensorRuleConfig):
        expected = "one of TrainGuard's rules: SageMaker runs a custom container, which reads no tags"
        raise LaunchConfigError("tags", "rules", rule, expected)
    if isinstance(rule, TensorRuleConfig):
        return Rule.sagemaker(rule).settings
    return rule.settings if isinstance(rule, Rule) else config.settings


def _check_once(rules: Iterable[AnyRule]) -> None:
    """Raise LaunchConfigError when a rule over tensors is configured in two ways: its name is its identity."""
    first: dict[str, tuple[str, Mapping[str, str]]] = {}
    for rule in rules:
        config = _config_of(rule)
        if isinstance(config, TensorRuleConfig):
            called, settings = (rule.name if isinstance(rule, Rule) else config.rule_name), _settings_of(rule)
            earlier = first.setdefault(config.rule_name, (called, settings))
            if earlier[1] != settings:
                expected = (
                    "one configuration of a rule a job; evaluate a second one with trainguard replay, or by "
                    "trainguard analyze --params once the job has ended"
                )
                raise LaunchConfigError("tags", config.rule_name, f"{earlier[0]} and {called}", expected)


def _hook(hook: object, rules: Iterable[AnyRule]) -> DebuggerHookConfig | Literal[False] | None:
    """Return the configuration with the collections of the rules; False for a hook that is switched off."""
    if hook is None or hook is False:
        return hook
    if not isinstance(hook, DebuggerHookConfig):
        raise LaunchConfigError("debugger_hook_config", "hook", hook, "a DebuggerHookConfig, or False to switch it off")
    if hook.s3_output_path is None:
        expected = "a place below the bucket that the stack's output ProfilerOutputUri names"
        raise LaunchConfigError("DebuggerHookConfig", "s3_output_path", None, expected)
    asked = [rule.collection_configs if isinstance(rule, Rule) else rule.collections for rule in rules if _saves(rule)]
    return hook.with_collections([config for configs in asked for config in configs])


def _saves(rule: AnyRule) -> TypeGuard[Rule | TensorRuleConfig]:
    return isinstance(rule, Rule | TensorRuleConfig)


def _placed(profiler_config: ProfilerConfig) -> ProfilerConfig:
    if profiler_config.s3_output_path is None and not profiler_config.disable_profiler:
        expected = "a place below the bucket that the stack's output ProfilerOutputUri names"
        raise LaunchConfigError("ProfilerConfig", "s3_output_path", None, expected)
    return profiler_config


def _check_tags(named: Mapping[str, str], others: int) -> None:
    if len(named) > MOST_TAGS:
        most = f"at most {MOST_TAGS}; {others} of them are one's own"
        raise LaunchConfigError("tags", "number of tags", len(named), most)
    for key, value in named.items():
        for what, text, longest in (("key", key, LONGEST_KEY), ("value", value, LONGEST_VALUE)):
            if len(text) > longest or not ALLOWED.fullmatch(text):
                allowed = (
                    f"at most {longest} letters, digits, spaces and . : / = + - _ @, and not aws: at the beginning; "
                    "a longer value goes into the SSM parameter that the tag trainguard:settings names"
                )
                raise LaunchConfigError("tags", f"{what} of {key!r}", text, allowed)
