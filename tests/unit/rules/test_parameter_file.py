"""Parameters from a JSON file, nested or flat, mean the same as in tags; the shipped defaults are the container's."""

import json
from typing import Any

import pytest

from trainguard.core.errors import ParameterFileError, RuleConfigError
from trainguard.rules.parameters import read_parameter_file, resolve_parameters
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES, SPECS


def read(document: Any) -> dict[str, str]:
    return read_parameter_file("params.json", json.dumps(document).encode())


@pytest.mark.parametrize(
    "document",
    [
        {"LowGPUUtilization": {"patience": 100, "threshold_p95": 60.5}, "StepOutlier": {"mode": None}},
        {"LowGPUUtilization_patience": 100, "LowGPUUtilization_threshold_p95": 60.5, "StepOutlier_mode": None},
        {"lowgpuutilization": {"PATIENCE": "100"}, "LOWGPUUTILIZATION_Threshold_P95": 60.5},
    ],
    ids=["nested", "flat", "mixed-in-any-case"],
)
def test_file_of_either_form_means_the_same_as_tags(document: Any) -> None:
    tags = {"LowGPUUtilization_patience": "100", "LowGPUUtilization_threshold_p95": "60.5"}

    assert resolve_parameters(read(document)) == resolve_parameters(tags)


@pytest.mark.parametrize(
    ("document", "rule", "field", "expected"),
    [
        ({"LowGpu": {"patience": 1}}, "LowGpu", "LowGpu", "a rule such as LowGPUUtilization"),
        (
            {"CPUBottleneck_patience": {"value": 1}},
            "CPUBottleneck_patience",
            "CPUBottleneck_patience",
            "a rule such as CPUB",
        ),
        ({"LowGPUUtilisation": {}}, "LowGPUUtilisation", "LowGPUUtilisation", "a rule such as LowGPUUtilization"),
        ({"CPUBottleneck": {"patience": [1]}}, "CPUBottleneck", "CPUBottleneck_patience", "a number, a text, true"),
        ({"CPUBottleneck": {"patience": {"a": 1}}}, "CPUBottleneck", "CPUBottleneck_patience", "a number, a text"),
        (
            {"CPUBottleneck": {"patience": 1}, "CPUBottleneck_patience": 2},
            "CPUBottleneck",
            "CPUBottleneck_patience",
            "the same as before, '1'",
        ),
    ],
)
def test_value_no_tag_could_hold_is_named_with_a_valid_one(document: Any, rule: str, field: str, expected: str) -> None:
    with pytest.raises(RuleConfigError) as raised:
        read(document)

    assert (raised.value.rule, raised.value.field) == (rule, field)
    assert expected in raised.value.expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, "a whole number from 0 or None"), (1.5, "a whole number from 0 or None")],
)
def test_json_value_of_a_wrong_type_is_a_fault_of_its_rule(value: Any, expected: str) -> None:
    parameters, faults = resolve_parameters(read({"CPUBottleneck": {"patience": value}}))

    assert faults["CPUBottleneck"].expected == expected
    assert "CPUBottleneck" not in parameters
    assert "LowGPUUtilization" in parameters


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"3", b'"text"', b"null", b"\xff\xfe", b'{"a": NaN}'])
def test_file_without_a_json_object_is_named_in_the_error(body: bytes) -> None:
    with pytest.raises(ParameterFileError, match=r"params\.json"):
        read_parameter_file("params.json", body)


def test_shipped_defaults_are_overridden_by_settings() -> None:
    shipped, faults = resolve_parameters({"StepOutlier_stddev": "4"}, "shipped")

    assert not faults
    found = {
        (rule, name): shipped[rule].in_force()[name]
        for rule, name in [
            ("BatchSize", "patience_s"),
            ("BatchSize", "window_s"),
            ("CPUBottleneck", "patience_s"),
            ("GPUMemoryIncrease", "increase"),
            ("GPUMemoryIncrease", "patience_s"),
            ("GPUMemoryIncrease", "window_s"),
            ("IOBottleneck", "gpu_threshold"),
            ("IOBottleneck", "patience_s"),
            ("LoadBalancing", "threshold"),
            ("LoadBalancing", "patience_s"),
            ("LowGPUUtilization", "patience_s"),
            ("StepOutlier", "stddev"),
            ("MaxInitializationTime", "threshold"),
            ("Dataloader", "min_threshold"),
            ("Dataloader", "max_threshold"),
        ]
    }
    assert list(found.values()) == [500, 250, 500, 5, 500, 5, 10, 500, 0.2, 500, 500, 4, 20, 70, 200]


def test_documented_defaults_differ_where_the_container_does() -> None:
    documented, _ = resolve_parameters({})
    shipped, _ = resolve_parameters({}, "shipped")

    assert {rule for rule in documented if documented[rule] != shipped[rule]} == {
        rule for rule, spec in SPECS.items() if spec.shipped_defaults
    }


def test_settings_of_profiler_report_need_no_prefix() -> None:
    bare, none = resolve_parameters(
        read({"scan_interval_us": 90_000_000, "opt_out_telemetry": True, "rule_to_invoke": "lowgpuutilization"})
    )
    prefixed, _ = resolve_parameters(
        read({PROFILER_REPORT: {"scan_interval_us": 90_000_000, "opt_out_telemetry": "true"}})
        | {"profilerreport_rule_to_invoke": "LowGPUUtilization"}
    )

    assert not none
    assert bare == prefixed
    report: Any = bare[PROFILER_REPORT]
    assert (report.scan_interval_us, report.opt_out_telemetry) == (120_000_000, True)
    assert report.rule_to_invoke == "LowGPUUtilization"


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("opt_out_telemetry", "maybe", "true or false"),
        ("rule_to_invoke", "LowGpu", "ProfilerReport, or one of CPUBottleneck"),
        ("scan_interval_us", "0", "a whole number above 0"),
        ("ProfilerReport_patience", "1", "one of the parameters opt_out_telemetry, rule_to_invoke, scan_interval_us"),
    ],
)
def test_bad_setting_of_the_report_is_its_own_fault(setting: str, value: str, expected: str) -> None:
    parameters, faults = resolve_parameters({setting: value})

    assert set(faults) == {PROFILER_REPORT}
    assert (faults[PROFILER_REPORT].field, faults[PROFILER_REPORT].value) == (setting, value)
    assert expected in faults[PROFILER_REPORT].expected
    assert set(parameters) == set(RULE_NAMES)
