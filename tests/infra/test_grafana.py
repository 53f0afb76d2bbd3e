"""The dashboards for Grafana: their panels fit, and ask for what the product counts, exports and stores."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.collector.exports.exposition import parse
from tests.infra.synthesis import ROOT
from tests.infra.template import Template
from tests.infra.test_dashboard import counted
from tests.support.fleets import found, job
from trainguard.aws.dynamodb.jobs import job_item
from trainguard.aws.dynamodb.rule_states import BY_STATUS_COLUMNS, row_item
from trainguard.aws.fault_points import RULE_DIMENSION, SEVERITY_DIMENSION
from trainguard.aws.observability import BY_RULE, BY_SEVERITY, metric_name
from trainguard_collector.exports.points import points
from trainguard_collector.exports.prometheus import text

FOLDER = ROOT / "examples" / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}

# Selectors, groups and legends of PromQL that the panels use.
_METRIC = re.compile(r"\b(?:hw|system|trainguard)_\w+(?=\{)")
_LABELS = re.compile(r'(\w+)=~?"|by \(([\w, ]+)\)|\{\{(\w+)\}\}')
_STATEMENT = re.compile(r'SELECT (.+) FROM "\$\{(jobs|rows)\}"\."(\w+)" WHERE (.+) ORDER BY (\w+) DESC')
# Columns that the central tables add, and a job or a row has in some states alone.
_ADDED = {"Team", "StatedAt", "FiredAt", "Action", "CostLost", "Platform"}


def targets(name: str) -> list[dict[str, Any]]:
    return [query for panel in DASHBOARDS[name]["panels"] for query in panel["targets"]]


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_panels_fit_and_use_the_variables_alone(name: str) -> None:
    dashboard = DASHBOARDS[name]
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = sorted((panel["gridPos"]["y"], panel["gridPos"]["x"], panel["gridPos"]["w"]) for panel in panels)
    assert all(x + width <= 24 for _, x, width in places)
    assert all(one[0] < other[0] or one[1] + one[2] <= other[1] for one, other in pairwise(places))
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(?!__|PROP)(\w+)", json.dumps([panels, dashboard["templating"]])))
    assert used == variables
    assert {target["datasource"]["uid"] for target in targets(name)} == {"${datasource}"}
    for panel in panels:
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_each_query_names_a_counted_metric_of_a_function() -> None:
    known = {metric_name(what) for what in counted()}
    functions = {path.parent.name for path in (ROOT / "lambdas").glob("*/handler.py")}
    queries = targets("trainguard")
    assert len(queries) > 10
    for query in queries:
        assert query["metricName"] in known
        assert query["namespace"] == "${stack}"
        dimensions = query["dimensions"]
        if query["metricName"] in {metric_name(each) for each in BY_RULE.values()}:
            assert (dimensions, query["matchExact"]) == ({RULE_DIMENSION: "*"}, False)
        elif query["metricName"] in {metric_name(each) for each in BY_SEVERITY.values()}:
            assert (dimensions, query["matchExact"]) == ({SEVERITY_DIMENSION: "*"}, False)
        else:
            assert dimensions["service"] in functions


def test_queries_of_prometheus_name_what_the_collector_exports() -> None:
    values = (
        *(("gpu", "gpu0", each) for each in ("GPUUtilization", "SMActivityPercent", "TensorActivityPercent")),
        *(("gpu", f"gpu0.{each}", "") for each in ("PowerWatts", "TemperatureCelsius", "MemoryUsedBytes", "Lost")),
        *(("gpu", f"gpu0.{each}", "") for each in ("MemoryTotalBytes", "XIDCount79", "NVLinkReceivedBytesPerSecond")),
        ("cpu", "cpu0", "CPUUtilization"),
        ("memory", "MemoryUsedPercent", ""),
    )
    traffic = {"gpu0.NVLinkReceivedBytesPerSecond": (1.0, 0.0)}
    made = points(dict.fromkeys(values, (1.0, 1.0)), traffic, {})
    exported: dict[str, set[str]] = {}
    for name, labels in parse(text(made, {"job": "bert", "node": "algo-1"}, {})):
        exported.setdefault(name, set()).update(label for label, _ in labels)
    for query in targets("gpus"):
        names = _METRIC.findall(query["expr"])
        assert names, query["expr"]
        asked = {
            label.strip()
            for match in _LABELS.findall(query["expr"] + query["legendFormat"])
            for label in ",".join(match).split(",")
            if label
        }
        for name in names:
            assert asked <= exported[name], (name, asked)


@pytest.fixture(scope="module")
def indexes(variants: Path) -> dict[tuple[str, str], tuple[tuple[str, str], set[str] | None]]:
    """Keys of each index of the central tables, and the columns that it has, None for all."""
    central = Template(variants / "central" / "TrainGuardCentral.template.json")
    return {
        ("jobs" if "Jobs" in table.name else "rows", index["IndexName"]): (
            (index["KeySchema"][0]["AttributeName"], index["KeySchema"][1]["AttributeName"]),
            None
            if index["Projection"]["ProjectionType"] == "ALL"
            else {"TrainingJobName", "RuleTarget", *index["Projection"].get("NonKeyAttributes", ())},
        )
        for table in central.resources
        if table.type.startswith("AWS::DynamoDB::")
        for index in table.properties.get("GlobalSecondaryIndexes", ())
    }


def test_statements_ask_an_index_for_its_keys_and_columns(
    indexes: dict[tuple[str, str], tuple[tuple[str, str], set[str] | None]],
) -> None:
    began = job("starved")
    columns = {"jobs": set(job_item(began)), "rows": {*row_item(found(began)), *BY_STATUS_COLUMNS}}
    for query in targets("central"):
        said = _STATEMENT.fullmatch(query["rawSql"])
        assert said, query["rawSql"]
        selected, table, index, where, newest = said.groups()
        (partition, sort), projected = indexes[table, index]
        conditions = re.findall(r'"?(\w+)"? (=|>=) \'[^\']+\'', where)
        assert [name for name, _ in conditions] == [partition, sort][: len(conditions)]
        assert newest == sort
        names = {name.strip('"') for name in selected.split(", ")}
        assert names <= columns[table] | _ADDED
        if projected is not None:
            assert names <= projected | {partition, sort}
