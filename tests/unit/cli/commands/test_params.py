"""`trainguard params`: what a rule takes, said as the pages say it, and what a job runs with."""

import json
from typing import Any

import msgspec
import pytest

from tests.support.small_job import JOB
from tests.unit.cli.seen import Deployed, deployed, job
from trainguard.cli.main import app
from trainguard.cli.services.names import ALL_RULE_NAMES, EVERY_RULE
from trainguard.rules.family_rules import OTHER_FAMILIES
from trainguard.rules.parameters import PARAMETERS_TYPES
from trainguard.rules.registry import SPECS, help_of
from trainguard.rules.spec import SCAN_INTERVAL_HELP

__all__ = ["deployed"]


def document(deployed: Deployed, *words: str) -> dict[str, Any]:
    result = deployed.run("params", *words, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("rule", ALL_RULE_NAMES)
def test_help_texts_match_the_parameters_of_the_rule_spec(rule: str) -> None:
    assert set(SPECS[rule].parameters) | {"scan_interval_us"} == set(PARAMETERS_TYPES[rule].__struct_fields__)
    defaults = msgspec.structs.asdict(PARAMETERS_TYPES[rule]())
    assert SPECS[rule].condition.format_map(defaults)


def test_all_rules_are_listed_by_family_without_an_argument(deployed: Deployed) -> None:
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
def test_rule_of_another_family_is_found_by_any_of_its_names(deployed: Deployed, word: str) -> None:
    found = document(deployed, word)
    assert (found["rule"], found["family"]) == ("training/ClassImbalance", "training")


def test_training_rule_has_one_set_of_defaults(
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


def test_required_parameter_has_no_default(
    deployed: Deployed,
) -> None:
    entries = {entry["name"]: entry for entry in document(deployed, "similar")["parameters"]}
    assert entries["other_trials"]["documented"] is None


def test_kernel_rule_has_no_parameters(deployed: Deployed) -> None:
    assert "It has no parameters: its thresholds are fixed." in deployed.run("params", "gpugap").stdout
    assert [each["name"] for each in document(deployed, "kernels/GpuGap")["parameters"]] == ["scan_interval_us"]


def test_group_of_settings_has_what_validate_accepts(deployed: Deployed) -> None:
    entries = document(deployed, "scalarnames")["parameters"]
    assert [entry["setting"] for entry in entries][:2] == ["ScalarNames_losses", "ScalarNames_metrics"]
    assert all(entry["meaning"] for entry in entries)
    tags = [f"trainguard:{entry['setting']}=1" for entry in entries]
    assert deployed.run("params", "validate", *tags).stdout == f"{len(entries)} settings, nothing wrong.\n"


def test_ambiguous_prefix_means_the_profiler_rule(
    deployed: Deployed,
) -> None:
    assert document(deployed, "load")["rule"] == "LoadBalancing"
    assert "perhaps you mean GPUMemoryIncrease or GPUHealth or kernels/" in deployed.run("params", "gpu").stderr


def test_job_shows_effective_settings_of_all_families_and_faults(
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


def test_every_parameter_has_both_defaults_and_accepted_values(
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
def test_selected_defaults_leave_out_the_other_set(deployed: Deployed, defaults: str) -> None:
    heading = deployed.shown("params", "batch", "--defaults", defaults, columns=140)
    assert defaults in heading
    assert ({"documented", "shipped"} - {defaults}).pop() not in heading
    value = {"documented": "50", "shipped": "500"}[defaults]
    line = next(line for line in heading.splitlines() if line.startswith("patience_s "))
    assert line.split()[1] == value


def test_job_shows_values_in_force_and_their_tags(deployed: Deployed) -> None:
    found = document(deployed, "LowGPU", "--job", JOB)
    in_force = {entry["name"]: entry["in_force"] for entry in found["parameters"]}
    assert (in_force["window"]["value"], in_force["window"]["changed"]) == (20, True)
    assert in_force["window"]["source"] == "tag trainguard:LowGPUUtilization_window"
    assert in_force["threshold_p95"]["source"] == "default"
    text = deployed.shown("params", "lowgpu", "--job", JOB, columns=120)
    line = next(line for line in text.splitlines() if line.startswith("window "))
    assert line.split()[1:3] == ["20", "tag"]


def test_job_without_a_rule_lists_changed_parameters_per_rule(
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


def test_faulty_settings_show_the_fault_in_place_of_values(deployed: Deployed) -> None:
    deployed.add(job("wrong", rule_settings={"BatchSize_window": "0", "NoRule_x": "1"}))
    found = document(deployed, "batch", "--job", "wrong")
    assert "parameter BatchSize_window is '0', expected a whole number from 1 to 2500 or None" in found["fault"]
    assert {entry["in_force"] for entry in found["parameters"]} == {None}
    assert "NoRule" in document(deployed, "--job", "wrong")["faults"][0]
    assert "NoRule" in deployed.run("params", "--job", "wrong").stdout


def test_unknown_job_is_refused(deployed: Deployed) -> None:
    result = deployed.run("params", "batch", "--job", "smalljob")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "perhaps you mean small-job" in result.stderr


def test_show_subcommand_is_optional(deployed: Deployed) -> None:
    assert deployed.run("params", "show", "batch").stdout == deployed.run("params", "batch").stdout
    assert deployed.run("params", "show").stdout == deployed.run("params").stdout
    assert deployed.run("params", "--json", "batch").stdout == deployed.run("params", "batch", "--json").stdout


def test_group_and_command_each_have_their_help(deployed: Deployed) -> None:
    assert "Commands" in deployed.run("params", "--help").stdout
    assert "--defaults" in deployed.run("params", "show", "--help").stdout
    assert "params" in deployed.run("--help").stdout
    assert app.registered_groups


def test_parameter_common_to_all_rules_has_the_same_words() -> None:
    assert {help_of(rule, "scan_interval_us") for rule in ALL_RULE_NAMES} == {SCAN_INTERVAL_HELP}
