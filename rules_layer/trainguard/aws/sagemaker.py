"""SageMaker's descriptions of training jobs."""

import re
from datetime import datetime
from typing import TYPE_CHECKING

from trainguard.aws.aws_errors import translated, unless
from trainguard.aws.dynamodb.stored_form import frozen_mapping
from trainguard.core.ports import RuleConfiguration, TrainingJobDescription
from trainguard.core.records import JobStatus
from trainguard.engine.settings.job_settings import run_pages
from trainguard.engine.settings.tag_names import PROFILE_TAG
from trainguard.formats.runs.length import named_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sagemaker.type_defs import (
        DebugRuleConfigurationOutputTypeDef,
        DescribeTrainingJobResponseTypeDef,
        ProfilerConfigOutputTypeDef,
        ProfilerRuleConfigurationOutputTypeDef,
        ResourceConfigOutputTypeDef,
    )

    _AnyRuleConfiguration = DebugRuleConfigurationOutputTypeDef | ProfilerRuleConfigurationOutputTypeDef

_SERVICE = "SageMaker"
UNKNOWN_JOB = frozenset({"ValidationException", "ResourceNotFound"})
_JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")

# How trainers name the number of their steps.

# Keys of ProfilingParameters that ask for framework events; the other keys say how event files are written.
FRAMEWORK_PARAMETERS = frozenset(
    {
        "DetailedProfilingConfig",
        "DataloaderProfilingConfig",
        "PythonProfilingConfig",
        "HorovodProfilingConfig",
        "SMDataParallelProfilingConfig",
    }
)


class SageMakerTrainingJobs:
    """Describes training jobs; ``client`` is made at the first call: its service model takes a tenth of a second."""

    def __init__(self, *, client: "Callable[[], SageMakerClient]") -> None:
        self._client = client

    def describe(self, job: str) -> TrainingJobDescription | None:
        """Return the job with its tags, or None; a checked name makes ValidationException mean an unknown job."""
        if len(job) > 63 or not _JOB_NAME.fullmatch(job):
            return None
        with translated(_SERVICE, "DescribeTrainingJob"):
            described = unless(UNKNOWN_JOB, lambda: self._client().describe_training_job(TrainingJobName=job))
        return None if described is None else _description(described, self._tags(described["TrainingJobArn"]))

    def _tags(self, arn: str) -> dict[str, str]:
        with translated(_SERVICE, "ListTags"):
            pages = self._client().get_paginator("list_tags").paginate(ResourceArn=arn)
            return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}


def stop_training_job(client: "SageMakerClient", job: str) -> None:
    """Have SageMaker stop a job; raises PortUnavailableError, also for one that has ended."""
    with translated(_SERVICE, "StopTrainingJob"):
        client.stop_training_job(TrainingJobName=job)


def _description(described: "DescribeTrainingJobResponseTypeDef", tags: "Mapping[str, str]") -> TrainingJobDescription:
    instance_type, instance_count = _instances(described.get("ResourceConfig", {}))
    profiler = described.get("ProfilerConfig", {})
    return TrainingJobDescription(
        job=described["TrainingJobName"],
        arn=described["TrainingJobArn"],
        status=job_status(described["TrainingJobStatus"]),
        secondary_status=described.get("SecondaryStatus"),
        instance_type=instance_type,
        instance_count=instance_count,
        created_at=_epoch(described.get("CreationTime")),
        started_at=_epoch(described.get("TrainingStartTime")),
        ended_at=_epoch(described.get("TrainingEndTime")),
        profiling_interval_ms=profiler.get("ProfilingIntervalInMilliseconds"),
        framework_profiling=_profiles_framework(profiler),
        tags=frozen_mapping(tags),
        profile_uri=(
            profiler.get("S3OutputPath")
            or tags.get(PROFILE_TAG)
            or described.get("DebugHookConfig", {}).get("S3OutputPath")
        ),
        profiler_rules=_rules(described.get("ProfilerRuleConfigurations", [])),
        debugger_rules=_rules(described.get("DebugRuleConfigurations", [])),
        # The ARN ends in ``:hyper-parameter-tuning-job/<name>``.
        tuning_job=described.get("TuningJobArn", "").rpartition("/")[2] or None,
        run_links=run_pages(tags, described.get("Environment", {}), described.get("HyperParameters", {})),
        platform="sagemaker",
        metric_definitions=tuple(
            (each["Name"], each["Regex"])
            for each in described.get("AlgorithmSpecification", {}).get("MetricDefinitions", [])
        ),
        time_limit_s=_limit_s(described),
        total_steps=named_steps(described.get("HyperParameters", {})),
    )


def _limit_s(described: "DescribeTrainingJobResponseTypeDef") -> float | None:
    seconds = described.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    return None if seconds is None else float(seconds)


def _rules(described: "Sequence[_AnyRuleConfiguration]") -> tuple[RuleConfiguration, ...]:
    return tuple(
        RuleConfiguration(
            name=each["RuleConfigurationName"],
            image=each["RuleEvaluatorImage"],
            parameters=frozen_mapping(each.get("RuleParameters", {})),
            place=each.get("S3OutputPath") or each.get("LocalPath"),
        )
        for each in described
    )


def _instances(resources: "ResourceConfigOutputTypeDef") -> tuple[str | None, int | None]:
    """Return instance type and count; a heterogeneous cluster of several types has no one type."""
    groups = resources.get("InstanceGroups")
    if not groups:
        return resources.get("InstanceType"), resources.get("InstanceCount")
    kinds = {group["InstanceType"] for group in groups}
    return kinds.pop() if len(kinds) == 1 else None, sum(group["InstanceCount"] for group in groups)


def _profiles_framework(profiler: "ProfilerConfigOutputTypeDef") -> bool:
    parameters = profiler.get("ProfilingParameters", {})
    asked = any(parameters.get(name, "").strip() for name in FRAMEWORK_PARAMETERS)
    return asked and not profiler.get("DisableProfiler", False)


def job_status(described: str) -> JobStatus:
    """Read a status; an unknown one (Deleting) means nothing to the rules."""
    return JobStatus(described) if described in set(JobStatus) else JobStatus.UNKNOWN


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
