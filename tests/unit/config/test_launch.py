"""Arguments of training jobs: tags that the engine reads back, and requests that SageMaker's model accepts."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from botocore.model import ServiceModel
from botocore.session import get_session
from botocore.validate import validate_parameters
from hypothesis import given
from hypothesis import strategies as st

from tests.support.memory import MemoryWorld
from trainguard.config import (
    FrameworkProfile,
    ProfilerConfig,
    ProfilerRule,
    create_training_job_arguments,
    for_estimator,
    for_model_trainer,
    rule_configs,
    tags,
    update_training_job_arguments,
)
from trainguard.core.errors import LaunchConfigError, RuleConfigError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import describe_record
from trainguard.engine.settings.sources import tag_source

PAGE = (Path(__file__).parents[3] / "docs" / "launching.md").read_text("utf-8")
HERE = ProfilerConfig(s3_output_path="s3://profiles/jobs", system_monitor_interval_millis=500)
LOW = rule_configs.LowGPUUtilization(threshold_p95=60, patience=100)
OWN = ProfilerRule.custom("mine", "image", "ml.t3.medium", 10)


def registered(given_tags: list[dict[str, str]]) -> JobRecord:
    """Return the job's item as the engine makes it of the tags."""
    description = TrainingJobDescription(
        job="job",
        arn="arn",
        status=JobStatus.IN_PROGRESS,
        secondary_status=None,
        instance_type=None,
        instance_count=1,
        created_at=None,
        started_at=None,
        ended_at=None,
        profiling_interval_ms=500,
        framework_profiling=False,
        tags={each["Key"]: each["Value"] for each in given_tags},
    )
    return describe_record(description, MemoryWorld().settings, bucket="profiles", root=ProfileRoot("", "job"))


@cache
def sagemaker() -> ServiceModel:
    return get_session().get_service_model("sagemaker")


def accept(operation: str, arguments: dict[str, Any]) -> None:
    """Hold arguments against the model of SageMaker; raises for those of another shape."""
    members = {
        "CreateTrainingJob": {
            "TrainingJobName": "job",
            "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": "image"},
            "RoleArn": "arn:aws:iam::111122223333:role/train",
            "OutputDataConfig": {"S3OutputPath": "s3://output"},
            "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 50},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        }
    }.get(operation, {})
    shape = sagemaker().operation_model(operation).input_shape
    assert shape is not None
    validate_parameters(members | arguments, shape)


def test_engine_reads_the_settings_of_tagged_rules_back() -> None:
    made = tags(LOW, ProfilerRule.sagemaker(rule_configs.StepOutlier(mode="TRAIN")), settings={"BatchSize_window": 50})
    assert made == [
        {"Key": "trainguard:LowGPUUtilization_threshold_p95", "Value": "60"},
        {"Key": "trainguard:LowGPUUtilization_patience", "Value": "100"},
        {"Key": "trainguard:StepOutlier_mode", "Value": "TRAIN"},
        {"Key": "trainguard:BatchSize_window", "Value": "50"},
    ]
    record = registered(made)
    plan = FAMILIES.plan(record)
    assert plan.faults == {}
    assert (plan.parameters_of("LowGPUUtilization").threshold_p95, plan.parameters_of("BatchSize").window) == (60, 50)
    assert plan.parameters_of("StepOutlier").mode == "TRAIN"
    assert (record.stop_allowed, record.framework_expected) == (False, False)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "threshold_p95": st.floats(0, 100),
            "threshold_p5": st.integers(0, 100),
            "window": st.integers(20, 2_000),
            "patience_s": st.floats(0.1, 1e6),
        },
    )
)
def test_any_tagged_settings_have_the_same_values_in_the_engine(parameters: dict[str, Any]) -> None:
    plan = FAMILIES.plan(registered(tags(rule_configs.LowGPUUtilization(**parameters))))
    read = msgspec.structs.asdict(plan.parameters_of("LowGPUUtilization"))
    assert {name: read[name] for name in parameters} == parameters


def test_engine_uses_a_tagged_profile_location() -> None:
    assert tags(profile_path="s3://profiles/runs") == [
        {"Key": "trainguard:profile-path", "Value": "s3://profiles/runs"}
    ]


def test_tagged_stop_permission_lets_the_engine_stop() -> None:
    record = registered(tags(stop_on_fire=True, framework_metrics=True))
    assert (record.stop_allowed, record.framework_expected, record.rule_settings) == (True, True, {})


def test_own_tags_stay_in_front() -> None:
    own = {"Key": "team", "Value": "Vision & co".replace("&", "+")}
    assert tags(others=[own]) == [own]
    assert tags(LOW, others=[own])[0] == own


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"others": [{"Key": f"own{number}", "Value": ""} for number in range(49)]}, "number of tags is 51"),
        ({"others": [{"Key": 129 * "k", "Value": ""}]}, "at most 128"),
        ({"others": [{"Key": "k", "Value": 257 * "v"}]}, "at most 256"),
        ({"others": [{"Key": "k", "Value": "a,b"}]}, "letters, digits"),
        ({"others": [{"Key": "a\nb", "Value": ""}]}, "letters, digits"),
        ({"others": [{"Key": "aws:own", "Value": ""}]}, "not aws:"),
        ({"settings": {"LowGPUUtilization_patience": 99}}, "the same as before, '100'"),
        ({"others": [{"Key": "trainguard:LowGPUUtilization_patience", "Value": "1"}]}, "the same as before, '1'"),
    ],
)
def test_tags_that_sagemaker_refuses_are_refused_beforehand(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchConfigError, match=said):
        tags(LOW, **arguments)


def test_maximum_number_of_tags_is_accepted() -> None:
    others = [{"Key": f"own{number}", "Value": 256 * "é"} for number in range(48)]
    accept("CreateTrainingJob", {"Tags": tags(LOW, others=others)})


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(RuleConfigError, match="a number from 0 to 100"):
        tags(settings={"LowGPUUtilization_threshold_p95": 200})


def test_value_with_forbidden_characters_is_encoded_in_its_tag() -> None:
    given = tags(rule_configs.StepOutlier(mode="TRAIN,EVAL"))
    assert given == [{"Key": "trainguard:StepOutlier_mode", "Value": "TRAIN=2CEVAL"}]
    accept("CreateTrainingJob", {"Tags": given})
    read = tag_source({each["Key"]: each["Value"] for each in given})
    assert read.parameters == {"StepOutlier_mode": "TRAIN,EVAL"}


def test_tags_of_a_custom_container_are_refused() -> None:
    with pytest.raises(LaunchConfigError, match="SageMaker runs a custom container"):
        tags(OWN)


def test_job_with_our_rules_requests_no_sagemaker_container() -> None:
    arguments = create_training_job_arguments(HERE, [LOW], stop_on_fire=True)
    assert arguments == {"ProfilerConfig": HERE.to_request_dict(), "Tags": tags(LOW, stop_on_fire=True)}
    accept("CreateTrainingJob", arguments)


def test_job_with_a_custom_container_requests_that_one() -> None:
    arguments = create_training_job_arguments(HERE, [LOW, OWN])
    assert arguments["ProfilerRuleConfigurations"] == [OWN.to_profiler_rule_config_dict()]
    assert arguments["Tags"] == tags(LOW)
    accept("CreateTrainingJob", arguments)


def test_job_with_managed_rules_too_is_judged_by_both() -> None:
    arguments = create_training_job_arguments(HERE, [LOW, OWN], managed_rules=True)
    names = [each["RuleConfigurationName"] for each in arguments["ProfilerRuleConfigurations"]]
    assert names == ["LowGPUUtilization", "mine"]
    assert arguments["Tags"] == tags(LOW)
    accept("CreateTrainingJob", arguments)


def test_job_with_framework_metrics_is_accepted_by_sagemaker() -> None:
    config = ProfilerConfig("s3://profiles", framework_profile_params=FrameworkProfile())
    accept("CreateTrainingJob", create_training_job_arguments(config))


@pytest.mark.parametrize("make", [create_training_job_arguments, for_estimator])
def test_job_with_a_profile_without_location_is_refused(make: Any) -> None:
    with pytest.raises(LaunchConfigError, match="ProfilerOutputUri"):
        make(ProfilerConfig())
    assert make(ProfilerConfig(disable_profiler=True))


@dataclass
class Estimator:
    """As the SDK's estimator: it takes these, asks the configuration, and sets its place where it has none."""

    profiler_config: Any
    tags: Any

    def request(self) -> dict[str, Any]:
        if not self.profiler_config.s3_output_path:
            self.profiler_config.s3_output_path = "s3://its-own-output"
        return {"ProfilerConfig": self.profiler_config._to_request_dict(), "Tags": self.tags}


def test_estimator_requests_the_same_as_boto3() -> None:
    made = Estimator(**for_estimator(HERE, [LOW], stop_on_fire=True))
    assert made.request() == create_training_job_arguments(HERE, [LOW], stop_on_fire=True)


def test_model_trainer_has_its_tag_names_and_the_profiler() -> None:
    assert for_model_trainer([LOW], stop_on_fire=True) == {
        "tags": [{"key": each["Key"], "value": each["Value"]} for each in tags(LOW, stop_on_fire=True)]
    }
    update = update_training_job_arguments("job", HERE)
    assert update["ProfilerConfig"]["S3OutputPath"] == "s3://profiles/jobs"
    accept("UpdateTrainingJob", update)


def test_given_the_page_when_its_code_is_run_then_it_works() -> None:
    blocks = [block.partition("```")[0] for block in PAGE.split("```python\n")[1:]]
    assert blocks
    calls: dict[str, Any] = {}

    def called(name: str) -> Any:
        def call(**arguments: Any) -> Any:
            calls[name] = arguments
            return called_object

        return call

    called_object = type("Any", (), {"__getattr__": lambda _, name: called(name)})()
    names = {"client": called_object, "job": "my-job", "more": {}}
    names |= {name: called(name) for name in ("PyTorch", "ModelTrainer")}
    for block in blocks:
        exec(block, names)  # noqa: S102 -- the page's own examples
    accept("CreateTrainingJob", calls["create_training_job"])
    accept("UpdateTrainingJob", calls["update_training_job"])
    assert calls["PyTorch"].keys() == {"profiler_config", "tags"}
    assert calls["ModelTrainer"].keys() == {"tags"}
