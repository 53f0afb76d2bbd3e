"""Parameters of the rules over steps as users give them: texts, in files, with what other services add."""

from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

import pytest

from tests.support.steps import RULES, Run, observed, parameters
from trainguard.core.errors import RuleConfigError
from trainguard.formats.tensors.scalars.names import MEANINGS
from trainguard.kernels import rules as kernel_rules
from trainguard.kernels.rules.rule import KernelRule
from trainguard.rules import training
from trainguard.rules.family_rules import OTHER_FAMILIES, bare
from trainguard.rules.parameters import (
    canonical_rule,
    overridden,
    parameter_faults,
    parameters_of,
    read_parameter_file,
    resolve_parameters,
)
from trainguard.rules.training.exploding_tensor import ExplodingTensor, ExplodingTensorParameters
from trainguard.rules.training.selection import SCALAR_NAMES_SPEC, ScalarNamesParameters
from trainguard.rules.training.step_rule import StepRule
from trainguard.rules.training.tensors.weights import VanishingGradientParameters


def test_lists_are_trimmed_and_words_are_case_insensitive() -> None:
    read = parameters("ExplodingTensor", collection_names=" gradients , weights,", tensor_regex="None", only_nan="TRUE")
    assert (read.collection_names, read.tensor_regex, read.only_nan) == (("gradients", "weights"), None, True)
    sequence = parameters("NLPSequenceRatio", token_values="0, 3", token_thresholds_percent="50,20.5")
    assert (sequence.token_values, sequence.token_thresholds_percent) == ((0.0, 3.0), (50.0, 20.5))
    assert parameters("PoorWeightInitialization", steps="10.0").steps == 10
    assert [parameters("LossNotDecreasing", mode=mode).mode for mode in ("EVAL", "eval", "none")] == [
        "EVAL",
        "EVAL",
        None,
    ]


@pytest.mark.parametrize(
    "name", ["VanishingGradient_threshold", "vanishinggradient_THRESHOLD", "training/VanishingGradient_threshold"]
)
def test_setting_in_any_case_is_that_of_the_rule(name: str) -> None:
    read = parameters_of("training/VanishingGradient", VanishingGradientParameters, {name: "1e-3"})
    assert isinstance(read, VanishingGradientParameters)
    assert read.threshold == 1e-3
    assert resolve_parameters({name: "1e-3"})[1] == {}
    assert parameter_faults({name: "1e-3"}) == []
    assert canonical_rule(name.rpartition("_")[0]) == "training/VanishingGradient"


@pytest.mark.parametrize(
    ("rule", "given", "words"),
    [
        (
            "VanishingGradient",
            {"threshold": "small"},
            "VanishingGradient_threshold is 'small', expected a number from 0",
        ),
        ("VanishingGradient", {"threshold": "nan"}, "expected a number from 0"),
        ("ExplodingTensor", {"only_nan": "maybe"}, "ExplodingTensor_only_nan is 'maybe', expected true or false"),
        (
            "ExplodingTensor",
            {"tensor_regex": "fine,(open"},
            r"ExplodingTensor_tensor_regex is '\(open', expected a regular",
        ),
        ("ExplodingTensor", {"tensor_regex": "fine,((?:x+)+)y"}, r"expected a regular expression \(repeats a group"),
        ("ClassImbalance", {"labels_regex": "(a|b|ab)*c"}, "expected a regular expression"),
        ("DeadRelu", {"tensor_regex": "*"}, "DeadRelu_tensor_regex is '\\*', expected a regular expression"),
        ("CheckInputImages", {"regex": "["}, "CheckInputImages_regex is '\\[', expected a regular expression"),
        ("ClassImbalance", {"labels_regex": ")"}, "ClassImbalance_labels_regex"),
        ("LossNotDecreasing", {"mode": "VALIDATE"}, "EVAL or GLOBAL or PREDICT or TRAIN or None"),
        ("LossNotDecreasing", {"num_steps": "0"}, "a whole number above 0"),
        ("UnchangedTensor", {}, "UnchangedTensor_collection_names is None, expected collections, or patterns"),
        ("TensorVariance", {"tensor_regex": " , "}, "TensorVariance_collection_names is None"),
        ("UnchangedTensor", {"tensor_regex": ".", "num_steps": 1}, "a whole number from 2"),
        ("SimilarAcrossRuns", {}, "SimilarAcrossRuns_other_trials is None, expected one other run"),
        (
            "SimilarAcrossRuns",
            {"other_trial": "a,b"},
            "SimilarAcrossRuns_other_trial is 'a, b', expected one other run",
        ),
        (
            "NLPSequenceRatio",
            {"token_values": "0,1"},
            "token_thresholds_percent is '50', expected one threshold for each",
        ),
        ("NLPSequenceRatio", {"token_values": "0,x"}, "a number, or several separated by commas"),
        ("Confusion", {"category_no": "1"}, "a whole number from 2 or None"),
        ("VanishingGradient", {"start_step": "-1"}, "VanishingGradient_start_step"),
    ],
)
def test_unusable_value_names_field_value_and_valid_ones(rule: str, given: dict[str, str], words: str) -> None:
    with pytest.raises(RuleConfigError, match=words):
        parameters(rule, **given)


@pytest.mark.parametrize("rule", RULES)
def test_additions_of_the_managed_service_are_silently_accepted(rule: str) -> None:
    required = {"collection_names": "x"} if rule in ("AllZero", "TensorVariance", "UnchangedTensor") else {}
    given = {
        "base_trial": "s3://bucket/run",
        "other_trial_0": "s3://bucket/other",
        "action_json": '[{"name": "stoptraining"}]',
        "rule_to_invoke": rule,
        "source_s3_uri": "s3://bucket/rule.py",
        "scan_interval_us": 60_000_000,
        "start_step": 1,
        "end_step": "None",
    }
    read = parameters(rule, **given, **required)
    assert read.ignored == ()
    assert (read.start_step, read.end_step) == (1, None)
    assert "ignored" not in read.in_force()


def test_unknown_name_is_noted_as_unused_and_the_rule_runs() -> None:
    run = Run()
    run.add(0, {"loss": [1.0]})
    result = observed("ExplodingTensor", run, only_nans="True", ignored="x").result
    assert result.reason.endswith(
        "Parameters ExplodingTensor_ignored, ExplodingTensor_only_nans are unknown and not used."
    )
    assert observed("ExplodingTensor", Run(), threshold=1).result.reason.endswith(
        "ExplodingTensor_threshold is unknown and not used."
    )


def test_given_a_file_when_read_then_rules_of_families_are_known() -> None:
    body = (
        b'{"vanishinggradient": {"threshold": 1e-3}, "ExplodingTensor_only_nan": true, "Overfit": {"end_step": null}}'
    )
    settings = read_parameter_file("params.json", body)
    assert resolve_parameters(settings)[1] == {}
    read = parameters_of("training/VanishingGradient", VanishingGradientParameters, settings)
    assert isinstance(read, VanishingGradientParameters)
    assert read.threshold == 1e-3
    exploding = parameters_of(ExplodingTensor.name, ExplodingTensorParameters, settings)
    assert isinstance(exploding, ExplodingTensorParameters)
    assert exploding.only_nan


def test_every_fault_of_family_rules_is_found_by_validation() -> None:
    faults = parameter_faults(
        {"VanishingGradient_threshold": "x", "AllZero_threshold": "200", "Confusion_min_diag": "0.5"}
    )
    assert [(fault.rule, fault.field) for fault in faults] == [
        ("training/VanishingGradient", "VanishingGradient_threshold"),
        ("training/AllZero", "AllZero_threshold"),
    ]


def test_parameter_with_two_different_values_is_a_rule_fault() -> None:
    faults = resolve_parameters({"VanishingGradient_threshold": "1", "vanishinggradient_threshold": "2"})[1]
    assert list(faults) == ["training/VanishingGradient"]
    assert overridden({"vanishinggradient_threshold": "2"}, {"VanishingGradient_threshold": "1"}) == {
        "VanishingGradient_threshold": "1"
    }


def test_classes_have_the_names_of_their_family_rules() -> None:
    for family in OTHER_FAMILIES:
        assert tuple(family.parameters_types()) == (*family.names, *family.settings)
        assert tuple(family.specs()) == (*family.names, *family.settings)
        assert len({bare(rule) for rule in family.names}) == len(family.names)


def _defined(base: type, package: ModuleType) -> set[str]:
    """Return the names of all rules that the modules of a package define, whether its family names them or not."""
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    found, left = set(), [base]
    while left:
        left += (each := left.pop()).__subclasses__()
        if each.__module__.startswith(package.__name__) and "name" in vars(each):
            found.add(str(vars(each)["name"]))
    return found


@pytest.mark.parametrize(("base", "package"), [(StepRule, training), (KernelRule, kernel_rules)])
def test_each_defined_rule_is_named_by_its_family(base: type, package: ModuleType) -> None:
    named = {name for family in OTHER_FAMILIES if package.__name__ in family.module for name in family.names}
    assert _defined(base, package) == named


def test_each_meaning_of_a_name_has_a_setting() -> None:
    given = {f"ScalarNames_{meaning}": "x" for meaning in MEANINGS}
    parameters = parameters_of("training/ScalarNames", ScalarNamesParameters, given)
    assert isinstance(parameters, ScalarNamesParameters)
    assert parameters.replaced() == dict.fromkeys(MEANINGS, "x")
    assert set(SCALAR_NAMES_SPEC.parameters) == set(MEANINGS)
    assert not parameter_faults(given)
    assert [fault.field for fault in parameter_faults({"ScalarNames_losses": "("})] == ["ScalarNames_losses"]
