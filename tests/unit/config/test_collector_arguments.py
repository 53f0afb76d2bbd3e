"""What a launch needs for the collector: what the collector itself takes, and tags that TrainGuard reads."""

import pytest
from packaging.requirements import Requirement

from trainguard.config import FrameworkProfile, Profiler, ProfilerConfig, collector_arguments, rule_configs
from trainguard.core.errors import LaunchConfigError
from trainguard_collector.names import Identity
from trainguard_collector.settings import read_settings

WHEEL = "trainguard_collector-1.0.0-py3-none-any.whl"
PLACE = "s3://my-profiles/jobs"


def test_launched_profile_reaches_the_collector_by_environment() -> None:
    profile = ProfilerConfig(PLACE, system_monitor_interval_millis=1_000)
    given = collector_arguments(profile)
    settings = read_settings(given.environment, Identity("bert", "algo-1"))
    assert settings is not None
    assert (settings.output, settings.interval_ms) == (PLACE, 1_000)
    assert given.requirement == "trainguard-collector[s3]"


def test_launch_tags_carry_rules_and_the_profile_location() -> None:
    given = collector_arguments(PLACE, [rule_configs.LowGPUUtilization(threshold_p95=60)], stop_on_fire=True)
    assert {each["Key"]: each["Value"] for each in given.tags} == {
        "trainguard:LowGPUUtilization_threshold_p95": "60",
        "trainguard:stop-on-fire": "allowed",
        "trainguard:profile-path": PLACE,
    }


def test_each_launch_method_uses_its_own_names() -> None:
    given = collector_arguments(PLACE)
    assert set(given.for_boto3()) == {"Environment", "ProfilerConfig", "Tags"}
    assert given.for_boto3()["ProfilerConfig"] == {"DisableProfiler": True}
    assert given.for_estimator() == {"environment": given.environment, "disable_profiler": True, "tags": given.tags}
    assert given.for_model_trainer()["tags"] == [{"key": "trainguard:profile-path", "value": PLACE}]


@pytest.mark.parametrize(
    "profile",
    [
        ProfilerConfig(),
        ProfilerConfig(PLACE, disable_profiler=True),
        ProfilerConfig(PLACE, framework_profile_params=FrameworkProfile()),
        ProfilerConfig(PLACE, profile_params=Profiler()),
        "my-profiles/jobs",
    ],
)
def test_profile_that_the_collector_cannot_write_is_refused(
    profile: ProfilerConfig | str,
) -> None:
    with pytest.raises(LaunchConfigError):
        collector_arguments(profile)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (f"./{WHEEL}", f"./{WHEEL}[s3]"),
        (f"https://host/{WHEEL}", f"trainguard-collector[s3] @ https://host/{WHEEL}"),
        ("trainguard-collector[s3]==1.0.0", "trainguard-collector[s3]==1.0.0"),
    ],
)
def test_wheel_location_is_a_valid_pip_requirement_line(given: str, line: str) -> None:
    requirement = collector_arguments(PLACE, requirement=given).requirement
    assert requirement == line
    if not line.startswith("./"):
        assert Requirement(line).extras == {"s3"}


@pytest.mark.parametrize("given", ["", f"s3://bucket/{WHEEL}", "a\nb"])
def test_requirement_that_pip_cannot_fetch_is_refused(given: str) -> None:
    with pytest.raises(LaunchConfigError, match="requirement"):
        collector_arguments(PLACE, requirement=given)
