"""Rules of launch code: the classes of settings, and ProfilerRule."""

from typing import Any

import msgspec
import pytest

from trainguard.config import ProfilerRule, rule_configs
from trainguard.config.rule_configs import RuleConfig
from trainguard.core.errors import LaunchConfigError, RuleConfigError
from trainguard.rules.parameters import PARAMETERS_TYPES
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import SPECS

RULES = [name for name in PARAMETERS_TYPES if name != PROFILER_REPORT]


def config_class(rule: str) -> type[RuleConfig]:
    found: type[RuleConfig] = getattr(rule_configs, rule)
    return found


@pytest.mark.parametrize("rule", PARAMETERS_TYPES)
def test_twelve_rules_without_settings_need_no_tag(rule: str) -> None:
    config = config_class(rule)()
    assert config.rule_name == rule
    assert config.settings == {}
    assert config.rule_parameters["rule_to_invoke"] == rule


@pytest.mark.parametrize("rule", RULES)
def test_managed_parameters_have_the_documented_defaults(rule: str) -> None:
    kind = PARAMETERS_TYPES[rule]
    documented = {field.name: field.default for field in msgspec.structs.fields(kind)}
    shown = dict(config_class(rule)().rule_parameters)
    del shown["rule_to_invoke"]
    assert shown == {name: documented[name] for name in shown}
    managed = {name for name in SPECS[rule].managed_parameters if name in documented}
    in_seconds = {name for name in managed if f"{name}_s" in documented}
    assert shown.keys() == managed - in_seconds | {"scan_interval_us"}
    assert all(f"``{name}``" in str(config_class(rule).__doc__) for name in managed)


@pytest.mark.parametrize(
    ("rule", "parameters", "settings"),
    [
        ("LowGPUUtilization", {"threshold_p95": 60}, {"LowGPUUtilization_threshold_p95": "60"}),
        ("LowGPUUtilization", {"patience_s": 120.5}, {"LowGPUUtilization_patience_s": "120.5"}),
        ("StepOutlier", {"mode": None, "stddev": 4.5}, {"StepOutlier_mode": "None", "StepOutlier_stddev": "4.5"}),
        ("ProfilerReport", {"cpubottleneck_Threshold": 90}, {"CPUBottleneck_threshold": "90"}),
        ("ProfilerReport", {"opt_out_telemetry": True}, {"opt_out_telemetry": "true"}),
        ("ProfilerReport", {"rule_to_invoke": "Dataloader"}, {"rule_to_invoke": "Dataloader"}),
    ],
)
def test_only_parameters_that_were_set_are_settings(
    rule: str, parameters: dict[str, Any], settings: dict[str, str]
) -> None:
    config = config_class(rule)(**parameters)
    assert config.settings == settings
    assert set(map(str, parameters.values())) <= set(map(str, config.rule_parameters.values()))


@pytest.mark.parametrize(
    ("rule", "parameters", "said"),
    [
        ("LowGPUUtilization", {"threshold_p95": 101}, "a number from 0 to 100"),
        ("LowGPUUtilization", {"threshold_p59": 50}, "one of the parameters"),
        ("LowGPUUtilization", {"patience": 1, "patience_s": 1.0}, "not both"),
        ("GPUMemoryIncrease", {"patience": "many"}, "a whole number"),
        ("Dataloader", {"min_threshold": [70]}, "a number, a text, True, False or None"),
        ("LoadBalancing", {"threshold": float("nan")}, "a number"),
        ("ProfilerReport", {"NoSuchRule_patience": 1}, "NoSuchRule"),
        ("ProfilerReport", {"CPUBottleneck_threshold": 90, "cpubottleneck_threshold": 80}, "the same as before, 90"),
        ("ProfilerReport", {"opt_out_telemetry": "perhaps"}, "true or false"),
        ("ProfilerReport", {"rule_to_invoke": "Everything"}, "one of"),
    ],
)
def test_invalid_setting_is_refused_in_words(rule: str, parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(RuleConfigError, match=said):
        config_class(rule)(**parameters)


def test_profiler_rule_of_ours_has_the_managed_request() -> None:
    rule = ProfilerRule.sagemaker(rule_configs.LoadBalancing(threshold=0.3))
    assert rule.to_profiler_rule_config_dict() == {
        "RuleConfigurationName": "LoadBalancing",
        "RuleEvaluatorImage": "DEFAULT_RULE_EVALUATOR_IMAGE",
        "RuleParameters": {
            "threshold": "0.3",
            "scan_interval_us": "60000000",
            "rule_to_invoke": "LoadBalancing",
        },
    }


def test_profiler_rule_request_has_given_names_and_locations() -> None:
    rule = ProfilerRule.sagemaker(rule_configs.ProfilerReport(), "mine", "/opt/ml/x", "s3://b/x")
    request = rule.to_profiler_rule_config_dict()
    assert (request["RuleConfigurationName"], request["LocalPath"]) == ("mine", "/opt/ml/x")
    assert request["S3OutputPath"] == "s3://b/x"
    assert request["RuleParameters"] == {"opt_out_telemetry": "False", "rule_to_invoke": "ProfilerReport"}


def test_profiler_rule_request_names_a_custom_container() -> None:
    rule = ProfilerRule.custom(
        "mine", "1.dkr.ecr/x:1", "ml.t3.medium", 10, "s3://code/rule.py", "Mine", rule_parameters={"limit": 3}
    )
    assert rule.to_profiler_rule_config_dict() == {
        "RuleConfigurationName": "mine",
        "RuleEvaluatorImage": "1.dkr.ecr/x:1",
        "InstanceType": "ml.t3.medium",
        "VolumeSizeInGB": 10,
        "RuleParameters": {"source_s3_uri": "s3://code/rule.py", "rule_to_invoke": "Mine", "limit": "3"},
    }


def test_container_without_parameters_has_none_in_its_request() -> None:
    request = ProfilerRule.custom("mine", "image", "ml.t3.medium", 10).to_profiler_rule_config_dict()
    assert "RuleParameters" not in request


@pytest.mark.parametrize("half", [{"source": "s3://code/rule.py"}, {"rule_to_invoke": "Mine"}])
def test_half_of_a_container_source_is_refused(half: dict[str, str]) -> None:
    with pytest.raises(LaunchConfigError, match="both of them, or neither"):
        ProfilerRule.custom("mine", "image", "ml.t3.medium", 10, **half)  # type: ignore[arg-type]  # one of two texts


def test_settings_of_another_library_are_refused() -> None:
    with pytest.raises(LaunchConfigError, match="rule_configs"):
        ProfilerRule.sagemaker(object())  # type: ignore[arg-type]  # what launch code may pass by mistake
