"""The pages for those who operate it: columns, metrics, queries, outputs and permissions are those of the code."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.constructs.measures import FAULTS
from infra.constructs.queries import QUERIES
from tests.infra.synthesis import ROOT
from tests.infra.template import Template
from tests.infra.test_docs_links import documents
from tests.infra.test_permissions import EXPECTED
from tests.support.fire_columns import fire_columns
from tests.unit.test_docs_parameters import table
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.observability import BY_RULE, BY_SEVERITY, metric_name
from trainguard.core.finding import Fact, Finding
from trainguard.core.records import JobRecord, RuleRow, Status

SNAPSHOT = json.loads((ROOT / "tests" / "infra" / "TrainGuard.snapshot.json").read_text("utf-8"))
_CODE = re.compile(r"`([^`]+)`")
# A value of each type of a job's fields, none of which is left out as empty.
FILLED: dict[str, Any] = {
    "<class 'str'>": "text",
    "str | None": "text",
    "int | None": 1,
    "<class 'int'>": 1,
    "<class 'bool'>": True,
    "float | None": 1.0,
    "collections.abc.Mapping[str, str]": {"name": "text"},
    "tuple[str, ...]": ("text",),
}

_ALL_MAY = {"logs:CreateLogStream", "logs:PutLogEvents"}
_READS = re.compile(r"\w+:(?:Get|List|Describe|Query|Receive)\w*")


def named(page: str, first: str) -> set[str]:
    """Return what stands between backticks in the first column of a table."""
    return {name for row in table(page, first) for name in _CODE.findall(row[0])}


class Written:
    """Stands for DynamoDB, and keeps the names of the columns that are written."""

    def __init__(self) -> None:
        self.columns: set[str] = set()

    def update_item(self, **request: Any) -> dict[str, Any]:
        self.columns |= set(request["ExpressionAttributeNames"].values())
        return {}

    def put_item(self, **request: Any) -> dict[str, Any]:
        self.columns |= set(request["Item"])
        return {}


def metrics_in(value: Any) -> Iterator[str]:
    """Yield the names of TrainGuard's own metrics in alarms and dashboards."""
    text = json.dumps(value).replace('\\"', '"')
    yield from re.findall(r'"TrainGuard","(\w+)"', text)
    yield from re.findall(r'"MetricName": "(\w+)", "Namespace": "TrainGuard"', text)
    yield from re.findall(r'MetricName="(\w+)"', text)


def emitted() -> set[str]:
    """Return the metric that each short text of the product's code would be, if it were counted."""
    texts: set[str] = {*BY_RULE.values(), *BY_SEVERITY.values()}
    for file in (ROOT / "rules_layer" / "trainguard").rglob("*.py"):
        texts |= set(re.findall(r'"([a-z_]{4,40})"', file.read_text("utf-8")))
    return {metric_name(text) for text in texts}


def test_page_has_all_columns_of_a_row() -> None:
    client: Any = Written()
    finding = Finding(rule="BatchSize", node=None, reason="", facts=(Fact(name="low_time", value=60.0, unit="s"),))
    row = RuleRow(job="job", finding=finding, status=Status.OK, fired_at=1.0, expires_at=1)
    DynamoRuleStates(client=client, table="RuleState").publish([row])
    written = {re.sub(r"^fact\..*", "fact.<name>", column) for column in client.columns}
    listed = named("operations.md", "column") | named("verdict.md", "`RuleState`") | named("stopping.md", "column")
    assert listed == written | fire_columns()


def test_page_names_columns_that_a_job_has() -> None:
    client: Any = Written()
    kinds = {field.name: str(field.type) for field in dataclasses.fields(JobRecord)}
    filled = {name: FILLED[kind] for name, kind in kinds.items() if kind in FILLED}
    DynamoJobs(client=client, table="Jobs").register(JobRecord(**filled))
    listed = named("operations.md", "column of `Jobs`")
    assert len(listed) > 25
    assert listed < client.columns


def test_page_metrics_are_emitted_and_no_watched_one_is_missing(
    variants: Path,
) -> None:
    listed = named("operations.md", "metric")
    assert {name for name in listed if not name.startswith(FAULTS)} <= emitted()
    template = Template(variants / "watched" / "TrainGuard.template.json")
    shown = [dict(each.properties) for each in template.resources if each.type.startswith("AWS::CloudWatch::")]
    watched = set(metrics_in(shown))
    assert len(watched) > 20
    assert watched <= listed
    assert {name for name in listed if name.startswith(FAULTS)} <= watched


def test_queries_named_on_the_page_are_saved() -> None:
    page = " ".join((ROOT / "docs" / "operations.md").read_text("utf-8").split())
    listed = set(re.findall(r"(?:query|Run|line of) \*([^*]+)\*", page))
    assert len(listed) > 3
    assert listed <= set(QUERIES)


def test_outputs_named_on_the_pages_exist_in_the_stack() -> None:
    texts = [(ROOT / page).read_text("utf-8") for page in documents()]
    told = {name for text in texts for name in re.findall(r"\boutputs?\s+`(\w+)`", text)}
    told |= {name for text in texts for name in re.findall(r"<(\w+(?:Arn|Uri|Parameter|Table))>", text)}
    assert len(told) >= 5
    # Of the central stack.
    assert told <= {*SNAPSHOT["Outputs"], "CentralBusArn"}


def actions(cell: str) -> set[str]:
    """Return the actions of a cell, in which a service stands before its first action alone."""
    found, service = set(), ""
    for word in re.findall(r"`((?:[a-z0-9]+:)?[A-Z]\w+)`", cell):
        service = word.partition(":")[0] if ":" in word else service
        if service:
            found.add(word if ":" in word else f"{service}:{word}")
    return found


def test_permissions_page_has_each_action_that_changes_something() -> None:
    told: dict[str, set[str]] = {}
    for first, may, _ in table("permissions.md", "function"):
        borrowed = {action for name in re.findall(r"as `(\w+)`", may) for action in told[name]}
        told |= {name: actions(may) | borrowed for name in _CODE.findall(first)}
    for name, own in told.items():
        words = "".join(word.capitalize() for word in name.split("_"))
        (role,) = [each for each in EXPECTED if each.endswith(f"{words}Role")]
        held = {action for action, _ in EXPECTED[role]} - _ALL_MAY
        assert own == {action for action in held if not _READS.fullmatch(action)}, name
    assert len(told) == len(EXPECTED) - 4
