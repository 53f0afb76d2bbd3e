"""Profiler and framework configurations: what CreateTrainingJob gets, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.config import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    HorovodProfilingConfig,
    Profiler,
    ProfilerConfig,
    PythonProfiler,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
    StepRange,
    TimeRange,
    cProfileTimer,
)
from trainguard.config.framework_profile import MetricsConfig
from trainguard.config.profiler_config import INTERVALS_MS
from trainguard.core.errors import LaunchConfigError

KINDS: list[type[MetricsConfig]] = [
    DetailedProfilingConfig,
    DataloaderProfilingConfig,
    PythonProfilingConfig,
    HorovodProfilingConfig,
    SMDataParallelProfilingConfig,
]
WRITER = {
    "LocalPath": "/opt/ml/output/profiler",
    "RotateMaxFileSizeInBytes": "10485760",
    "RotateFileCloseIntervalInSeconds": "60",
    "FileOpenFailThreshold": "50",
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (DetailedProfilingConfig(), '{"StartStep": 5, "NumSteps": 1, }'),
        (DataloaderProfilingConfig(), '{"StartStep": 7, "NumSteps": 1, "MetricsRegex": ".*", }'),
        (
            PythonProfilingConfig(),
            '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", "cProfileTimer": "total_time", }',
        ),
        (HorovodProfilingConfig(), '{"StartStep": 13, "NumSteps": 1, }'),
        (SMDataParallelProfilingConfig(), '{"StartStep": 15, "NumSteps": 1, }'),
        (DetailedProfilingConfig(start_step=0, num_steps=4), '{"StartStep": 0, "NumSteps": 4, }'),
        (DetailedProfilingConfig(start_step=3), '{"StartStep": 3, "NumSteps": 1, }'),
        (DetailedProfilingConfig(num_steps=3), '{"StartStep": 0, "NumSteps": 3, }'),
        (DetailedProfilingConfig(start_step=3, profile_default_steps=True), '{"StartStep": 5, "NumSteps": 1, }'),
        (
            DetailedProfilingConfig(start_unix_time=1_700_000_000, duration=2.5),
            '{"StartTimeInSecSinceEpoch": 1700000000, "Duration": 2.5, }',
        ),
        (DetailedProfilingConfig(duration=30), '{"Duration": 30, }'),
        (
            PythonProfilingConfig(num_steps=1, python_profiler=PythonProfiler.PYINSTRUMENT),
            '{"StartStep": 0, "NumSteps": 1, "ProfilerName": "pyinstrument", }',
        ),
        (
            PythonProfilingConfig(num_steps=1, cprofile_timer=cProfileTimer.OFF_CPU_TIME),
            '{"StartStep": 0, "NumSteps": 1, "ProfilerName": "cprofile", "cProfileTimer": "off_cpu_time", }',
        ),
        (
            PythonProfilingConfig(profile_default_steps=True),
            '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", "cProfileTimer": "default", }',
        ),
        (
            DataloaderProfilingConfig(num_steps=1, metrics_regex="Data.*"),
            '{"StartStep": 0, "NumSteps": 1, "MetricsRegex": "Data.*", }',
        ),
    ],
)
def test_metrics_configuration_is_as_the_container_reads_it(config: MetricsConfig, expected: str) -> None:
    assert config.to_json_string() == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"start_step": -1}, "start_step"),
        ({"start_step": 1.0}, "start_step"),
        ({"start_step": True}, "start_step"),
        ({"num_steps": 0}, "num_steps"),
        ({"start_unix_time": 1_700_000_000_000}, "start_unix_time"),
        ({"start_unix_time": 1.5}, "start_unix_time"),
        ({"duration": 0}, "duration"),
        ({"duration": float("inf")}, "duration"),
        ({"duration": "60"}, "duration"),
        ({"start_step": 1, "duration": 1}, "range"),
        ({"num_steps": 1, "start_unix_time": 1}, "range"),
        ({"profile_default_steps": True, "duration": 1}, "range"),
        ({"profile_default_steps": 1}, "profile_default_steps"),
    ],
)
def test_invalid_range_names_the_field(kind: type[MetricsConfig], values: dict[str, Any], field: str) -> None:
    with pytest.raises(LaunchConfigError) as fault:
        kind(**values)
    assert fault.value.field == field


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        (DataloaderProfilingConfig, {"metrics_regex": "("}, "metrics_regex"),
        (DataloaderProfilingConfig, {"metrics_regex": None}, "metrics_regex"),
        (PythonProfilingConfig, {"python_profiler": "cprofile"}, "python_profiler"),
        (PythonProfilingConfig, {"cprofile_timer": "total_time"}, "cprofile_timer"),
        (FrameworkProfile, {"local_path": None}, "local_path"),
        (FrameworkProfile, {"file_max_size": 0}, "file_max_size"),
        (FrameworkProfile, {"file_close_interval": 0}, "file_close_interval"),
        (FrameworkProfile, {"file_open_fail_threshold": 0}, "file_open_fail_threshold"),
        (FrameworkProfile, {"start_step": 1, "duration": 1}, "range"),
        (FrameworkProfile, {"detailed_profiling_config": HorovodProfilingConfig()}, "DetailedProfilingConfig"),
        (ProfilerConfig, {"s3_output_path": "https://profiles/"}, "s3_output_path"),
        (ProfilerConfig, {"s3_output_path": "s3://UPPER/"}, "s3_output_path"),
        (ProfilerConfig, {"s3_output_path": "s3://profiles/" + 1_011 * "x"}, "s3_output_path"),
        (ProfilerConfig, {"system_monitor_interval_millis": 250}, "system_monitor_interval_millis"),
        (ProfilerConfig, {"system_monitor_interval_millis": "500"}, "system_monitor_interval_millis"),
        (ProfilerConfig, {"framework_profile_params": {}}, "framework_profile_params"),
        (ProfilerConfig, {"profile_params": {}}, "profile_params"),
        (ProfilerConfig, {"disable_profiler": None}, "disable_profiler"),
        (
            ProfilerConfig,
            {"profile_params": Profiler(), "framework_profile_params": FrameworkProfile()},
            "profile_params",
        ),
    ],
)
def test_value_of_a_wrong_type_names_field_and_value(kind: Any, values: dict[str, Any], field: str) -> None:
    with pytest.raises(LaunchConfigError) as fault:
        kind(**values)
    assert fault.value.field == field
    assert fault.value.expected in str(fault.value)


@pytest.mark.parametrize("beside", [{}, {"detailed_profiling_config": DetailedProfilingConfig()}])
def test_framework_profile_refuses_both_kinds_of_range(
    beside: dict[str, Any],
) -> None:
    with pytest.raises(LaunchConfigError) as fault:
        FrameworkProfile(start_step=1, duration=1, **beside)
    assert fault.value.where == "FrameworkProfile"


def test_empty_framework_profile_has_five_default_step_ranges() -> None:
    expected = {kind.name: kind(profile_default_steps=True).to_json_string() for kind in KINDS}
    assert FrameworkProfile().profiling_parameters == WRITER | expected


def test_given_range_applies_to_all_five_configurations() -> None:
    parameters = FrameworkProfile(start_step=6, num_steps=2).profiling_parameters
    assert all(parameters[kind.name].startswith('{"StartStep": 6, "NumSteps": 2, ') for kind in KINDS)
    assert '"cProfileTimer": "total_time"' in parameters["PythonProfilingConfig"]


def test_single_configuration_profiles_only_that() -> None:
    horovod = HorovodProfilingConfig(start_step=2)
    profile = FrameworkProfile(horovod_profiling_config=horovod, start_step=9, local_path="/x", file_max_size=1)
    assert profile.profiling_parameters == WRITER | {
        "LocalPath": "/x",
        "RotateMaxFileSizeInBytes": "1",
        "HorovodProfilingConfig": horovod.to_json_string(),
    }


@pytest.mark.parametrize("interval", INTERVALS_MS)
def test_known_interval_is_in_the_request(interval: int) -> None:
    config = ProfilerConfig("s3://profiles/jobs", interval)
    assert config.to_request_dict() == {
        "S3OutputPath": "s3://profiles/jobs",
        "DisableProfiler": False,
        "ProfilingIntervalInMilliseconds": interval,
    }


def test_request_has_the_parameters_of_framework_metrics() -> None:
    profile = FrameworkProfile()
    request = ProfilerConfig(framework_profile_params=profile).to_request_dict()
    assert request == {"DisableProfiler": False, "ProfilingParameters": profile.profiling_parameters}


def test_request_has_the_parameters_of_sagemaker_profiler() -> None:
    profiler = Profiler(cpu_profiling_duration=60)
    request = ProfilerConfig("s3://profiles", profile_params=profiler).to_request_dict()
    assert request["ProfilingParameters"] == {"CPUProfilingDuration": "60", "SMPFileRotationSecs": "600"}
    assert (profiler.instanceType, profiler.volumeSizeInGB) == ("ml.m5.4xlarge", 128)


def test_request_of_a_disabled_profiler_has_no_location() -> None:
    assert ProfilerConfig("s3://profiles", disable_profiler=True).to_request_dict() == {"DisableProfiler": True}


def test_sdk_estimator_finds_what_it_calls_and_sets() -> None:
    config = ProfilerConfig()
    config.s3_output_path = "s3://output"
    assert config._to_request_dict() == {"DisableProfiler": False, "S3OutputPath": "s3://output"}
    assert ProfilerConfig._to_profiler_disabled_request_dict() == {"DisableProfiler": True}
    unset = (config.profile_params, config.framework_profile_params, config.system_monitor_interval_millis)
    assert unset == (None, None, None)


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_given_any_steps_when_written_then_they_are_read_back(start: int, count: int) -> None:
    assert StepRange(start, count).to_json() == {"StartStep": start, "NumSteps": count}


def test_time_range_without_a_start_has_only_its_length() -> None:
    assert TimeRange(None, 1.5).to_json() == {"Duration": 1.5}
