from typing import Any

import msgspec
import pytest

from tests.unit.compatible.profiles import Profile, replayed
from trainguard.core.errors import RuleConfigError
from trainguard.managed.parameters import resolve_compatible_parameters, resolve_scan_interval_us

CONTAINER = {
    "CPUBottleneck": "threshold:50\ncpu_threshold:90\ngpu_threshold:10\npatience:1000",
    "IOBottleneck": "threshold:50\nio_threshold:50\ngpu_threshold:10\npatience:1000",
    "LowGPUUtilization": "threshold_p95:70\nthreshold_p5:10\nwindow:500\npatience:1000",
    "StepOutlier": "threshold:3\nmode:None\nn_outliers:10\nstddev:3",
    "GPUMemoryIncrease": "increase:5\npatience:1000\nwindow:10",
    "BatchSize": "cpu_threshold_p95:70\ngpu_threshold_p95:70\ngpu_memory_threshold_p95:70\npatience:1000\nwindow:500",
    "MaxInitializationTime": "threshold:20",
    "LoadBalancing": "threshold:0.2\npatience:1000",
    "OverallSystemUsage": "",
    "Dataloader": "min_threshold:70\nmax_threshold:200",
    "OverallFrameworkMetrics": "",
}
DOCUMENTED = CONTAINER | {
    "CPUBottleneck": "threshold:50\ncpu_threshold:90\ngpu_threshold:10\npatience:100",
    "IOBottleneck": "threshold:50\nio_threshold:50\ngpu_threshold:70\npatience:1000",
    "StepOutlier": "threshold:5\nmode:None\nn_outliers:10\nstddev:5",
    "GPUMemoryIncrease": "increase:10\npatience:100\nwindow:500",
    "BatchSize": "cpu_threshold_p95:70\ngpu_threshold_p95:70\ngpu_memory_threshold_p95:70\npatience:100\nwindow:500",
    "LoadBalancing": "threshold:0.5\npatience:10",
}


@pytest.mark.parametrize(("documented", "texts"), [(False, CONTAINER), (True, DOCUMENTED)])
def test_texts_show_the_defaults_without_settings(documented: bool, texts: dict[str, str]) -> None:
    resolved = resolve_compatible_parameters({}, documented=documented)

    assert {rule: parameters.text() for rule, parameters in resolved.items()} == texts


@pytest.mark.parametrize(
    ("given", "shown"),
    [(50, "50"), (70.5, "70.5"), (50.0, "50.0"), ("50", "50"), ("70.5", "70.5"), (-1, "-1"), (0, "0")],
)
def test_finite_number_is_shown_as_it_was_given(given: Any, shown: str) -> None:
    resolved = resolve_compatible_parameters({"MaxInitializationTime": {"threshold": given}})

    assert resolved["MaxInitializationTime"].text() == f"threshold:{shown}"


@pytest.mark.parametrize("mode", [None, "Step:ModeKeys.EVAL", ""])
def test_given_a_mode_when_resolved_then_it_is_a_text_or_none(mode: str | None) -> None:
    resolved = resolve_compatible_parameters({"StepOutlier": {"mode": mode, "scan_interval_us": 1}})

    assert f"mode:{mode}\n" in resolved["StepOutlier"].text()


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"Overheating": {"threshold": 1}}, "Overheating"),
        ({"cpubottleneck": {}}, "cpubottleneck"),
        ({"CPUBottleneck": {"io_threshold": 1}}, "io_threshold"),
        ({"OverallSystemUsage": {"threshold": 1}}, "threshold"),
        ({"CPUBottleneck": {"threshold": "high"}}, "'high'"),
        ({"CPUBottleneck": {"threshold": None}}, "None"),
        ({"CPUBottleneck": {"threshold": True}}, "True"),
        ({"CPUBottleneck": {"threshold": float("nan")}}, "nan"),
        ({"CPUBottleneck": {"threshold": "inf"}}, "'inf'"),
        ({"CPUBottleneck": {"threshold": [1]}}, "\\[1\\]"),
        ({"CPUBottleneck": {"threshold": 10**400}}, "a finite number"),
        ({"ProfilerReport": {"scan_interval_us": -(10**400)}}, "a finite number"),
        ({"CPUBottleneck": {"scan_interval_us": "x"}}, "scan_interval_us"),
        ({"StepOutlier": {"mode": 5}}, "mode"),
        ({"ProfilerReport": {"scan_interval_us": 0}}, "scan_interval_us"),
        ({"ProfilerReport": {"opt_out_telemetry": 1}}, "opt_out_telemetry"),
    ],
)
def test_unusable_setting_is_named_in_the_error(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(RuleConfigError, match=field):
        resolve_compatible_parameters(settings)


def test_scan_intervals_are_whole_microseconds() -> None:
    assert resolve_scan_interval_us({}) == 60_000_000
    assert resolve_scan_interval_us({"ProfilerReport": {"scan_interval_us": "90000000.7"}}) == 90_000_000


@pytest.mark.parametrize("value", [-3, 0, 0.5, 1, 7.25, 1e6])
def test_no_number_for_any_parameter_raises(value: float) -> None:
    names = {
        rule: [name for name in msgspec.structs.asdict(parameters) if name != "mode"]
        for rule, parameters in resolve_compatible_parameters({}).items()
    }
    profile = Profile().minutes(3)
    dimensions = ("CPUUtilization", "GPUUtilization", "GPUMemoryUtilization", "I/OWaitPercentage")
    profile.minute(0, [(of, "x0", at / 4, float(at % 7)) for at in range(1, 200) for of in dimensions])

    result = replayed(profile, {rule: dict.fromkeys(parameters, value) for rule, parameters in names.items()})

    assert result.windows == 3
