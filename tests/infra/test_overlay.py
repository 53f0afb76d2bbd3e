"""The template for an emulator differs from the one for AWS in the declared places and in no other."""

from collections.abc import Iterator
from typing import Any

from infra import overlay
from infra.release.versions import with_steady_names
from tests.infra.template import Template

FUNCTIONS = (
    "ActionsDecideStopFunction",
    "ActionsRecordFireFunction",
    "ActionsSendAlertFunction",
    "ActionsStopJobFunction",
    "CanaryFunction",
    "CapturesDigestTraceFunction",
    "CapturesJoinCaptureFunction",
    "CapturesPlanCaptureFunction",
    "EvaluationEvaluateObjectsFunction",
    "EvaluationReconcileJobFunction",
    "EvaluationSchedulerFunction",
    "LifecycleJobLifecycleFunction",
    "ReportsBuildReportFunction",
    "ReportsDigestProfileFunction",
    "ReportsPlanReportFunction",
)
# Tables of the emulator are deleted with their stack.
PROTECTION = [
    f"Storage{table}.DeletionProtectionEnabled" for table in ("Bookkeeping", "Jobs", "NodeState", "RuleState")
]
BATCH_WINDOW = "EvaluationDoorbellsToEvaluateObjects.MaximumBatchingWindowInSeconds"
RUNTIME = {f"{function}.Runtime" for function in FUNCTIONS} | {"RulesLayer.CompatibleRuntimes.0"}
ARCHITECTURE = {f"{function}.Architectures.0" for function in FUNCTIONS} | {"RulesLayer.CompatibleArchitectures.0"}
DELIVERY_LOG = "ActionsAlerts.DeliveryStatusLogging."
LAYER_ASSET = "RulesLayer.Content.S3Key"


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each leaf of nested lists and objects with its path."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in items:
            yield from leaves(part, f"{path}.{name}")
    else:
        yield path, value


def flat(template: Template) -> dict[str, Any]:
    document = {key: part for key, part in template.document.items() if key != "Resources"}
    found = dict(leaves(document, "template"))
    for resource in template.resources:
        found |= dict(leaves(resource.properties, resource.name))
        found[f"{resource.name}:type"] = (resource.type, resource.deletion_policy)
    return found


def test_templates_differ_only_in_the_overlay(template: Template, emulator_template: Template) -> None:
    here = overlay.emulator()
    expected = {BATCH_WINDOW, LAYER_ASSET, *PROTECTION}
    expected |= RUNTIME if here.python_version != overlay.AWS.python_version else set()
    expected |= ARCHITECTURE if here.architecture != overlay.AWS.architecture else set()
    production, emulated = flat(template), flat(emulator_template)
    logged = {path for path in production if path.startswith(DELIVERY_LOG)}
    assert logged
    assert set(production) - logged == set(emulated)
    assert {path for path in emulated if production[path] != emulated[path]} == expected


def test_logical_ids_are_the_same_in_both_templates(template: Template, emulator_template: Template) -> None:
    production, emulated = (with_steady_names(each.document)["Resources"] for each in (template, emulator_template))
    assert list(production) == list(emulated)


def test_emulator_collects_batches_for_a_second(emulator_template: Template) -> None:
    mapping = emulator_template.one("AWS::Lambda::EventSourceMapping", "EvaluationDoorbellsToEvaluateObjects")
    assert mapping["MaximumBatchingWindowInSeconds"] == 1
