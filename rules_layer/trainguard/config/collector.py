"""Arguments with which a training job is started so that the collector writes its profile."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trainguard.config.launch import AnyRule, tags
from trainguard.config.profiler_config import ProfilerConfig
from trainguard.core.errors import LaunchConfigError

REQUIREMENT = "trainguard-collector[s3]"
_DEFAULT_INTERVAL_MS = 500
_WHERE = "collector_arguments"


@dataclass(frozen=True, slots=True)
class CollectorArguments:
    """What a launch needs: ``environment`` of the container, a line of ``requirements.txt``, and ``Tags``."""

    environment: dict[str, str]
    requirement: str
    tags: list[dict[str, str]]

    def for_boto3(self) -> dict[str, Any]:
        """Return Environment, ProfilerConfig and Tags of boto3's ``create_training_job``.

        The managed profiler is switched off: it would write a second profile below the same prefix.
        """
        return {
            "Environment": self.environment,
            "ProfilerConfig": {"DisableProfiler": True},
            "Tags": self.tags,
        }

    def for_estimator(self) -> dict[str, Any]:
        """Return arguments of an estimator of the SageMaker Python SDK, version 2."""
        return {"environment": self.environment, "disable_profiler": True, "tags": self.tags}

    def for_model_trainer(self) -> dict[str, Any]:
        """Return arguments of a ModelTrainer of the SageMaker Python SDK, version 3."""
        return {
            "environment": self.environment,
            "tags": [{"key": each["Key"], "value": each["Value"]} for each in self.tags],
        }


def collector_arguments(
    profile: ProfilerConfig | str, rules: Iterable[AnyRule] = (), *, requirement: str = REQUIREMENT, **tagged: Any
) -> CollectorArguments:
    """Return what a launch needs so that the collector writes the job's profile.

    ``profile`` says where to and how often, or only where to: below the bucket of the stack's output ProfilerOutputUri.
    ``rules`` become tags. ``requirement`` is the collector's wheel of a release, an HTTPS URL or a path, or a line of
    ``requirements.txt`` as it is; no package index has it. ``tagged`` and errors are as in `tags`; LaunchConfigError
    also when the profile has no place, is off, or asks for more than system metrics, and when pip cannot fetch the
    wheel.
    """
    config = ProfilerConfig(s3_output_path=profile) if isinstance(profile, str) else profile
    place = config.s3_output_path
    if place is None or config.disable_profiler:
        expected = "a place below the bucket that the stack's output ProfilerOutputUri names"
        raise LaunchConfigError(_WHERE, "s3_output_path", place, expected)
    if config.framework_profile_params is not None or config.profile_params is not None:
        expected = "None: the collector samples the system alone"
        raise LaunchConfigError(_WHERE, "framework_profile_params", config.framework_profile_params, expected)
    interval = config.system_monitor_interval_millis or _DEFAULT_INTERVAL_MS
    environment = {"TRAINGUARD_OUTPUT": place, "TRAINGUARD_INTERVAL_MS": str(interval)}
    line = _requirement_line(requirement)
    return CollectorArguments(environment, line, tags(*rules, profile_path=place, **tagged))


def _requirement_line(given: str) -> str:
    """Return the line of ``requirements.txt`` for a wheel's URL or path, or a line as it is."""
    line = given.strip()
    if not line or "\n" in line or (line.startswith("s3://")):
        expected = "one line of requirements.txt, or an HTTPS URL or a path of the collector's wheel"
        raise LaunchConfigError(_WHERE, "requirement", given, expected)
    if not line.endswith(".whl") or " @ " in line:
        return line
    return f"{REQUIREMENT} @ {line}" if "://" in line else f"{line}[s3]"
