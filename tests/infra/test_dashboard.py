"""The dashboard and the saved queries: every name in them is one that the code emits, or that AWS does."""

import ast
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infra.constructs.operating_cost import unit_prices
from infra.constructs.queries import QUERIES
from tests.infra.synthesis import ROOT
from tests.infra.template import Template
from trainguard.aws.fault_points import RULE_DIMENSION, SEVERITY_DIMENSION
from trainguard.aws.observability import BY_RULE, BY_SEVERITY, ROUTINE, metric_name
from trainguard.engine.streams.session import DELIVERY_COUNTERS
from trainguard.running_costs.unit_prices import packaged_unit_prices

# Names of CloudWatch metrics of the services, as their documentation lists them.
AWS_METRICS = {
    "AWS/Lambda": {"Duration", "Errors", "Throttles", "ConcurrentExecutions", "Invocations", "AsyncEventsDropped"},
    "AWS/SQS": {
        "ApproximateNumberOfMessagesVisible",
        "ApproximateAgeOfOldestMessage",
        "NumberOfMessagesSent",
        "NumberOfEmptyReceives",
    },
    "AWS/SNS": {
        "NumberOfMessagesPublished",
        "NumberOfNotificationsDelivered",
        "NumberOfNotificationsFailed",
        "NumberOfNotificationsFilteredOut",
    },
    "AWS/States": {
        "ExecutionsStarted",
        "ExecutionsFailed",
        "ExecutionsTimedOut",
        "ExecutionsAborted",
        "ExecutionTime",
    },
    "AWS/DynamoDB": {
        "ConsumedWriteCapacityUnits",
        "ConsumedReadCapacityUnits",
        "WriteThrottleEvents",
        "ReadThrottleEvents",
    },
}

SEARCHED = re.compile(r"SEARCH\('\{\"TrainGuard\",service,(\w+)\} MetricName=\"(\w+)\"', 'Sum', 300\)")
NAMED = re.compile(r'message (?:= "([^"]+)"|in \[([^\]]+)\])')

# Functions that a setting adds to the stack.
OFF_BY_DEFAULT = {"verdict", "weekly_digest", "poll_source", "send_statements", "open_ops_items"}
CENTRAL = {"keep_statement", "draw_fleet", "admit_stop"}


def literals(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an argument may be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)


@cache
def counted() -> frozenset[str]:
    """Return what the code counts, measures and tallies, by its own name."""
    found = {"gaps", *DELIVERY_COUNTERS, *ROUTINE, *BY_RULE.values(), *BY_SEVERITY.values()}
    paths = [*(ROOT / "rules_layer" / "trainguard").rglob("*.py"), *(ROOT / "lambdas").rglob("*.py")]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                if node.func.attr in {"count", "measure"}:
                    found.update(literals(node.args[0]))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal":
                found.update(literals(node.args[1]))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Counter":
                found.update(
                    key.value
                    for given in node.args
                    if isinstance(given, ast.Dict)
                    for key in given.keys
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                )
            elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "tally":
                found.update(literals(node.slice))
            elif (
                isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "what"
            ):
                found.update(literals(node.value))
    return frozenset(found)


@pytest.fixture(scope="module")
def shown(variants: Path) -> Template:
    """Return the template of a stack with a dashboard."""
    return Template(variants / "watched" / "TrainGuard.template.json")


@pytest.fixture(scope="module")
def widgets(shown: Template) -> list[dict[str, Any]]:
    """Return the dashboard's widgets."""
    (dashboard,) = shown.of_type("AWS::CloudWatch::Dashboard").values()
    found: list[dict[str, Any]] = json.loads(dashboard.properties["DashboardBody"])["widgets"]
    return found


def lines(widgets: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield namespace, name and dimensions of each metric in the dashboard."""
    for widget in widgets:
        for entry in widget["properties"].get("metrics", []):
            if isinstance(entry[0], dict):
                continue
            texts = [part for part in entry if isinstance(part, str)]
            yield texts[0], texts[1], dict(zip(texts[2::2], texts[3::2], strict=True))


def test_dashboard_metrics_are_emitted_by_code_or_aws(
    widgets: list[dict[str, Any]],
) -> None:
    ours = {metric_name(name) for name in counted()}
    unknown = {
        (namespace, name)
        for namespace, name, _ in lines(widgets)
        if name not in (ours if namespace == "TrainGuard" else AWS_METRICS[namespace])
    }
    assert unknown == set()


def test_product_metrics_of_alarms_are_emitted_by_the_code(
    template: Template,
) -> None:
    ours = {metric_name(name) for name in counted()}
    watched = set(re.findall(r'"MetricName": "(\w+)",\s*"Namespace": "TrainGuard"', template.text))
    filtered = {
        each["MetricName"]
        for found in template.of_type("AWS::Logs::MetricFilter").values()
        for each in found.properties["MetricTransformations"]
    }
    assert watched <= ours | filtered
    assert not filtered & ours


def test_product_metrics_have_only_function_and_rule_dimensions(
    widgets: list[dict[str, Any]],
) -> None:
    functions = {path.name for path in (ROOT / "lambdas").iterdir()}
    ours = [dimensions for namespace, _, dimensions in lines(widgets) if namespace == "TrainGuard"]
    assert len(ours) > 20
    assert all(set(each) == {"service"} and each["service"] in functions for each in ours)
    searches = [
        entry[0]["expression"]
        for widget in widgets
        for entry in widget["properties"].get("metrics", [])
        if isinstance(entry[0], dict) and "SEARCH" in entry[0]["expression"]
    ]
    of_each = {RULE_DIMENSION: BY_RULE, SEVERITY_DIMENSION: BY_SEVERITY}
    known = [(dimension, metric_name(each)) for dimension, metrics in of_each.items() for each in metrics.values()]
    found = [SEARCHED.fullmatch(each).groups() for each in searches]  # type: ignore[union-attr]  # no match fails here
    assert sorted(found) == sorted(known)


def test_dashboard_answers_the_questions_of_an_operator(widgets: list[dict[str, Any]]) -> None:
    names = {name for _, name, _ in lines(widgets)}
    assert {
        "EvaluationLagSeconds",
        "ObjectsApplied",
        "Late",
        "Gaps",
        "StateConflicts",
        "Duplicates",
        "BadLines",
        "StopsMade",
        "StopsRefused",
        "ExecutionsFailed",
        "ApproximateAgeOfOldestMessage",
        "Throttles",
        "ConcurrentExecutions",
        "ConsumedWriteCapacityUnits",
        "CanaryPassed",
    } <= names
    machines = {dimensions["StateMachineArn"] for _, _, dimensions in lines(widgets) if "StateMachineArn" in dimensions}
    assert machines == {"{ActionsFire.Arn}", "{ReportsReport.Arn}", "{CapturesKernels.Arn}"}


def test_dashboard_rows_are_full_and_have_every_alarm(widgets: list[dict[str, Any]], shown: Template) -> None:
    rows: dict[int, int] = {}
    for widget in widgets:
        rows[widget["y"]] = rows.get(widget["y"], 0) + widget["width"]
    assert set(rows.values()) == {24}
    alarms = next(widget for widget in widgets if widget["type"] == "alarm")["properties"]["alarms"]
    assert set(alarms) == {f"{{{name}.Arn}}" for name in shown.of_type("AWS::CloudWatch::Alarm")}


def test_hourly_cost_terms_have_the_packaged_prices(
    widgets: list[dict[str, Any]],
) -> None:
    prices = packaged_unit_prices().prices
    (costs,) = (widget for widget in widgets if "costs an hour" in widget["properties"].get("title", ""))
    (expression,) = (
        entry[0]["expression"]
        for entry in costs["properties"]["metrics"]
        if isinstance(entry[0], dict) and "expression" in entry[0]
    )
    factors = dict(re.findall(r"FILL\((c\d+), 0\) \* ([\d.e* -]+)", expression))
    terms = {name: math.prod(map(float, each.split(" * "))) for name, each in factors.items()}
    used: dict[str, set[float]] = {}
    for entry in costs["properties"]["metrics"]:
        if not isinstance(entry[0], dict):
            used.setdefault(entry[1], set()).add(terms[entry[-1]["id"]])
    assert unit_prices()["write_unit"] == prices.write_unit
    assert used["ConsumedWriteCapacityUnits"] == {prices.write_unit}
    assert used["ConsumedReadCapacityUnits"] == {prices.read_unit}
    assert used["Invocations"] == {prices.invocation}
    assert used["ObjectsApplied"] == {prices.object_get}
    sizes = (512, 1024, 2048, 3008)
    wanted = [pytest.approx(memory / 1024 / 1000 * prices.compute_gib_s, rel=1e-5) for memory in sizes]
    assert sorted(used["Duration"]) == wanted
    deployed = {path.parent.name for path in (ROOT / "lambdas").glob("*/handler.py")} - OFF_BY_DEFAULT - CENTRAL
    assert sum(1 for entry in costs["properties"]["metrics"] if "Duration" in entry) == len(deployed)


@pytest.mark.parametrize("name", QUERIES)
def test_messages_in_saved_queries_are_logged_by_the_code(name: str) -> None:
    logged = counted() | {
        text
        for path in (ROOT / "lambdas").rglob("*.py")
        for text in re.findall(r'logger\.\w+\(\s*"([^"]+)"', path.read_text(encoding="utf-8"))
    }
    named = {
        message
        for one, several in NAMED.findall(QUERIES[name])
        for message in ([one] if one else re.findall(r'"([^"]+)"', several))
    }
    assert named <= logged


def test_saved_queries_search_logs_of_every_function(template: Template) -> None:
    deployed = template.of_type("AWS::Logs::QueryDefinition").values()
    logs = {
        function.properties["LoggingConfig"]["LogGroup"]
        for function in template.of_type("AWS::Lambda::Function").values()
    }
    assert {query.properties["Name"] for query in deployed} == {f"TrainGuard/{name}" for name in QUERIES}
    assert all(set(query.properties["LogGroupNames"]) == logs for query in deployed)


@pytest.mark.parametrize(("active", "mode"), [(False, "PassThrough"), (True, "Active")])
def test_tracing_covers_all_functions_and_machines_or_none(
    template: Template, shown: Template, active: bool, mode: str
) -> None:
    chosen = shown if active else template
    functions = chosen.of_type("AWS::Lambda::Function").values()
    machines = chosen.of_type("AWS::StepFunctions::StateMachine").values()
    assert {function.properties["TracingConfig"]["Mode"] for function in functions} == {mode}
    assert [machine.properties["TracingConfiguration"] for machine in machines] == [{"Enabled": active}] * 3
    tracers = {role for role, statement in chosen.role_statements() if statement.sid == "SendTraces"}
    assert len(tracers) == (len(functions) + len(machines) if active else 0)
    assert ("xray:" in chosen.text) is active


def test_default_stack_has_no_dashboard(template: Template) -> None:
    assert not template.of_type("AWS::CloudWatch::Dashboard")
