"""The CDK application: one stack, made without any call to AWS."""

import json
from collections.abc import Mapping
from pathlib import Path

from aws_cdk import App, Validations
from aws_cdk.cx_api import CloudAssembly
from cdk_nag import AwsSolutionsChecks, ServerlessChecks

from infra import overlay
from infra.config import DeploymentConfig
from infra.context import feature_flags
from infra.stack import TrainGuardStack

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


def synthesise(outdir: str | None = None, context: Mapping[str, object] | None = None) -> CloudAssembly:
    """Write the cloud assembly and return it; raises DeploymentConfigError, UnacknowledgedFindingError."""
    app = new_app(outdir, context)
    config = DeploymentConfig.from_context(app.node.get_all_context())
    TrainGuardStack(app, config.stack_name, config=config, overlay=overlay.chosen(config))
    return write(app, judged=not config.emulator)


def new_app(outdir: str | None, context: Mapping[str, object] | None = None) -> App:
    """Return an application without a stack, with the feature flags and the context values given."""
    return App(outdir=outdir, context={**feature_flags(), **(context or {})}, analytics_reporting=False)


def write(app: App, *, judged: bool) -> CloudAssembly:
    """Write and return the cloud assembly; if ``judged``, raises UnacknowledgedFindingError for findings."""
    if judged:
        Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), ServerlessChecks(app, verbose=True))
    assembly = app.synth()
    if judged:
        refuse_findings(Path(assembly.directory))
    return assembly


if __name__ == "__main__":
    synthesise()
