from typing import Any

import pytest

from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneckParameters
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization, LowGPUUtilizationParameters
from trainguard.rules.parameters import resolve_parameters
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import ALL_RULES, RULE_NAMES
from trainguard.rules.step_outlier.evaluation import StepOutlierParameters

EVERY_NAME = {*RULE_NAMES, PROFILER_REPORT}


def test_every_rule_has_its_documented_defaults() -> None:
    parameters, faults = resolve_parameters({})

    assert not faults
    assert set(parameters) == EVERY_NAME
    documented: dict[str, dict[str, float | None]] = {
        "BatchSize": {"cpu_threshold_p95": 70, "gpu_memory_threshold_p95": 70, "patience_s": 50, "window_s": 250},
        "CPUBottleneck": {"threshold": 50, "gpu_threshold": 10, "cpu_threshold": 90, "patience_s": 50},
        "Dataloader": {"min_threshold": 70, "max_threshold": 200, "patience_s": 10},
        "GPUMemoryIncrease": {"increase": 10, "patience_s": 50, "window_s": 250},
        "IOBottleneck": {"threshold": 50, "io_threshold": 50, "gpu_threshold": 70, "patience_s": 500},
        "LoadBalancing": {"threshold": 0.5, "patience_s": 5},
        "LowGPUUtilization": {"threshold_p95": 70, "threshold_p5": 10, "window_s": 250, "patience_s": 500},
        "MaxInitializationTime": {"threshold": 20},
        "StepOutlier": {"stddev": 5, "mode": None, "n_outliers": 10},
    }
    for rule, values in documented.items():
        in_force = parameters[rule].in_force()
        assert {name: in_force[name] for name in values} == values
        assert (in_force.get("patience"), in_force.get("window")) == (None, None)
    assert {each.scan_interval_us for each in parameters.values()} == {60_000_000}


def test_names_and_types_as_users_write_them_are_understood() -> None:
    parameters, faults = resolve_parameters(
        {
            "lowgpuutilization_THRESHOLD_P95": "60",
            "LowGPUUtilization_window_s": " 300 ",
            "CPUBottleneck_patience": "200.0",
            "StepOutlier_mode": "None",
            "StepOutlier_stddev": "3.5",
            "STEPOUTLIER_scan_interval_us": "119000001",
        }
    )

    assert not faults
    assert parameters["LowGPUUtilization"] == LowGPUUtilizationParameters(threshold_p95=60.0, window_s=300.0)
    assert parameters["CPUBottleneck"] == CPUBottleneckParameters(patience=200)
    assert parameters["StepOutlier"] == StepOutlierParameters(stddev=3.5, scan_interval_us=120_000_000)


@pytest.mark.parametrize(
    ("given", "interval_s", "patience", "window", "lasting"),
    [
        ({}, 0.1, 5_000, 2_500, 5_000),
        ({}, 0.5, 1_000, 500, 1_000),
        ({}, 5.0, 100, 50, 100),
        ({}, 60.0, 20, 20, 8),
        ({"patience": "1000", "window": "500"}, 60.0, 1_000, 500, 1_000),
        ({"patience_s": "90", "window_s": "90"}, 60.0, 2, 20, 3),
        ({"window": "5"}, 60.0, 20, 20, 40),
    ],
)
def test_only_given_points_stay_points_at_any_sampling(
    given: dict[str, str], interval_s: float, patience: int, window: int, lasting: int
) -> None:
    rule = LowGPUUtilization()
    parameters: Any = resolve_parameters({f"LowGPUUtilization_{name}": value for name, value in given.items()})[0][
        "LowGPUUtilization"
    ]

    assert parameters.patience_points(interval_s) == patience
    assert rule.window_points(parameters, interval_s) == window
    assert rule.lasting_points(parameters, interval_s) == lasting


def test_given_points_replace_the_seconds_of_shipped_defaults() -> None:
    parameters: Any = resolve_parameters({"BatchSize_patience": "30"}, "shipped")[0]["BatchSize"]

    assert (parameters.patience, parameters.patience_s, parameters.patience_points(60.0)) == (30, None, 30)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("LowGPUUtilization_threshold_p95", "101", "a number from 0 to 100"),
        ("LowGPUUtilization_threshold_p5", "low", "a number from 0 to 100"),
        ("LowGPUUtilization_threshold_p5", "nan", "a number from 0 to 100"),
        ("LowGPUUtilization_window", "0", "a whole number from 1 to 2500 or None"),
        ("LowGPUUtilization_window", "2501", "a whole number from 1 to 2500 or None"),
        ("LowGPUUtilization_patience", "-1", "a whole number from 0 or None"),
        ("LowGPUUtilization_patience", "10.5", "a whole number from 0 or None"),
        ("LowGPUUtilization_patience_s", "0", "a number above 0 or None"),
        ("LowGPUUtilization_patience_s", "inf", "a number above 0 or None"),
        ("CPUBottleneck_gpu_fraction", "0", "a number above 0 to 1"),
        ("StepOutlier_stddev", "0", "a number above 0"),
        ("MaxInitializationTime_threshold", "-20", "a number above 0"),
        ("MaxInitializationTime_scan_interval_us", "0", "a whole number above 0"),
    ],
)
def test_bad_value_is_named_with_a_valid_one(setting: str, value: str, expected: str) -> None:
    parameters, faults = resolve_parameters({setting: value})

    rule = setting.partition("_")[0]
    assert set(faults) == {rule}
    assert (faults[rule].field, faults[rule].value, faults[rule].expected) == (setting, value, expected)
    assert set(parameters) == EVERY_NAME - {rule}


def test_unknown_parameter_lists_the_accepted_ones() -> None:
    _, faults = resolve_parameters({"CPUBottleneck_window": "10"})

    assert faults["CPUBottleneck"].expected == (
        "one of the parameters cpu_threshold, gpu_fraction, gpu_threshold, patience, patience_s, scan_interval_us, "
        "threshold"
    )


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("LowGpu_patience", "such as LowGPUUtilization"),
        ("patience", "with a rule such as"),
        ("_patience", "StepOutlier"),
        ("LowGPUUtilisation_window", "such as LowGPUUtilization"),
    ],
)
def test_unknown_rule_is_a_fault_under_its_name_as_written(setting: str, named: str) -> None:
    parameters, faults = resolve_parameters({setting: "10"})

    written = setting.partition("_")[0]
    assert set(faults) == {written}
    assert named in faults[written].expected
    assert set(parameters) == EVERY_NAME


def test_points_and_seconds_together_are_refused() -> None:
    _, faults = resolve_parameters({"LowGPUUtilization_window": "100", "LowGPUUtilization_window_s": "50"})

    assert faults["LowGPUUtilization"].expected == "either window or window_s, not both"


def test_parameter_with_two_different_values_is_a_fault() -> None:
    twice = {"CPUBottleneck_patience": "10", "cpubottleneck_patience": "20"}

    _, faults = resolve_parameters(twice)
    agreeing, none = resolve_parameters(dict.fromkeys(twice, "10"))

    assert "the same as CPUBottleneck_patience, '10'" in faults["CPUBottleneck"].expected
    assert not none
    assert agreeing["CPUBottleneck"] == CPUBottleneckParameters(patience=10)


def test_rule_prefix_without_a_parameter_name_is_a_fault() -> None:
    _, faults = resolve_parameters({"StepOutlier": "3"})

    assert faults["StepOutlier"].field == "StepOutlier"


# Rules over what the collector writes, which the managed service does not have.
ADDED = {"GPUHealth", "HungJob", "Straggler"}


def test_every_managed_rule_is_registered_under_its_name() -> None:
    assert sorted(set(RULE_NAMES) - ADDED) == [
        "BatchSize",
        "CPUBottleneck",
        "Dataloader",
        "GPUMemoryIncrease",
        "IOBottleneck",
        "LoadBalancing",
        "LowGPUUtilization",
        "MaxInitializationTime",
        "OverallFrameworkMetrics",
        "OverallSystemUsage",
        "StepOutlier",
    ]
    parameters = {rule.name: rule.parameters_type for rule in ALL_RULES}
    assert all(rule.parameters_type is parameters[rule.name] for rule in ALL_RULES)
