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


def test_both_rule_packs_pass(production: Path) -> None:
    report = production / "validation-report.json"
    assert _packs(report) == {"AwsSolutions": "success", "Serverless": "success"}
    assert _findings(report) == set()


@pytest.mark.parametrize("name", OPEN)
def test_synthesis_without_acknowledgements_has_exactly_these(variants: Path, name: str) -> None:
    assert (variants / f"{name}.error").exists()
    listed = json.loads((variants / f"{name}.acknowledged.json").read_text(encoding="utf-8"))
    acknowledged = [(f"TrainGuard/{path}", rule) for path, rule, _ in listed]
    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) == _findings(variants / name / "validation-report.json")
    assert all(len(reason.split()) >= 8 for _, _, reason in listed)


def test_unacknowledged_warning_fails_and_is_named_alone(
    variants: Path,
) -> None:
    path, rule = WARNING
    error = (variants / "one-warning-open.error").read_text(encoding="utf-8")
    assert error.startswith("UnacknowledgedFindingError: ")
    assert error.splitlines()[1:] == [f"TrainGuard/{path}: {rule}"]


def test_warning_of_cdk_fails_and_is_named(variants: Path) -> None:
    error = (variants / "cdk-warns.error").read_text(encoding="utf-8")
    assert error.startswith("UnacknowledgedFindingError: ")
    assert error.splitlines()[1:] == ["TrainGuard: Construct Annotations::Annotation::Cdk:Warns"]
