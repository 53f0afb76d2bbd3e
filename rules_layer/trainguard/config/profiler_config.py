"""Where and how often a training job writes its profile."""

import re
from typing import Any

from trainguard.config.framework_profile import FrameworkProfile, check_flag
from trainguard.core.errors import LaunchConfigError

_WHERE = "ProfilerConfig"
INTERVALS_MS = (100, 200, 500, 1_000, 5_000, 60_000)

_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/.*)?")
_LONGEST_URI = 1_024
_PROFILER_INSTANCE, _PROFILER_VOLUME_GB = "ml.m5.4xlarge", 128


class Profiler:
    """Settings of SageMaker Profiler, which is another product and whose files no rule reads.

    Durations are in seconds. ``profiling_parameters`` are those of CreateTrainingJob; ``instanceType`` and
    ``volumeSizeInGB`` are of the processing job that the SDK adds.
    """

    def __init__(self, cpu_profiling_duration: str | int = "3600", file_rotation_interval: str | int = "600") -> None:
        self.profiling_parameters = {
            "CPUProfilingDuration": str(cpu_profiling_duration),
            "SMPFileRotationSecs": str(file_rotation_interval),
        }
        self.instanceType = _PROFILER_INSTANCE
        self.volumeSizeInGB = _PROFILER_VOLUME_GB


class ProfilerConfig:
    """A training job's profile: its place, its interval, and framework metrics; an estimator's ``profiler_config``.

    ``s3_output_path`` lies below the bucket of the stack's output ProfilerOutputUri; an estimator without one takes its
    own ``output_path``. ``profile_params`` asks for SageMaker Profiler instead. SageMaker's default interval is 500 ms.
    Raises LaunchConfigError when a value is none of its kind, or two exclude one another.
    """

    def __init__(
        self,
        s3_output_path: str | None = None,
        system_monitor_interval_millis: int | None = None,
        framework_profile_params: FrameworkProfile | None = None,
        profile_params: Profiler | None = None,
        disable_profiler: bool = False,
    ) -> None:
        check_place(_WHERE, s3_output_path)
        interval = system_monitor_interval_millis
        if interval is not None and (isinstance(interval, bool) or interval not in INTERVALS_MS):
            known = ", ".join(map(str, INTERVALS_MS))
            raise LaunchConfigError(_WHERE, "system_monitor_interval_millis", interval, f"one of {known}")
        check_flag(_WHERE, "disable_profiler", disable_profiler)
        if framework_profile_params is not None and not isinstance(framework_profile_params, FrameworkProfile):
            raise LaunchConfigError(_WHERE, "framework_profile_params", framework_profile_params, "a FrameworkProfile")
        if profile_params is not None and not isinstance(profile_params, Profiler):
            raise LaunchConfigError(_WHERE, "profile_params", profile_params, "a Profiler")
        if profile_params is not None and framework_profile_params is not None:
            raise LaunchConfigError(_WHERE, "profile_params", profile_params, "None beside framework_profile_params")
        self.s3_output_path = s3_output_path
        self.system_monitor_interval_millis = system_monitor_interval_millis
        self.framework_profile_params = framework_profile_params
        self.profile_params = profile_params
        self.disable_profiler = disable_profiler

    def to_request_dict(self) -> dict[str, Any]:
        """Return ``ProfilerConfig`` of CreateTrainingJob."""
        request: dict[str, Any] = {}
        if self.s3_output_path is not None and not self.disable_profiler:
            request["S3OutputPath"] = self.s3_output_path
        request["DisableProfiler"] = self.disable_profiler
        if self.system_monitor_interval_millis is not None:
            request["ProfilingIntervalInMilliseconds"] = self.system_monitor_interval_millis
        parameters = self.framework_profile_params or self.profile_params
        if parameters is not None:
            request["ProfilingParameters"] = dict(parameters.profiling_parameters)
        return request

    _to_request_dict = to_request_dict

    @classmethod
    def _to_profiler_disabled_request_dict(cls) -> dict[str, Any]:
        """Switch the profiler of a running job off, as the SDK's estimators ask for it."""
        return {"DisableProfiler": True}


def check_place(where: str, uri: str | None) -> None:
    """Raise LaunchConfigError unless ``uri`` is a place in S3, or none."""
    if uri is not None and (not isinstance(uri, str) or len(uri) > _LONGEST_URI or not _URI.fullmatch(uri)):
        raise LaunchConfigError(where, "s3_output_path", uri, f"s3://bucket/prefix, {_LONGEST_URI} characters at most")
