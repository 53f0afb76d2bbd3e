"""cdk-nag and CDK itself: what stands is acknowledged at its construct, and no acknowledgement outlives its finding."""

import json
from pathlib import Path

import pytest

from tests.infra.synthesis import read_json
from tests.infra.variants import OPEN, WARNING


def _packs(report: Path) -> dict[str, str]:
    packs = read_json(report)["pluginReports"]
    assert isinstance(packs, list)
    return {pack["pluginName"]: pack["conclusion"] for pack in packs}


def _findings(report: Path) -> set[tuple[str, str]]:
    packs = read_json(report)["pluginReports"]
    assert isinstance(packs, list)
    return {
        (construct["constructPath"], f"{pack['pluginName']}::{violation['ruleName']}")
        for pack in packs
        for violation in pack["violations"]
        for construct in violation["violatingConstructs"]
    }


def test_given_the_stack_when_synthesised_then_both_rule_packs_pass(production: Path) -> None:
    report = production / "validation-report.json"
    assert _packs(report) == {"AwsSolutions": "success", "Serverless": "success"}
    assert _findings(report) == set()


@pytest.mark.parametrize("name", OPEN)
def test_given_no_acknowledgement_when_synthesised_then_it_fails_with_exactly_the_findings_that_are_acknowledged(
    variants: Path, name: str
) -> None:
    assert (variants / f"{name}.error").exists()
    listed = json.loads((variants / f"{name}.acknowledged.json").read_text(encoding="utf-8"))
    acknowledged = [(f"TrainGuard/{path}", rule) for path, rule, _ in listed]
    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) == _findings(variants / name / "validation-report.json")
    assert all(len(reason.split()) >= 8 for _, _, reason in listed)


def test_given_one_warning_without_acknowledgement_when_synthesised_then_it_fails_and_names_that_finding_alone(
    variants: Path,
) -> None:
    path, rule = WARNING
    error = (variants / "one-warning-open.error").read_text(encoding="utf-8")
    assert error.startswith("UnacknowledgedFindingError: ")
    assert error.splitlines()[1:] == [f"TrainGuard/{path}: {rule}"]


def test_given_a_warning_of_cdk_itself_when_synthesised_then_it_fails_and_names_that_warning(variants: Path) -> None:
    error = (variants / "cdk-warns.error").read_text(encoding="utf-8")
    assert error.startswith("UnacknowledgedFindingError: ")
    assert error.splitlines()[1:] == ["TrainGuard: Construct Annotations::Annotation::Cdk:Warns"]
