"""What DynamoDB is asked: strongly consistent reads, page after page, and versions and times as they are stored."""

from typing import Any, cast

import pytest
from botocore.paginate import Paginator

from tests.functional.tables import BOOKKEEPING, RULE_STATE
from tests.functional.worlds import MotoUnderTest
from trainguard.aws.dynamodb.fire_path import DynamoStopBudget, region_of
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.dynamodb.table import DynamoDBTable, assignments
from trainguard.core.errors import StateCodecError

# 2026-11-21T08:00:00Z.
NOW = 1_795_248_000.0


class Noting:
    """A client that notes what it is asked, and answers with pages of one item each."""

    def __init__(self, pages: int = 1) -> None:
        self.asked: list[dict[str, Any]] = []
        self._pages = pages

    def _page(self, **request: Any) -> dict[str, Any]:
        self.asked.append(dict(request))
        number = len(self.asked)
        more = {"LastEvaluatedKey": {"Page": {"N": str(number)}}} if number < self._pages else {}
        return {"Items": [{"Number": {"N": str(number)}}], **more}

    query = _page

    def get_paginator(self, operation: str) -> Any:
        """Return botocore's own paginator over the pages."""
        del operation
        keys = {"input_token": "ExclusiveStartKey", "output_token": "LastEvaluatedKey", "result_key": "Items"}
        method, model = cast("Any", self._page), cast("Any", None)
        return Paginator(method, keys, model)

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Answer that there is no such item."""
        self.asked.append(request)
        return {}


def test_reads_are_strongly_consistent_except_on_an_index() -> None:
    client: Any = Noting(pages=3)
    table = DynamoDBTable(client=client, name="jobs")
    assert table.get({"Job": {"S": "a"}}) is None
    assert client.asked.pop()["ConsistentRead"] is True
    assert [item["Number"]["N"] for item in table.partition("Job", "a")] == ["1", "2", "3"]
    assert [(each["ConsistentRead"], each.get("ExclusiveStartKey")) for each in client.asked] == [
        (True, None),
        (True, {"Page": {"N": "1"}}),
        (True, {"Page": {"N": "2"}}),
    ]
    client.asked.clear()
    assert len(list(table.partition("Active", "yes", index="ActiveJobs"))) == 3
    assert all("ConsistentRead" not in each and each["IndexName"] == "ActiveJobs" for each in client.asked)
    client.asked.clear()
    assert table.first_after("Job", "a", "Rule", "b") == {"Number": {"N": "1"}}
    assert (client.asked[0]["ConsistentRead"], client.asked[0]["Limit"]) == (True, 1)
    client.asked.clear()
    assert [item["Number"]["N"] for item in table.items()] == ["1", "2", "3"]
    assert [each.get("ExclusiveStartKey") for each in client.asked][1:] == [{"Page": {"N": "1"}}, {"Page": {"N": "2"}}]


@pytest.mark.parametrize(
    ("columns", "text", "values"),
    [
        ({"A": {"S": "a"}, "B": None}, "SET #c0 = :c0 REMOVE #c1", {":c0": {"S": "a"}}),
        ({"A": {"S": "a"}, "B": {"S": "b"}}, "SET #c0 = :c0, #c1 = :c1", {":c0": {"S": "a"}, ":c1": {"S": "b"}}),
        ({"A": None, "B": None}, "REMOVE #c0, #c1", {}),
    ],
)
def test_assigned_columns_without_a_value_are_removed(
    columns: dict[str, Any], text: str, values: dict[str, Any]
) -> None:
    assert assignments(columns) == (text, {"#c0": "A", "#c1": "B"}, values)


def test_version_of_stops_counts_the_writes(moto_world: MotoUnderTest) -> None:
    client = moto_world.dynamodb
    budget = DynamoStopBudget(client=client, table=BOOKKEEPING)
    for version, fire in ((1, "a"), (2, "b"), (2, "a")):
        assert budget.take(fire, f"job-{fire}", now=NOW, limit=2)
        item: Any = moto_world.entry("stops", "last-hour")
        assert item["Version"] == {"N": str(version)}
    assert item["Stops"]["M"]["b"] == {"M": {"Job": {"S": "job-b"}, "At": {"S": "2026-11-21T08:00:00.000Z"}}}
    assert (region_of("arn:aws:dynamodb:eu-west-1:1:table/rows"), region_of("rows")) == ("eu-west-1", None)


def test_hour_of_a_counted_name_is_kept_for_a_day(
    moto_world: MotoUnderTest,
) -> None:
    for _ in range(2):
        moto_world.bookkeeping.admit(NOW + 59.9, most=3)
    item = moto_world.entry("met-jobs", "2026112108")
    assert (item["Met"], item["ExpiresAt"]) == ({"N": "2"}, {"N": str(int(NOW) + 59 + 86_400)})


def test_row_written_only_by_the_fire_path_has_no_counts(
    moto_world: MotoUnderTest,
) -> None:
    client = moto_world.dynamodb
    item: Any = {"TrainingJobName": {"S": "job"}, "RuleTarget": {"S": "A#algo-1"}, "Reason": {"S": "so."}}
    client.put_item(TableName=RULE_STATE, Item=item | {"Status": {"S": "FIRED"}, "StopDecision": {"S": "refused"}})
    row = DynamoRuleStates(client=client, table=RULE_STATE).load("job", "A#algo-1")
    assert row is not None
    assert (row.data_points, row.violations, row.times_fired, row.generation, row.earlier_episodes) == (0,) * 5
    assert (row.node, row.stop is not None and row.stop.why) == ("algo-1", "")
    client.put_item(TableName=RULE_STATE, Item=item)
    with pytest.raises(StateCodecError, match="RuleState/job/A#algo-1 has Codec 0"):
        DynamoRuleStates(client=client, table=RULE_STATE).load("job", "A#algo-1")
