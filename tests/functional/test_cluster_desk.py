"""The desk in DynamoDB: what the stack asks an agent reads, one of both writes an answer first, and brakes hold."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.functional.tables import BOOKKEEPING
from tests.functional.worlds import MotoUnderTest
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.cluster_desk import DynamoClusterDesk
from trainguard.core.brakes import Braked, new_brake, read_brakes, written_brakes
from trainguard.stack.actions.cluster_agents import AgentAnswer, AgentRequest, AgentState
from trainguard_collector.agent.desk import StackDesk, braked
from trainguard_collector.agent.resources import Request

NOW = 1_800_000_000.0
ASKED = AgentRequest(
    id="f1",
    resource="job/team-a/train",
    action="suspend",
    job="run",
    rule="R",
    started_at=NOW,
    expires_at=NOW + 60.0,
)
STATE = AgentState(resource="job/team-a/train", action="suspend", status="active", runs=True, at=NOW, job="run")


class Sides:
    """The stack's desk, and that of the agent of a cluster."""

    def __init__(self, world: MotoUnderTest, clients: Clients) -> None:
        self.world, self.clients = world, clients
        self.stack = DynamoClusterDesk(client=world.dynamodb, table=BOOKKEEPING)
        self.agent = self.of("prod")

    def of(self, cluster: str) -> StackDesk:
        return StackDesk(BOOKKEEPING, "TrainGuard", cluster, [self.world.dynamodb, self.clients.ssm])


@pytest.fixture
def sides(moto_world: MotoUnderTest, clients: Clients) -> Sides:
    return Sides(moto_world, clients)


def test_request_is_read_by_its_own_cluster_alone(sides: Sides) -> None:
    for _ in range(2):
        sides.stack.ask("prod", ASKED)
    expected = {name: value for name, value in msgspec.to_builtins(ASKED).items() if name != "schema_version"}
    assert sides.agent.requests() == [Request(**expected)]
    assert sides.of("other").requests() == []


def test_request_of_another_version_is_not_carried_out(sides: Sides) -> None:
    for number, document in enumerate(["{", "[]", '{"schema_version": 2}', '{"schema_version": 1, "id": "x"}']):
        item: Any = {"Purpose": "requests/prod", "Id": f"f{number}", "Document": document}
        sides.world.dynamodb.put_item(TableName=BOOKKEEPING, Item={name: {"S": item[name]} for name in item})
    assert sides.agent.requests() == []


def test_state_lasts_until_it_is_withdrawn(sides: Sides) -> None:
    sides.agent.publish(STATE.resource, msgspec.to_builtins(STATE))
    assert sides.stack.state("prod", STATE.resource) == STATE
    assert sides.stack.state("other", STATE.resource) is None
    sides.agent.publish(STATE.resource, {"resource": 7})
    assert sides.stack.state("prod", STATE.resource) is None
    sides.agent.publish(STATE.resource, msgspec.to_builtins(STATE))
    sides.agent.withdraw(STATE.resource)
    assert sides.stack.state("prod", STATE.resource) is None


def test_the_agents_role_writes_no_column_of_a_rule(sides: Sides) -> None:
    sides.agent.publish(STATE.resource, msgspec.to_builtins(STATE))
    sides.agent.begin("f1")
    written = {name for item in sides.world.dynamodb.scan(TableName=BOOKKEEPING)["Items"] for name in item}
    page = (Path(__file__).parents[2] / "docs" / "actions.md").read_text("utf-8")
    policy = json.loads(page.split("```json\n")[-1].partition("```")[0])
    (statement,) = [each for each in policy["Statement"] if "dynamodb:PutItem" in each["Action"]]
    allowed = statement["Condition"]["ForAllValues:StringEquals"]
    assert (allowed["dynamodb:LeadingKeys"], set(allowed["dynamodb:Attributes"])) == ("agents/prod", written)


def test_only_one_side_writes_the_first_answer(sides: Sides) -> None:
    assert sides.agent.stage("f1") is None
    assert sides.agent.begin("f1") is None
    assert sides.agent.begin("f1") == "begun"
    assert not sides.stack.close("prod", "f1")
    sides.agent.finish("f1", "done", "x" * 600)
    assert sides.stack.answer("prod", "f1") == AgentAnswer(stage="done", why="x" * 500)
    assert sides.stack.close("prod", "f2")
    assert sides.agent.begin("f2") == "closed"


@pytest.mark.parametrize(
    ("parameters", "objection"),
    [
        ({"stop-switch": "enabled"}, None),
        ({"stop-switch": "enabled", "stop-switch-override": "enabled", "brakes": "[]"}, None),
        ({}, "the stop switch is None"),
        ({"stop-switch": "dry-run"}, "the stop switch is 'dry-run'"),
        ({"stop-switch": "enabled", "stop-switch-override": "disabled"}, "the stop switch's override is 'disabled'"),
        ({"stop-switch": "enabled", "brakes": "{"}, "an operators' brake cannot be read"),
    ],
)
def test_agent_asks_the_operators_itself(sides: Sides, parameters: dict[str, str], objection: str | None) -> None:
    for name, value in parameters.items():
        sides.clients.ssm.put_parameter(Name=f"/TrainGuard/{name}", Value=value, Type="String", Overwrite=True)
    found = sides.agent.objection("run", "R", NOW)
    assert (found or "").startswith(objection or "")
    assert (found is None) == (objection is None)


@pytest.mark.parametrize("what", list(Braked))
@pytest.mark.parametrize("scope", [{}, {"job": "run"}, {"job": "other"}, {"rule": "R"}, {"rule": "other"}])
@pytest.mark.parametrize("until", [None, NOW - 10.0, NOW + 10.0])
def test_agent_reads_brakes_as_the_stack_does(what: Braked, scope: dict[str, Any], until: float | None) -> None:
    if what is Braked.EVALUATION and "rule" in scope:
        scope = {}
    brake = new_brake("b-1", what, by="ada", why="an audit", now=NOW - 60.0, until=until, **scope)
    document = written_brakes([brake], now=NOW)
    known = read_brakes(document)
    held = [
        known.on(Braked.STOPS, job="run", rule="R", now=NOW),
        known.on(Braked.EVALUATION, job="run", rule=None, now=NOW),
    ]
    assert (braked(document, "run", "R", NOW) is not None) == any(held)


@pytest.mark.parametrize(
    "document", ["{", "7", "[7]", "[{}]", '[{"what": "everything"}]', '[{"what": "stops", "until": 7}]']
)
def test_brake_that_the_agent_cannot_read_forbids(document: str) -> None:
    assert braked(document, "run", "R", NOW) is not None
