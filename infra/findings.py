"""Refuses an assembly with findings that are not acknowledged; CDK by itself lets warnings pass."""

import json
from pathlib import Path

REPORT = "validation-report.json"


class UnacknowledgedFindingError(Exception):
    """Findings that are neither repaired nor acknowledged."""

    def __init__(self, findings: list[str]) -> None:
        self.findings = findings
        super().__init__("repair these findings, or acknowledge each with its reason:\n" + "\n".join(findings))


def refuse_findings(assembly: Path) -> None:
    """Raise UnacknowledgedFindingError when the report in the folder ``assembly`` lists any finding."""
    report = json.loads((assembly / REPORT).read_text(encoding="utf-8"))
    findings = [
        f"{construct['constructPath']}: {pack['pluginName']}::{violation['ruleName']}"
        for pack in report["pluginReports"]
        for violation in pack["violations"]
        for construct in violation["violatingConstructs"]
    ]
    if findings:
        raise UnacknowledgedFindingError(findings)
