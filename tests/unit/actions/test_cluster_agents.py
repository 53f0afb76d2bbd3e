"""Stops on clusters: the agent's word is the owner's consent, its answer the result, and its silence no stop."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.fires import fire_of
from tests.support.workload_cluster import MemoryDesk
from tests.unit.actions.test_stop import NOW, ROW
from tests.unit.actions.test_stop_resources import ENABLED, JOB
from trainguard.core.finding import Finding
from trainguard.core.records import JobRecord
from trainguard.stack.actions.cluster_agents import (
    AGENT_SILENT_S,
    DONE_WITHIN_S,
    AgentAnswer,
    AgentState,
    asked,
    resource_states,
)
from trainguard.stack.actions.request import StopResult
from trainguard.stack.actions.stop import StopPreconditions
from trainguard.stack.actions.stop_resources import (
    TAKEN_WITHIN_S,
    ResourceDecision,
    StopServices,
    decide_any_stop,
)

TAG = "run-17@team=2520a/"
STATE = AgentState(
    resource="job/team-a/train", action="suspend", status="active", runs=True, at=NOW, job=TAG, started_at=NOW - 7_200.0
)
NODE = msgspec.structs.replace(STATE, resource="node/gpu-7", action="replace")
RECORD = replace(JOB, resources=("workload/prod/job/team-a/train",))
BROKEN = replace(ROW, finding=Finding("GPUHealth", None, "lost.", finding_kind="lost"), evaluated_through=NOW - 60.0)
FIRE = fire_of(JOB.job, JOB.arn, "GPUHealth", at=NOW - 120.0, episode=2)


def decide(
    desk: MemoryDesk,
    *kinds: str,
    row: Any = BROKEN,
    job: JobRecord = RECORD,
    rule: str = "GPUHealth",
    node: str = "pod-0",
) -> ResourceDecision:
    def states(kind: str) -> Any:
        return lambda identities: resource_states(desk, kind, identities, NOW)

    known = StopPreconditions(replace(job, episodes={"GPUHealth": 2}), row)
    services = StopServices(lambda _: None, {kind: states(kind) for kind in kinds}, lambda: ENABLED, kinds)
    fire = fire_of(JOB.job, JOB.arn, rule, at=NOW - 120.0, episode=2, node=node, attempt="final")
    decision, _ = decide_any_stop(fire, services, known=known, now=NOW)
    assert isinstance(decision, ResourceDecision)
    return decision


def both(**changes: Any) -> MemoryDesk:
    workload = msgspec.structs.replace(STATE, **changes)
    return MemoryDesk(states={("prod", STATE.resource): workload, ("prod", "unit/team-a/pod-0"): NODE})


def test_workload_that_an_agent_names_is_stopped_by_it() -> None:
    decision = decide(both(), "workload")
    assert (decision.stop, decision.kind, decision.action) == (True, "workload", "suspend")
    assert decision.resources == ("prod/job/team-a/train",)
    assert (decision.started_at, decision.expires_at) == (STATE.started_at, NOW + TAKEN_WITHIN_S)
    assert "its owner allows to suspend workload" in decision.why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"at": NOW - AGENT_SILENT_S - 60.0}, "no agent runs on prod"),
        ({"exempt": True}, "is exempt"),
        ({"job": "another"}, "the tag trainguard:job"),
        ({"action": ""}, "its owner has not opted in"),
        ({"runs": False}, "does not run"),
        ({"started_at": None}, "it is not known since when"),
        ({"started_at": NOW}, "and the profile began by"),
    ],
)
def test_workload_with_an_objection_runs_on(changes: dict[str, Any], why: str) -> None:
    decision = decide(both(**changes), "workload")
    assert not decision.stop
    assert why in decision.why


def test_workload_that_no_agent_names_has_no_consent() -> None:
    decision = decide(MemoryDesk(), "workload")
    assert (decision.stop, decision.opted_in) == (False, False)
    assert decision.why == "its owner has not opted in: no agent names prod/job/team-a/train"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, "node"),
        ({"rule": "LowGPUUtilization"}, "workload"),
        ({"node": "*"}, "workload"),
        ({"node": "pod-1"}, "workload"),
        ({"row": replace(BROKEN, finding=replace(BROKEN.finding, finding_kind="heat"))}, "workload"),
        ({"job": replace(JOB, resources=("batch-job/b-1",))}, ""),
    ],
)
def test_only_a_broken_gpu_acts_on_its_own_node(given: dict[str, Any], kind: str) -> None:
    kinds = ("workload", "node") if kind else ("node",)
    decision = decide(both(), *kinds, **given)
    assert decision.kind == kind or not kind
    if kind == "node":
        assert (decision.stop, decision.action, decision.resources) == (True, "replace", ("prod/node/gpu-7",))


@pytest.mark.parametrize(
    ("changes", "kind"), [({"job": "another"}, "workload"), ({"job": None}, "workload"), ({"action": ""}, "node")]
)
def test_node_is_acted_on_for_a_workload_of_the_job_alone(changes: dict[str, Any], kind: str) -> None:
    decision = decide(both(**changes), "workload", "node")
    assert (decision.kind, decision.stop) == (kind, kind == "node")


@pytest.mark.parametrize("job", [None, "another"])
def test_a_profile_names_no_node_that_runs_nothing_of_its_job(job: str | None) -> None:
    desk = both()
    desk.states["prod", "unit/team-a/pod-0"] = msgspec.structs.replace(NODE, job=job)
    decision = decide(desk, "workload", "node")
    assert (decision.stop, decision.kind) == (False, "node")
    assert decision.why == f"nothing of job {JOB.job} runs on prod/node/gpu-7, as far as its agent says"


@pytest.mark.parametrize(("unit", "kind"), [("slurm/12/gpu7", "node"), ("slurm/99/gpu7", "workload")])
def test_node_of_slurm_is_that_of_the_job_that_the_profile_names(unit: str, kind: str) -> None:
    resource = "slurm/12"
    states = {("prod", resource): msgspec.structs.replace(STATE, resource=resource), ("prod", f"unit/{unit}"): NODE}
    job = replace(RECORD, resources=(f"workload/prod/{resource}",))
    decision = decide(MemoryDesk(states=states), "workload", "node", job=job, node="gpu7")
    assert (decision.kind, decision.stop) == (kind, True)


def decided(**changes: Any) -> ResourceDecision:
    given = {"resources": ("prod/job/team-a/train",), "action": "suspend", "expires_at": NOW + 100.0, **changes}
    return ResourceDecision(stop=True, decision="stop", kind="workload", started_at=NOW - 60.0, **given)


PENDING = StopResult(pending=True)


@pytest.mark.parametrize(
    ("answer", "later_s", "result"),
    [
        (None, 0.0, PENDING),
        (None, 100.0, StopResult(made=False, error="the agent of prod did not take the request")),
        ("begun", 100.0, PENDING),
        ("begun", 100.0 + DONE_WITHIN_S, None),
        ("done", 0.0, StopResult(made=True)),
        ("refused", 0.0, StopResult(made=False, error="it is exempt")),
        ("closed", 0.0, StopResult(made=False, error="it is exempt")),
    ],
)
def test_answer_of_the_agent_is_the_result(answer: Any, later_s: float, result: StopResult | None) -> None:
    desk = MemoryDesk()
    if answer is not None:
        desk.answers["f1"] = AgentAnswer(stage=answer, why="it is exempt")
    found = asked(desk, FIRE, decided(), NOW + later_s)
    assert found == result or (result is None and found.made is None)
    assert ("f1" in desk.asked) == (answer is None and later_s == 0.0)


def test_request_is_asked_once_and_closed_for_good() -> None:
    desk = MemoryDesk()
    for _ in range(2):
        assert asked(desk, FIRE, decided(), NOW) == PENDING
    (request,) = desk.asked.values()
    assert (request.resource, request.job, request.expires_at) == ("job/team-a/train", FIRE.job, NOW + 100.0)
    assert asked(desk, FIRE, decided(), NOW + 100.0).made is False
    assert desk.begin("f1") == "closed"


def test_agent_that_begins_first_is_waited_for() -> None:
    desk = MemoryDesk()
    assert desk.begin("f1") is None
    assert asked(desk, FIRE, decided(), NOW + 100.0) == PENDING
