"""What each source gives: tags, documents, rule configurations, with their faults."""

import json

import pytest

from trainguard.core.job_policy import AlertPolicy
from trainguard.core.ports import RuleConfiguration
from trainguard.engine.settings.job_settings import MOST_FAULTS, SettingFault, Source, fault_sentences, resolve
from trainguard.engine.settings.sources import asks, configured, read_document, settings_name, tag_source
from trainguard.rules.parameters import overridden, parameter_faults

PATH = "/TrainGuard/settings/"
LOW_GPU, PATIENCE = "LowGPUUtilization_threshold_p95", "LowGPUUtilization_patience"


def document(content: object) -> Source:
    return read_document("doc", json.dumps(content))


def told(source: Source) -> list[str]:
    return [str(fault) for fault in resolve("job", [source], asked=True).faults]


def test_parameters_choices_and_foreign_tags_are_separated() -> None:
    tags = {
        "trainguard:LowGPUUtilization_threshold_p95": "60",
        "trainguard:muted": "StepOutlier",
        "trainguard:stop-on-fire": "allowed",
        "trainguard:framework-metrics": "expected",
        "trainguard:settings": "llm",
        "team": "vision",
        "Trainguard:evaluate": "off",
    }
    source = tag_source(tags)
    assert source.parameters == {LOW_GPU: "60"}
    assert source.choices == {"muted": "StepOutlier"}
    assert source.origin_of("muted") == "tag trainguard:muted"
    assert source.faults == ()


@pytest.mark.parametrize("value", ["Allowed", "true", " allowed ", "yes"])
def test_almost_correct_permission_is_reported_to_its_owner(value: str) -> None:
    assert told(tag_source({"trainguard:stop-on-fire": value})) == [
        f"tag trainguard:stop-on-fire: stop-on-fire is {value!r}, expected allowed, to the letter"
    ]


@pytest.mark.parametrize("value", ["no", "denied", "", "allowed"])
def test_clear_permission_has_no_fault(value: str) -> None:
    assert told(tag_source({"trainguard:stop-on-fire": value})) == []


@pytest.mark.parametrize(
    ("tags", "asked"),
    [({}, False), ({"team": "x"}, False), ({"trainguard:evaluate": "no"}, True), ({"trainguard-x": "1"}, False)],
)
def test_any_trainguard_tag_opts_the_job_in(tags: dict[str, str], asked: bool) -> None:
    assert asks(tags) is asked


@pytest.mark.parametrize("value", ["llm", "/TrainGuard/settings/llm", " llm "])
def test_named_parameter_lies_below_the_path(value: str) -> None:
    assert settings_name({"trainguard:settings": value}, PATH) == "/TrainGuard/settings/llm"


def test_named_parameter_may_lie_in_deeper_folders() -> None:
    assert settings_name({"trainguard:settings": "team-a/v1.2/llm_x"}, PATH) == f"{PATH}team-a/v1.2/llm_x"
    assert settings_name({}, PATH) is None


@pytest.mark.parametrize(
    "value",
    ["", "/", "/Other/settings/llm", "llm:3", "a//b", "llm/", "a b", "é", "*", "/TrainGuard/settings/", "a" * 600],
)
def test_forbidden_parameter_name_fault_says_where_it_may_lie(value: str) -> None:
    fault = settings_name({"trainguard:settings": value}, PATH)
    assert isinstance(fault, SettingFault)
    assert fault.stops
    assert str(fault).startswith("tag trainguard:settings: settings is ")
    assert str(fault).endswith(f"below {PATH}, whole or without that")


def test_nested_flat_and_grouped_document_settings_equal_tags() -> None:
    source = document(
        {
            "LowGPUUtilization": {"threshold_p95": 60, "window_s": None},
            "StepOutlier_stddev": "4",
            "evaluate": ["prod-*", "llm-*"],
            "alerts": {
                "staged": ["BatchSize", "StepOutlier"],
                "muted": [],
                "quiet_hours": ["22:00-07:00", "sat 00:00-24:00"],
            },
            "stops": {"rules": "all", "grace": 600, "dry_run": True},
        }
    )
    assert source.parameters == {LOW_GPU: "60", "LowGPUUtilization_window_s": "None", "StepOutlier_stddev": "4"}
    assert source.choices == {
        "evaluate": "prod-* llm-*",
        "staged": "BatchSize StepOutlier",
        "muted": "none",
        "quiet-hours": "22:00-07:00 + sat 00:00-24:00",
        "stop-rules": "all",
        "stop-grace": "600",
        "stop-dry-run": "True",
    }
    assert told(source) == []


def test_tag_names_in_a_document_are_choices_too() -> None:
    source = document({"muted": "all", "stop-dry-run": "true", "stop-x": "1"})
    assert source.choices == {"muted": "all", "stop-dry-run": "true", "stop-x": "1"}
    assert source.parameters == {}


@pytest.mark.parametrize("body", ["", "{", "[]", "7", '"all"', "null", b"\xff\xfe", '{"a": NaN}', "[" * 100_000])
def test_invalid_document_is_ignored_whole_and_forbids_stops(body: str | bytes) -> None:
    source = read_document("SSM parameter /x", body)
    assert (source.parameters, source.choices) == ({}, {})
    assert len(source.faults) == 1
    assert str(source.faults[0]).startswith("SSM parameter /x: it is ")
    assert len(str(source.faults[0])) < 600
    assert resolve("job", [source], asked=True).policy.stops.rules == ()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"alerts": {"mute": []}}, "doc: alerts.mute is '[]', expected one of staged, muted, quiet_hours"),
        (
            {"alerts": ["BatchSize"]},
            """doc: alerts is '["BatchSize"]', expected an object with staged, muted, quiet_hours""",
        ),
        ({"stops": {"dryrun": True}}, "doc: stops.dryrun is 'True', expected one of rules, grace, dry_run"),
        ({"alerts": {"muted": [["x"]]}}, """doc: alerts.muted is '[["x"]]', expected a text, or a list of texts"""),
        ({"stops": {"grace": None}}, "doc: stops.grace is 'None', expected a text, or a list of texts"),
        (
            {"evaluate": ["prod"]},
            "doc: evaluate is 'prod', expected all, off, tagged, or patterns of job names such as prod-*",
        ),
    ],
)
def test_document_fault_has_source_setting_value_and_valid_ones(content: object, expected: str) -> None:
    assert told(document(content)) == [expected]


@pytest.mark.parametrize("value", [[1], {"deep": {}}, [[]]])
def test_parameter_without_a_valid_value_falls_back_on_no_other(value: object) -> None:
    source = document({"LowGPUUtilization": {"patience": value}, "BatchSize_patience": 7})
    (fault,) = told(source)
    assert fault.startswith("doc: LowGPUUtilization_patience is ")
    assert source.parameters == {PATIENCE: json.dumps(value, separators=(",", ":")), "BatchSize_patience": "7"}


def test_two_values_of_one_parameter_cancel_each_other() -> None:
    source = document({"LowGPUUtilization": {"patience": 10}, PATIENCE: 20})
    assert told(source) == ["doc: LowGPUUtilization_patience is '20', expected the same as before, '10'"]
    assert source.parameters == {PATIENCE: "10 and 20"}


def rule(name: str, invoked: str | None, place: str | None = None, **parameters: str) -> RuleConfiguration:
    given = parameters if invoked is None else {"rule_to_invoke": invoked, **parameters}
    return RuleConfiguration(name, "image", given, place)


def test_bare_managed_parameters_get_the_name_of_their_rule() -> None:
    found = configured(
        [
            rule("single", "lowgpuutilization", threshold_p95="60", scan_interval_us="60000000"),
            rule(
                "report",
                "ProfilerReport",
                opt_out_telemetry="true",
                StepOutlier_stddev="4",
                lowgpuutilization_patience="9",
            ),
        ]
    )
    assert found.parameters == {
        LOW_GPU: "60",
        "LowGPUUtilization_scan_interval_us": "60000000",
        "opt_out_telemetry": "true",
        "StepOutlier_stddev": "4",
        "lowgpuutilization_patience": "9",
    }
    assert found.origin_of(LOW_GPU) == "rule configuration single"
    assert (found.elsewhere, found.places, told(found)) == ({}, {}, [])


def test_each_foreign_rule_is_kept_with_the_reason() -> None:
    found = configured(
        [
            rule("custom", "LowGPUUtilization", source_s3_uri="s3://mine/rule.py", threshold_p95="1"),
            rule("own container", None, threshold_p95="1"),
            rule("unknown", "MyRule", threshold_p95="1"),
        ],
        [rule("VanishingGradient", "VanishingGradient")],
    )
    assert found.parameters == {}
    assert found.choices == {"training-rules": "VanishingGradient"}
    assert {name: reason[:13] for name, reason in found.elsewhere.items()} == {
        "custom": "a custom rule",
        "own container": "it names no r",
        "unknown": "rule_to_invok",
    }


def test_report_locations_are_kept_by_configuration() -> None:
    found = configured([rule("a", "BatchSize", "s3://mine/a"), rule("b", "StepOutlier")], [rule("c", None, "/opt/c")])
    assert found.places == {"a": "s3://mine/a", "c": "/opt/c"}


def test_conflicting_configurations_are_both_named_and_unused() -> None:
    found = configured([rule("a", "LowGPUUtilization", patience="10"), rule("b", "ProfilerReport", **{PATIENCE: "20"})])
    assert found.parameters == {PATIENCE: "10 and 20"}
    assert found.origin_of(PATIENCE) == "rule configuration a and b"
    assert told(found) == [
        "rule configuration b: LowGPUUtilization_patience is '20', expected the same as in rule configuration a, '10'"
    ]


def test_agreeing_configurations_have_no_fault() -> None:
    found = configured([rule("a", "LowGPUUtilization", patience="10"), rule("b", "ProfilerReport", **{PATIENCE: "10"})])
    assert (found.parameters, told(found)) == ({PATIENCE: "10"}, [])


def test_faults_beyond_the_shown_ones_are_counted() -> None:
    faults = tuple(SettingFault("doc", f"s{number}", "x", "y") for number in range(MOST_FAULTS + 3))
    told_of = fault_sentences(faults)
    assert len(told_of) == MOST_FAULTS + 1
    assert told_of[-1] == "and 3 more"
    assert fault_sentences(faults[:MOST_FAULTS])[-1] == f"doc: s{MOST_FAULTS - 1} is 'x', expected y"


def test_fault_with_hostile_names_is_one_short_line() -> None:
    told_of = str(SettingFault("doc", "a\nb\x1b[31m" + "n" * 900, "v\r\n" + "x" * 9_000, "y"))
    assert told_of.isprintable()
    assert len(told_of) < 400


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"stops": {"grace": "10m"}, "stop-grace": "5m"}, "stop-grace"),
        ({"stop-rules": "all", "stops": {"rules": []}}, "stop-rules"),
        ({"alerts": {"muted": ["BatchSize"]}, "muted": ["StepOutlier"]}, "muted"),
        ({"alerts": {"quiet_hours": ["22:00-23:00"]}, "quiet-hours": "01:00-02:00"}, "quiet-hours"),
    ],
)
def test_two_values_of_one_choice_cancel_each_other(content: dict[str, object], name: str) -> None:
    found = resolve("job", [document(content)], asked=True)
    assert [fault.setting for fault in found.faults] == [name]
    assert found.policy.alerts == AlertPolicy()
    assert found.policy.stops.may_stop("StepOutlier") is not name.startswith("stop")


def test_repeated_equal_value_of_a_choice_has_no_fault() -> None:
    read = read_document("file a", b'{"stops": {"grace": "5m"}, "stop-grace": "5m"}')
    assert (read.choices, read.faults) == ({"stop-grace": "5m"}, ())


@pytest.mark.parametrize(
    ("place", "is_one"),
    [
        ("s3://profiles", True),
        ("s3://profiles/", True),
        ("s3://profiles/a/b c/", True),
        ("s3://profiles/../ü", True),
        ("s3://profiles//", False),
        ("s3://profiles/a//b", False),
        ("s3://Profiles/a", False),
        ("S3://profiles/a", False),
        ("s3://profiles/a\n", False),
        ("", False),
    ],
)
def test_location_tag_that_can_hold_no_object_is_a_fault(place: str, is_one: bool) -> None:
    faults = tag_source({"trainguard:profile-path": place}).faults
    assert [fault.stops for fault in faults] == ([] if is_one else [True])


@pytest.mark.parametrize("second", [{"tensor_regex": "b"}, {}, {"tensor_regex": "a", "num_steps": "5"}])
def test_training_rule_configured_twice_has_no_usable_settings(
    second: dict[str, str],
) -> None:
    found = configured([], [rule("A", "LossNotDecreasing", tensor_regex="a"), rule("B", "lossnotdecreasing", **second)])
    assert found.choices == {"training-rules": "LossNotDecreasing"}
    (fault,) = found.faults
    assert "as in rule configuration A" in fault.expected
    assert "a job runs one configuration of a rule" in fault.expected
    assert {each.rule for each in parameter_faults(found.parameters)} == {"training/LossNotDecreasing"}
    assert parameter_faults(overridden(found.parameters, {fault.setting: "5"})) == []
    same = configured([], [rule(name, "LossNotDecreasing", tensor_regex="a") for name in "AB"])
    assert (same.faults, same.parameters) == ((), {"LossNotDecreasing_tensor_regex": "a"})
