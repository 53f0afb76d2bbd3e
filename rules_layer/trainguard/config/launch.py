"""Arguments with which a training job is started so that TrainGuard evaluates it.

TrainGuard reads rule settings from the job's tags: rules that are given become tags. All rules run, whatever rules are
given; a rule that is given says its settings.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainguard.config.profiler_config import ProfilerConfig
from trainguard.config.profiler_rule import ProfilerRule
from trainguard.config.rule_configs import CONFIGS, RuleConfig, Value
from trainguard.engine.jobs.job_description import FRAMEWORK_EXPECTED, FRAMEWORK_TAG, NAMESPACE, STOP_ALLOWED, STOP_TAG
from trainguard.errors import LaunchConfigError
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.settings.tag_names import PROFILE_TAG

AnyRule = ProfilerRule | RuleConfig
Tag = Mapping[str, str]

MOST_TAGS, LONGEST_KEY, LONGEST_VALUE = 50, 128, 256
"""What SageMaker allows a training job."""

ALLOWED = re.compile(r"(?!aws:)[\w .:/=+\-@]*")
"""Letters and digits of any script, spaces, and these signs; what begins with ``aws:`` is AWS's own."""


def tags(
    *rules: AnyRule,
    stop_on_fire: bool = False,
    framework_metrics: bool = False,
    profile_path: str | None = None,
    settings: Mapping[str, Value] | None = None,
    others: Sequence[Tag] = (),
) -> list[dict[str, str]]:
    """Return the tags by which TrainGuard knows what to do with a training job.

    Parameters
    ----------
    *rules
        Of `rule_configs`, bare or in `ProfilerRule.sagemaker`; what they were given becomes tags.
    stop_on_fire : bool
        Whether TrainGuard may stop the job when a rule fires.
    framework_metrics : bool
        Whether the job writes framework metrics in a way that its ProfilerConfig does not show.
    profile_path : str, optional
        Where the profile lies of a job that has no ProfilerConfig, ``s3://<bucket>/<prefix>``.
    settings : mapping, optional
        More settings, as ``<Rule>_<parameter>``.
    others : sequence of mapping
        Tags of one's own, ``{"Key": …, "Value": …}``; they come first.

    Returns
    -------
    list of dict
        ``Tags`` of CreateTrainingJob.

    Raises
    ------
    RuleConfigError
        When a setting is none.
    LaunchConfigError
        When a rule is a container of one's own, a setting is given twice, or SageMaker would not take the tags.
    """
    named = {each["Key"]: each["Value"] for each in others}
    configs = [_config_of(rule) for rule in rules] + ([CONFIGS[PROFILER_REPORT](**settings)] if settings else [])
    for key, value in ((key, value) for config in configs for key, value in config.settings.items()):
        if named.setdefault(f"{NAMESPACE}{key}", value) != value:
            raise LaunchConfigError("tags", key, value, f"the same as before, {named[f'{NAMESPACE}{key}']!r}")
    if stop_on_fire:
        named[STOP_TAG] = STOP_ALLOWED
    if framework_metrics:
        named[FRAMEWORK_TAG] = FRAMEWORK_EXPECTED
    if profile_path is not None:
        named[PROFILE_TAG] = profile_path
    _check_tags(named, len(others))
    return [{"Key": key, "Value": value} for key, value in named.items()]


def create_training_job_arguments(
    profiler_config: ProfilerConfig,
    rules: Iterable[AnyRule] = (),
    *,
    managed_rules: bool = False,
    **tagged: Any,
) -> dict[str, Any]:
    """Return arguments of boto3's ``create_training_job``: ProfilerConfig, Tags, and ProfilerRuleConfigurations.

    Parameters
    ----------
    profiler_config : ProfilerConfig
        With the ``s3_output_path`` of the stack's bucket.
    rules : iterable
        Of `rule_configs`, or ProfilerRule; those of one's own go into ProfilerRuleConfigurations.
    managed_rules : bool
        Have the rules evaluated by SageMaker's own containers too, in an account in which they are still to be had.
    **tagged
        ``stop_on_fire``, ``framework_metrics``, ``settings`` and ``others``, as in `tags`.

    Raises
    ------
    RuleConfigError, LaunchConfigError
        As `tags`; also when the profile has no place.
    """
    given = [rule if isinstance(rule, ProfilerRule) else ProfilerRule.sagemaker(rule) for rule in rules]
    arguments: dict[str, Any] = {
        "ProfilerConfig": _placed(profiler_config).to_request_dict(),
        "Tags": tags(*(rule for rule in given if rule.config is not None), **tagged),
    }
    by_sagemaker = [rule for rule in given if managed_rules or rule.config is None]
    if by_sagemaker:
        arguments["ProfilerRuleConfigurations"] = [rule.to_profiler_rule_config_dict() for rule in by_sagemaker]
    return arguments


def for_estimator(profiler_config: ProfilerConfig, rules: Iterable[AnyRule] = (), **tagged: Any) -> dict[str, Any]:
    """Return arguments of an estimator of the SageMaker Python SDK, version 2: ``profiler_config`` and ``tags``.

    ``rules`` are TrainGuard's own; rules for the estimator itself are those of its SDK. ``tagged`` and errors are as in
    `create_training_job_arguments`.
    """
    return {"profiler_config": _placed(profiler_config), "tags": tags(*rules, **tagged)}


def for_model_trainer(rules: Iterable[AnyRule] = (), **tagged: Any) -> dict[str, Any]:
    """Return arguments of a ModelTrainer of the SageMaker Python SDK, version 3: ``tags``, under its names.

    A ModelTrainer takes no profiler configuration: switch the profiler on with `update_training_job_arguments` when the
    job has been started, and say by ``profile_path`` where its profile will lie. ``tagged`` and errors are as in
    `tags`.
    """
    return {"tags": [{"key": each["Key"], "value": each["Value"]} for each in tags(*rules, **tagged)]}


def update_training_job_arguments(job: str, profiler_config: ProfilerConfig) -> dict[str, Any]:
    """Return arguments of boto3's ``update_training_job`` that set the profiler of a job which is in progress.

    Raises LaunchConfigError when the profile has no place.
    """
    return {"TrainingJobName": job, "ProfilerConfig": _placed(profiler_config).to_request_dict()}


def _config_of(rule: AnyRule) -> RuleConfig:
    config = rule.config if isinstance(rule, ProfilerRule) else rule
    if not isinstance(config, RuleConfig):
        expected = "one of TrainGuard's rules: SageMaker runs a custom container, which reads no tags"
        raise LaunchConfigError("tags", "rules", rule, expected)
    return config


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
                    f"at most {longest} letters, digits, spaces and . : / = + - _ @, and not aws: at the beginning"
                )
                raise LaunchConfigError("tags", f"{what} of {key!r}", text, allowed)
