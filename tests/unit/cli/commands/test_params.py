"""`trainguard params`: what a rule takes, said as the pages say it, and what a job runs with."""

import json
from typing import Any

import msgspec
import pytest

from tests.support.small_job import JOB
from tests.unit.cli.seen import Deployed, deployed, job
from tests.unit.test_docs_parameters import table
from trainguard.cli.main import app
from trainguard.cli.services.names import ALL_RULE_NAMES, EVERY_RULE
from trainguard.rules.family_rules import OTHER_FAMILIES
from trainguard.rules.parameter_help import SCAN_INTERVAL_HELP
from trainguard.rules.parameters import PARAMETERS_TYPES
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import SPECS, help_of

__all__ = ["deployed"]


def document(deployed: Deployed, *words: str) -> dict[str, Any]:
    result = deployed.run("params", *words, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("rule", ALL_RULE_NAMES)
def test_given_a_rules_spec_when_compared_with_its_parameters_then_every_one_has_help_and_no_other(rule: str) -> None:
    assert set(SPECS[rule].parameters) | {"scan_interval_us"} == set(PARAMETERS_TYPES[rule].__struct_fields__)
    defaults = msgspec.structs.asdict(PARAMETERS_TYPES[rule]())
    assert SPECS[rule].condition.format_map(defaults)


@pytest.mark.parametrize("rule", [rule for rule in ALL_RULE_NAMES if rule != PROFILER_REPORT])
def test_given_a_rules_page_when_its_units_are_read_then_they_are_the_specs(rule: str) -> None:
    on_page = {row[0].split(" ")[0].strip("`"): row[2] for row in table(f"rules/{rule}.md", "parameter")}
    assert {name: said.unit for name, said in SPECS[rule].parameters.items()} == {
        name: unit for name, unit in on_page.items() if name in SPECS[rule].parameters
    }
    assert set(on_page) <= {*SPECS[rule].parameters, "scan_interval_us"}


def test_given_the_page_on_all_rules_when_read_then_it_says_what_the_specs_say() -> None:
    rows = {row[0].split("]")[0].strip("["): (row[1], row[2]) for row in table("rules/README.md", "rule")}
    assert rows == {rule: (spec.looks_at, spec.fires_when) for rule, spec in SPECS.items()}


def test_given_no_rule_when_asked_for_then_all_are_listed_in_a_line_each_below_their_family(deployed: Deployed) -> None:
    lines = deployed.run("params").stdout.splitlines()
    training, kernels = OTHER_FAMILIES
    assert [line.split("\t")[0] for line in lines] == [
        *("Profiler rules", *ALL_RULE_NAMES),
        *("Training health", *training.names, *training.settings),
        *("Kernel profiles", *kernels.names),
    ]
    found = document(deployed)
    assert (found["schema_version"], found["job"], found["faults"]) == ("1", None, [])
    assert [entry["rule"] for entry in found["rules"]] == list(EVERY_RULE)
    assert [(entry["rule"], entry["family"]) for entry in found["groups"]] == [("training/ScalarNames", "training")]
    families = {entry["rule"]: entry["family"] for entry in found["rules"]}
    assert [families[rule] for rule in ("BatchSize", "training/AllZero", "kernels/GpuGap")] == [
        "profiler",
        "training",
        "kernels",
    ]


@pytest.mark.parametrize("word", ["ClassImbalance", "training/classimbalance", "classimb", "TRAINING/CLASSI"])
def test_given_a_rule_of_another_family_when_asked_for_then_any_of_its_names_finds_it(
    deployed: Deployed, word: str
) -> None:
    found = document(deployed, word)
    assert (found["rule"], found["family"]) == ("training/ClassImbalance", "training")


def test_given_a_rule_of_training_when_asked_for_then_its_parameters_come_with_one_set_of_defaults(
    deployed: Deployed,
) -> None:
    entries = {entry["name"]: entry for entry in document(deployed, "DeadRelu")["parameters"]}
    assert list(entries)[:2] == ["tensor_regex", "threshold_inactivity"]
    assert "ignored" not in entries
    assert entries["tensor_regex"] == {
        "name": "tensor_regex",
        "setting": "DeadRelu_tensor_regex",
        "accepts": "a text, or several separated by commas",
        "unit": "patterns",
        "documented": ".*relu_output",
        "shipped": ".*relu_output",
        "meaning": "regular expressions, separated by commas, that names of ReLU outputs match",
        "in_force": None,
    }
    text = deployed.shown("params", "DeadRelu", columns=160)
    assert "documented" in text
    assert "shipped" not in text


def test_given_a_parameter_that_must_be_given_when_its_rule_is_asked_for_then_it_has_no_default(
    deployed: Deployed,
) -> None:
    entries = {entry["name"]: entry for entry in document(deployed, "similar")["parameters"]}
    assert entries["other_trials"]["documented"] is None


def test_given_a_kernel_rule_when_asked_for_then_it_says_that_it_has_no_parameters(deployed: Deployed) -> None:
    assert "It has no parameters: its thresholds are fixed." in deployed.run("params", "gpugap").stdout
    assert [each["name"] for each in document(deployed, "kernels/GpuGap")["parameters"]] == ["scan_interval_us"]


def test_given_a_group_of_settings_when_asked_for_then_it_has_what_validate_accepts(deployed: Deployed) -> None:
    entries = document(deployed, "scalarnames")["parameters"]
    assert [entry["setting"] for entry in entries][:2] == ["ScalarNames_losses", "ScalarNames_metrics"]
    assert all(entry["meaning"] for entry in entries)
    tags = [f"trainguard:{entry['setting']}=1" for entry in entries]
    assert deployed.run("params", "validate", *tags).stdout == f"{len(entries)} settings, nothing wrong.\n"


def test_given_a_beginning_that_families_share_when_asked_for_then_the_profilers_rule_is_meant(
    deployed: Deployed,
) -> None:
    assert document(deployed, "load")["rule"] == "LoadBalancing"
    assert "perhaps you mean GPUMemoryIncrease or GPUHealth or kernels/" in deployed.run("params", "gpu").stderr


def test_given_a_job_when_asked_for_then_settings_of_every_family_are_in_force_with_their_faults(
    deployed: Deployed,
) -> None:
    settings = {
        "classimbalance_samples": "9",
        "NLPSequenceRatio_token_values": "0, 7",
        "NLPSequenceRatio_token_thresholds_percent": "50, 60.5",
        "AllZero_threshold": "x",
        "training/ScalarNames_losses": "objective",
    }
    sources = {"classimbalance_samples": "rule configuration mine"}
    deployed.add(job("families", rule_settings=settings, setting_sources=sources))
    found = document(deployed, "--job", "families")
    changed = {entry["rule"]: entry["changed"] for entry in [*found["rules"], *found["groups"]] if entry["changed"]}
    assert changed == {
        "training/ClassImbalance": ["samples"],
        "training/NLPSequenceRatio": ["token_values", "token_thresholds_percent"],
        "training/ScalarNames": ["losses"],
    }
    assert [entry["rule"] for entry in found["rules"] if entry["fault"]] == ["training/AllZero"]
    assert found["faults"] == []
    of_rule = {
        each["name"]: each["in_force"] for each in document(deployed, "classi", "--job", "families")["parameters"]
    }
    assert (of_rule["samples"]["value"], of_rule["samples"]["source"]) == (9, "rule configuration mine")
    of_rule = {each["name"]: each["in_force"] for each in document(deployed, "nlp", "--job", "families")["parameters"]}
    assert (of_rule["token_values"]["value"], of_rule["token_values"]["default"]) == ("0, 7", "0")
    assert "AllZero_threshold is 'x'" in document(deployed, "allzero", "--job", "families")["fault"]
    runs = {entry["rule"]: entry["runs"] for entry in found["rules"]}
    assert (runs["training/AllZero"], runs["kernels/GpuGap"], runs["BatchSize"]) == (True, True, True)
    assert [rule for rule, does in runs.items() if does and rule.startswith("training/")] == [
        "training/AllZero",
        "training/ClassImbalance",
        "training/NLPSequenceRatio",
    ]
    assert "It does not run on the job" in deployed.run("params", "unchanged", "--job", "families").stdout


def test_given_a_rule_when_asked_for_then_each_parameter_has_both_defaults_and_what_it_accepts(
    deployed: Deployed,
) -> None:
    found = document(deployed, "gpumem")
    assert found["rule"] == "GPUMemoryIncrease"
    entries = {entry["name"]: entry for entry in found["parameters"]}
    assert set(entries) == set(PARAMETERS_TYPES["GPUMemoryIncrease"].__struct_fields__)
    assert entries["increase"] == {
        "name": "increase",
        "setting": "GPUMemoryIncrease_increase",
        "accepts": "a number from 0 to 100",
        "unit": "percentage points",
        "documented": 10.0,
        "shipped": SPECS["GPUMemoryIncrease"].shipped_defaults["increase"],
        "meaning": "a larger rise fires",
        "in_force": None,
    }
    assert entries["window_s"]["accepts"] == "a number above 0 or None"
    assert (entries["window_s"]["documented"], entries["window_s"]["shipped"]) == (250.0, 5.0)


@pytest.mark.parametrize("defaults", ["documented", "shipped"])
def test_given_one_set_of_defaults_asked_for_when_shown_then_the_other_is_left_out(
    deployed: Deployed, defaults: str
) -> None:
    heading = deployed.shown("params", "batch", "--defaults", defaults, columns=140)
    assert defaults in heading
    assert ({"documented", "shipped"} - {defaults}).pop() not in heading
    value = {"documented": "50", "shipped": "500"}[defaults]
    line = next(line for line in heading.splitlines() if line.startswith("patience_s "))
    assert line.split()[1] == value


def test_given_a_job_when_asked_for_then_what_is_in_force_and_its_tag_are_told(deployed: Deployed) -> None:
    found = document(deployed, "LowGPU", "--job", JOB)
    in_force = {entry["name"]: entry["in_force"] for entry in found["parameters"]}
    assert (in_force["window"]["value"], in_force["window"]["changed"]) == (20, True)
    assert in_force["window"]["source"] == "tag trainguard:LowGPUUtilization_window"
    assert in_force["threshold_p95"]["source"] == "default"
    text = deployed.shown("params", "lowgpu", "--job", JOB, columns=120)
    line = next(line for line in text.splitlines() if line.startswith("window "))
    assert line.split()[1:3] == ["20", "tag"]


def test_given_a_job_and_no_rule_when_asked_for_then_the_changed_parameters_of_each_are_named(
    deployed: Deployed,
) -> None:
    found = document(deployed, "--job", JOB)
    changed = {entry["rule"]: entry["changed"] for entry in found["rules"] if entry["changed"]}
    assert changed == {
        "LowGPUUtilization": ["window", "patience"],
        "CPUBottleneck": ["patience"],
        "BatchSize": ["patience"],
        "LoadBalancing": ["patience"],
        "StepOutlier": ["n_outliers"],
    }


def test_given_settings_at_fault_when_asked_for_then_the_fault_is_told_in_place_of_values(deployed: Deployed) -> None:
    deployed.add(job("wrong", rule_settings={"BatchSize_window": "0", "NoRule_x": "1"}))
    found = document(deployed, "batch", "--job", "wrong")
    assert "parameter BatchSize_window is '0', expected a whole number from 1 to 2500 or None" in found["fault"]
    assert {entry["in_force"] for entry in found["parameters"]} == {None}
    assert "NoRule" in document(deployed, "--job", "wrong")["faults"][0]
    assert "NoRule" in deployed.run("params", "--job", "wrong").stdout


def test_given_a_job_that_is_not_there_when_asked_for_then_it_is_refused(deployed: Deployed) -> None:
    result = deployed.run("params", "batch", "--job", "smalljob")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "perhaps you mean small-job" in result.stderr


def test_given_the_word_show_or_none_when_asked_for_then_the_answer_is_the_same(deployed: Deployed) -> None:
    assert deployed.run("params", "show", "batch").stdout == deployed.run("params", "batch").stdout
    assert deployed.run("params", "show").stdout == deployed.run("params").stdout
    assert deployed.run("params", "--json", "batch").stdout == deployed.run("params", "batch", "--json").stdout


def test_given_help_asked_for_when_shown_then_the_group_and_the_command_have_theirs(deployed: Deployed) -> None:
    assert "Commands" in deployed.run("params", "--help").stdout
    assert "--defaults" in deployed.run("params", "show", "--help").stdout
    assert "params" in deployed.run("--help").stdout
    assert app.registered_groups


def test_given_a_parameter_of_all_rules_when_looked_up_then_it_has_the_same_words() -> None:
    assert {help_of(rule, "scan_interval_us") for rule in ALL_RULE_NAMES} == {SCAN_INTERVAL_HELP}
