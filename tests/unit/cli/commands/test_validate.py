"""`trainguard params validate`: all that is wrong with settings, before a job starts, and without a deployment."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from trainguard.cli.main import app
from trainguard.config import rule_configs, tags

LOW_GPU = "trainguard:LowGPUUtilization_threshold_p95"
REPO = Path(__file__).parents[4]


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["params", "validate", *words])


def document(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "--json").stdout)
    return found


def written(folder: Path, content: object) -> str:
    file = folder / "settings.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(file)


def test_good_tags_are_counted_and_pass() -> None:
    result = run(f"{LOW_GPU}=60", "trainguard:stop-grace=10m", "trainguard:stop-on-fire=allowed")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "2 settings, nothing wrong.\n", "")


def test_all_faults_are_reported_at_once() -> None:
    result = run(f"{LOW_GPU}=160", "trainguard:LowGPUUtilization_nonsense=1", "trainguard:muted=Nobody", "team=vision")
    assert result.exit_code == 1
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [line[:3] for line in lines] == [
        ["command line", "tag", "team=vision"],
        ["tag trainguard:muted", "muted", "Nobody"],
        ["tag trainguard:LowGPUUtilization_nonsense", "LowGPUUtilization_nonsense", "1"],
        [f"tag {LOW_GPU}", LOW_GPU.removeprefix("trainguard:"), "160"],
    ]
    assert lines[3][3] == "a number from 0 to 100"


def test_json_faults_have_all_their_parts() -> None:
    assert document(f"{LOW_GPU}=160") == {
        "schema_version": "1",
        "valid": False,
        "settings": 1,
        "faults": [
            {
                "source": f"tag {LOW_GPU}",
                "setting": LOW_GPU.removeprefix("trainguard:"),
                "value": "160",
                "expected": "a number from 0 to 100",
                "stops": False,
            }
        ],
        "elsewhere": {},
    }


@pytest.mark.parametrize(
    ("tag", "setting", "expected"),
    [
        (f"{LOW_GPU}=" + "6" * 257, "value", "at most 256 "),
        ("trainguard:muted=StepOutlier,BatchSize", "value", "at most 256 letters, digits, spaces and"),
        ("Trainguard:muted=all", "key", "trainguard: in lower case"),
        ("trainguard:stop-on-fire=Allowed", "stop-on-fire", "allowed, to the letter"),
        ("trainguard:settings=/elsewhere/x", "settings", "below /TrainGuard/settings/"),
    ],
)
def test_tag_without_its_apparent_effect_is_reported(tag: str, setting: str, expected: str) -> None:
    faults = document(tag)["faults"]
    assert any(fault["setting"] == setting and expected in fault["expected"] for fault in faults)


def test_parameter_name_must_lie_below_the_path_of_the_stack() -> None:
    words = ("trainguard:settings=/Mine/settings/llm", "--stack", "Mine")
    assert run(*words).exit_code == 0
    assert run(words[0]).exit_code == 1


def test_too_many_tags_and_a_duplicate_are_both_reported() -> None:
    many = [f"trainguard:BatchSize_patience{number}=1" for number in range(50)]
    faults = document(*many, f"{LOW_GPU}=60", f"{LOW_GPU}=60")["faults"]
    assert {"number of tags", "key"} <= {fault["setting"] for fault in faults}


def test_settings_of_every_kind_in_a_document_are_checked(tmp_path: Path) -> None:
    good = {"LowGPUUtilization": {"threshold_p95": 60}, "evaluate": "all", "stops": {"grace": "1h"}}
    assert document(written(tmp_path, good))["settings"] == 3
    bad = {"LowGPUUtilization": {"threshold_p95": "x"}, "evaluate": "sometimes", "stops": {"grease": "1h"}}
    found = document(written(tmp_path, bad))
    assert [fault["setting"] for fault in found["faults"]] == [
        "stops.grease",
        "evaluate",
        "LowGPUUtilization_threshold_p95",
    ]


def test_fault_in_a_document_value_overridden_by_tag_is_reported(
    tmp_path: Path,
) -> None:
    assert len(document(written(tmp_path, {"LowGPUUtilization_threshold_p95": 500}), f"{LOW_GPU}=60")["faults"]) == 1


def test_document_too_large_for_a_parameter_is_reported(tmp_path: Path) -> None:
    padded = json.dumps({"BatchSize_patience": 7}) + " " * 4_096
    (fault,) = document(written(tmp_path, padded))["faults"]
    assert fault["setting"] == "size in bytes"


@pytest.mark.parametrize("content", ["", "{", "7", '"x"'])
def test_text_that_is_no_document_is_reported_as_such(tmp_path: Path, content: str) -> None:
    (fault,) = document(written(tmp_path, content))["faults"]
    assert fault["setting"] == ""
    assert fault["expected"].startswith("a JSON object such as")


def test_tags_from_launch_code_are_valid(tmp_path: Path) -> None:
    made = tags(rule_configs.LowGPUUtilization(threshold_p95=60), stop_on_fire=True, framework_metrics=True)
    assert document(written(tmp_path, made)) | {"faults": None} == {
        "schema_version": "1",
        "valid": True,
        "settings": 1,
        "faults": None,
        "elsewhere": {},
    }


def test_rule_configurations_of_a_request_are_checked(tmp_path: Path) -> None:
    request = {
        "TrainingJobName": "mine",
        "Tags": [{"Key": "team", "Value": "vision"}],
        "ProfilerRuleConfigurations": [
            {
                "RuleConfigurationName": "low",
                "RuleEvaluatorImage": "image",
                "RuleParameters": {"rule_to_invoke": "LowGPUUtilization", "threshold_p95": "160"},
            },
            {"RuleConfigurationName": "own", "RuleEvaluatorImage": "mine"},
        ],
        "DebugRuleConfigurations": [{"RuleConfigurationName": "Loss", "RuleEvaluatorImage": "image"}],
    }
    found = document(written(tmp_path, request))
    assert [fault["source"] for fault in found["faults"]] == ["rule configuration low"]
    assert set(found["elsewhere"]) == {"own", "Loss"}
    assert (
        "Rule configuration Loss is not evaluated: it names no rule_to_invoke" in run(written(tmp_path, request)).stdout
    )


@pytest.mark.parametrize("content", [[{"Key": 7}], [7], {"Tags": "x"}, {"ProfilerRuleConfigurations": [{}]}])
def test_invalid_request_gives_its_reason_in_one_sentence(tmp_path: Path, content: object) -> None:
    result = run(written(tmp_path, content))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "as CreateTrainingJob has it" in result.stderr


def test_missing_file_cannot_be_validated(tmp_path: Path) -> None:
    result = run(str(tmp_path / "nothing.json"))
    assert result.exit_code == 2
    assert "nothing.json" in result.stderr


def test_hostile_text_cannot_control_the_terminal(tmp_path: Path) -> None:
    result = run(written(tmp_path, {"\x1b[31mBatchSize_x\u2028": "\x07", "alerts": {"\x1b]0;x\x07": "\r\n"}}))
    assert result.exit_code == 1
    assert not {"\x1b", "\x07", "\r", "\u2028"} & set(result.stdout)


def test_document_shown_in_the_documentation_is_valid(tmp_path: Path) -> None:
    page = (REPO / "docs" / "configuration.md").read_text(encoding="utf-8")
    example = page.partition("```json\n")[2].partition("```")[0]
    assert document(written(tmp_path, example))["faults"] == []
    shown = page.partition("params validate llm.json ")[2].partition("\n")[0]
    assert len(document(shown)["faults"]) == 1


def test_request_with_stops_is_valid_if_a_tag_names_the_location(tmp_path: Path) -> None:
    tags = [
        {"Key": "trainguard:stop-on-fire", "Value": "allowed"},
        {"Key": "trainguard:profile-path", "Value": "s3://profiles/runs"},
    ]
    assert document(written(tmp_path, {"TrainingJobName": "job", "Tags": tags}))["faults"] == []


@pytest.mark.parametrize(
    "place",
    ["", "s3://", "profiles/runs", "https://profiles", "s3://P", "s3://a-", "s3://our_profiles", "s3://our@runs"],
)
def test_invalid_profile_location_is_reported(tmp_path: Path, place: str) -> None:
    tags = [{"Key": "trainguard:profile-path", "Value": place}]
    (fault,) = document(written(tmp_path, {"Tags": tags}))["faults"]
    assert (fault["setting"], fault["value"]) == ("profile-path", place)
    assert "s3://<bucket>/<prefix>" in fault["expected"]


@pytest.mark.parametrize(("profiler", "right"), [({}, False), ({"S3OutputPath": "s3://profiles"}, True), (None, False)])
@pytest.mark.parametrize("value", ["allowed", "no"])
def test_request_with_stops_but_no_profile_location_is_reported(
    tmp_path: Path, profiler: dict[str, str] | None, right: bool, value: str
) -> None:
    request: dict[str, object] = {
        "TrainingJobName": "job",
        "Tags": [{"Key": "trainguard:stop-on-fire", "Value": value}],
    }
    if profiler is not None:
        request["ProfilerConfig"] = profiler
    told = [fault["setting"] for fault in document(written(tmp_path, request))["faults"]]
    assert told == ([] if right or value == "no" else ["S3OutputPath"])
