"""The dashboard for Grafana: its panels fit, and ask for metrics that the product counts, of functions that it has."""

import json
from itertools import pairwise

from tests.infra.synthesis import ROOT
from tests.infra.test_dashboard import counted
from trainguard.aws.dimensions import RULE_DIMENSION, SEVERITY_DIMENSION
from trainguard.aws.observability import BY_RULE, BY_SEVERITY, metric_name

DASHBOARD = json.loads((ROOT / "examples" / "grafana" / "trainguard.json").read_text(encoding="utf-8"))


def test_each_query_names_a_counted_metric_of_a_function() -> None:
    known = {metric_name(what) for what in counted()}
    functions = {path.parent.name for path in (ROOT / "lambdas").glob("*/handler.py")}
    queries = [query for panel in DASHBOARD["panels"] for query in panel["targets"]]
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


def test_panels_fit_and_use_the_variables_alone() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = sorted((panel["gridPos"]["y"], panel["gridPos"]["x"], panel["gridPos"]["w"]) for panel in panels)
    assert all(x + width <= 24 for _, x, width in places)
    assert all(one[0] < other[0] or one[1] + one[2] <= other[1] for one, other in pairwise(places))
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "region", "stack"}
    sources = {target["datasource"]["uid"] for panel in panels for target in panel["targets"]}
    assert sources == {"${datasource}"}
    for panel in panels:
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
