"""Rules over tensors of launch code: what the hook saves, which rules run, what may stop the job."""

from typing import Any

import pytest

from tests.unit.config.test_launch import accept, registered
from trainguard.config import (
    CollectionConfig,
    DebuggerHookConfig,
    Rule,
    TensorBoardOutputConfig,
    create_training_job_arguments,
    for_estimator,
    rule_configs,
    tags,
)
from trainguard.config.tensor_rules import SDK_FUNCTIONS, TENSOR_CONFIGS
from trainguard.core.errors import LaunchConfigError, RuleConfigError
from trainguard.engine.installed import FAMILIES
from trainguard.rules.training.registry import TENSOR_RULES

ANY = {"collection_names": "all"}
HOOK = DebuggerHookConfig("s3://my-profiles/jobs", hook_parameters={"save_interval": 100})
SDK_NAMES = {
    "vanishing_gradient",
    "similar_across_runs",
    "weight_update_ratio",
    "all_zero",
    "exploding_tensor",
    "unchanged_tensor",
    "loss_not_decreasing",
    "check_input_images",
    "dead_relu",
    "confusion",
    "overfit",
    "overtraining",
    "class_imbalance",
    "poor_weight_initialization",
    "saturated_activation",
    "stalled_training_rule",
    "tensor_variance",
    "feature_importance_overweight",
    "tree_depth",
    "nlp_sequence_ratio",
    "create_xgboost_report",
}


def named(given: list[dict[str, str]]) -> dict[str, str]:
    return {each["Key"].removeprefix("trainguard:"): each["Value"] for each in given}


def test_both_spellings_of_the_21_tensor_rules_exist() -> None:
    assert {f"training/{name}" for name in TENSOR_CONFIGS} == {rule.name for rule in TENSOR_RULES}
    assert SDK_FUNCTIONS.keys() == SDK_NAMES
    for name in (*TENSOR_CONFIGS, *SDK_FUNCTIONS):
        assert getattr(rule_configs, name)().rule_name in TENSOR_CONFIGS


def test_only_tagged_tensor_rules_run_with_their_parameters() -> None:
    rules = [
        Rule.sagemaker(rule_configs.vanishing_gradient(), rule_parameters={"threshold": "1e-6"}),
        rule_configs.LossNotDecreasing(tensor_regex=".*loss"),
    ]
    assert named(tags(*rules)) == {
        "VanishingGradient_threshold": "1e-6",
        "LossNotDecreasing_tensor_regex": ".=2Aloss",
        "training-rules": "VanishingGradient LossNotDecreasing",
    }


def test_registered_job_runs_its_tagged_tensor_rules() -> None:
    rules = [rule_configs.VanishingGradient(threshold=1e-6), rule_configs.LossNotDecreasing(tensor_regex=".*loss")]
    job = registered(tags(*rules, rule_configs.LowGPUUtilization()))
    plan = FAMILIES.plan(job)
    assert {rule.name for rule in plan.rules_of("training")} == {
        "training/VanishingGradient",
        "training/LossNotDecreasing",
    }
    assert plan.parameters_of("training/LossNotDecreasing").in_force()["tensor_regex"] == (".*loss",)
    assert plan.parameters_of("training/VanishingGradient").in_force()["threshold"] == 1e-6


def test_all_tensor_rules_are_tagged_as_all() -> None:
    required = {
        "AllZero": ANY,
        "TensorVariance": ANY,
        "UnchangedTensor": ANY,
        "SimilarAcrossRuns": {"other_trials": "old"},
    }
    given = named(tags(*(kind(**required.get(name, {})) for name, kind in TENSOR_CONFIGS.items())))
    assert given["training-rules"] == "all"
    assert sorted(given) == [
        "AllZero_collection_names",
        "SimilarAcrossRuns_other_trials",
        "TensorVariance_collection_names",
        "UnchangedTensor_collection_names",
        "training-rules",
    ]


def test_stop_action_lets_only_its_rule_stop_the_job() -> None:
    stopping = Rule.sagemaker(rule_configs.ExplodingTensor(), actions=rule_configs.StopTraining())
    alerting = Rule.sagemaker(rule_configs.Overfit(), actions=rule_configs.Email("me@my.example.org"))
    given = named(tags(stopping, alerting))
    assert (given["stop-on-fire"], given["stop-rules"]) == ("allowed", "ExplodingTensor")
    assert "stop-on-fire" not in named(tags(alerting))
    assert "stop-rules" not in named(tags(stopping, stop_on_fire=True))


@pytest.mark.parametrize(
    "rule",
    [
        rule_configs.StalledTrainingRule(stop_training_on_fire=True),
        Rule.sagemaker(rule_configs.StalledTrainingRule(), rule_parameters={"stop_training_on_fire": "True"}),
    ],
    ids=["config", "rule_parameters"],
)
def test_stalled_rule_with_stop_alone_may_stop_the_job(rule: Any) -> None:
    given = named(tags(rule, rule_configs.Overfit()))
    assert (given["stop-on-fire"], given["stop-rules"]) == ("allowed", "StalledTrainingRule")
    exploding = Rule.sagemaker(rule_configs.ExplodingTensor(), actions=rule_configs.StopTraining())
    assert named(tags(rule, exploding))["stop-rules"] == "ExplodingTensor StalledTrainingRule"
    assert "stop-rules" not in named(tags(rule, stop_on_fire=True))


@pytest.mark.parametrize("given", [{}, {"stop_training_on_fire": False}])
def test_stalled_rule_without_stop_lets_nothing_stop_the_job(given: dict[str, bool]) -> None:
    assert "stop-on-fire" not in named(tags(rule_configs.StalledTrainingRule(**given)))


def test_hook_saves_collections_of_rules_beside_those_of_users() -> None:
    mine = HOOK.with_collections([CollectionConfig("gradients", {"train.save_interval": 7})])
    rules = [Rule.sagemaker(rule_configs.VanishingGradient()), rule_configs.LossNotDecreasing()]
    board = TensorBoardOutputConfig("s3://my-profiles/jobs")
    arguments = create_training_job_arguments(rules=rules, debugger_hook_config=mine, tensorboard_output_config=board)
    assert arguments == {
        "DebugHookConfig": {
            "S3OutputPath": "s3://my-profiles/jobs",
            "HookParameters": {"save_interval": "100"},
            "CollectionConfigurations": [
                {"CollectionName": "gradients", "CollectionParameters": {"train.save_interval": "7"}},
                {"CollectionName": "losses", "CollectionParameters": {"save_interval": "500"}},
            ],
        },
        "TensorBoardOutputConfig": {"S3OutputPath": "s3://my-profiles/jobs"},
        "Tags": tags(*rules),
    }
    accept("CreateTrainingJob", arguments)


def test_managed_rules_beside_ours_have_the_managed_request() -> None:
    rule = Rule.sagemaker(
        rule_configs.SimilarAcrossRuns(),
        name="same",
        s3_output_path="s3://b/rules",
        other_trials_s3_input_paths=["s3://b/other/debug-output"],
        actions=rule_configs.ActionList(rule_configs.StopTraining("my-job"), rule_configs.SMS("+491234")),
    )
    arguments = create_training_job_arguments(rules=[rule], managed_rules=True)
    assert arguments["DebugRuleConfigurations"] == [
        {
            "RuleConfigurationName": "same",
            "RuleEvaluatorImage": "DEFAULT_RULE_EVALUATOR_IMAGE",
            "S3OutputPath": "s3://b/rules",
            "RuleParameters": {
                "rule_to_invoke": "SimilarAcrossRuns",
                "other_trial_0": "s3://b/other/debug-output",
                "action_json": '[{"name": "stoptraining", "parameters": {"training_job_prefix": "my-job"}}, '
                '{"name": "sms", "parameters": {"endpoint": "+491234"}}]',
            },
        }
    ]
    accept("CreateTrainingJob", arguments)


def test_rule_container_is_run_by_sagemaker_without_a_tag() -> None:
    rule = Rule.custom("mine", "1.dkr.ecr/x:1", "ml.t3.medium", 10, "s3://code/rule.py", "Mine")
    arguments = create_training_job_arguments(rules=[rule])
    assert arguments["Tags"] == []
    assert arguments["DebugRuleConfigurations"][0]["RuleParameters"] == {
        "source_s3_uri": "s3://code/rule.py",
        "rule_to_invoke": "Mine",
    }


def test_estimator_gets_the_hook_with_collections_of_the_rules() -> None:
    arguments = for_estimator(rules=[rule_configs.WeightUpdateRatio()], debugger_hook_config=HOOK)
    assert [config.name for config in arguments["debugger_hook_config"].collection_configs] == ["weights"]
    assert arguments.keys() == {"debugger_hook_config", "tags"}


def test_disabled_hook_saves_nothing() -> None:
    rules = [rule_configs.WeightUpdateRatio()]
    arguments = create_training_job_arguments(rules=rules, debugger_hook_config=False)
    assert arguments == {"Tags": tags(*rules)}
    # An estimator that is given no hook has one: only False switches it off.
    assert for_estimator(rules=rules, debugger_hook_config=False) == {
        "debugger_hook_config": False,
        "tags": tags(*rules),
    }


def test_rule_configured_twice_is_accepted_if_equal() -> None:
    gradient = rule_configs.VanishingGradient
    first, same, other = (Rule.sagemaker(gradient(threshold=at), name=f"at {at}") for at in ("1e-6", "1e-6", "1e-8"))
    assert tags(first, same) == tags(first)
    for second in (other, Rule.sagemaker(gradient()), gradient()):
        with pytest.raises(LaunchConfigError, match=r"VanishingGradient is 'at 1e-6 and .*one configuration of a rule"):
            tags(first, second)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CollectionConfig(""), "1 to 256 characters"),
        (lambda: CollectionConfig("losses", {"save_intervall": 5}), "one of the parameters"),
        (lambda: CollectionConfig("losses", {"save_interval": "often"}), "a whole number"),
        (lambda: CollectionConfig("losses", {"train.save_steps": "1,b"}), "parted by commas"),
        (lambda: CollectionConfig("losses", {"include_regex": "("}), "a regular expression"),
        (lambda: CollectionConfig("losses", {"reductions": ["mean"]}), "a text, a number, True or False"),
        (lambda: DebuggerHookConfig("my-profiles/jobs"), "s3://bucket/prefix"),
        (
            lambda: DebuggerHookConfig(collection_configs=[CollectionConfig("a"), CollectionConfig("a")]),
            "each collection once",
        ),
        (lambda: DebuggerHookConfig(collection_configs=[CollectionConfig(str(n)) for n in range(21)]), "at most 20"),
        (lambda: TensorBoardOutputConfig("x"), "s3://bucket/prefix"),
        (lambda: rule_configs.StopTraining("my_job"), "letters, digits and -"),
        (lambda: rule_configs.Email("me"), "an e-mail address"),
        (lambda: rule_configs.SMS("0049"), "1 to 15 digits"),
        (lambda: Rule.sagemaker(rule_configs.Overfit(), rule_parameters={"action_json": "{}"}), "actions="),
        (lambda: Rule.sagemaker(rule_configs.Overfit(), name="a" * 257), "1 to 256 characters"),
        (lambda: Rule.sagemaker(rule_configs.AllZero(tensor_regex="a" * 257)), "at most 256 characters"),
        (lambda: Rule.sagemaker(rule_configs.LowGPUUtilization()), "rule_configs"),
        (lambda: create_training_job_arguments(debugger_hook_config=DebuggerHookConfig()), "ProfilerOutputUri"),
        (lambda: for_estimator(debugger_hook_config=True), "or False to switch it off"),
    ],
)
def test_configuration_that_could_start_no_job_is_refused(make: Any, said: str) -> None:
    with pytest.raises(LaunchConfigError, match=said):
        make()


def test_parameter_a_rule_cannot_use_is_refused() -> None:
    with pytest.raises(RuleConfigError, match="VanishingGradient"):
        rule_configs.VanishingGradient(threshold="small")


def test_rule_without_its_required_parameter_is_refused() -> None:
    with pytest.raises(RuleConfigError, match="AllZero_collection_names"):
        tags(rule_configs.AllZero())
    assert named(tags(Rule.sagemaker(rule_configs.AllZero(), rule_parameters=ANY)))["training-rules"] == "AllZero"


@pytest.mark.parametrize("half", [{"source": "s3://code/rule.py"}, {"rule_to_invoke": "Mine"}])
def test_half_of_a_container_source_is_refused_for_a_rule(half: dict[str, Any]) -> None:
    with pytest.raises(LaunchConfigError, match=r"Rule\.custom: source .*both of them, or neither"):
        Rule.custom("mine", "image", "ml.t3.medium", 10, **half)
