"""The agent on each scheduler: what owners allow is seen, done once, and marked; a lost answer is looked up."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.clusters import ApiServer, SlurmCommands, api_server
from tests.support.workload_cluster import MemoryDesk
from trainguard.stack.actions.cluster_agents import AgentRequest, AgentState
from trainguard_collector.agent.carrying_out import Agent, objection_to, states_of
from trainguard_collector.agent.kubernetes import Kubernetes
from trainguard_collector.agent.resources import Platform, Request, Resource
from trainguard_collector.agent.slurm import Slurm, hosts_of
from trainguard_collector.kubernetes.api import Api

BEGAN = 1_800_000_000.0
ISO = "2027-01-15T08:00:00Z"
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/team-a/workloads"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/team-a/pods"


@dataclass
class Case:
    """A resource on a scheduler, and what an action on it looks like there."""

    platform: Platform
    resource: str
    action: str
    state: str
    acts: Callable[[], list[Any]]
    done: Any
    lose: Callable[[], None]
    fail: Callable[[], None]
    withdraw: Callable[[], None]


def annotated(name: str, **annotations: str) -> dict[str, Any]:
    return {"name": name, "namespace": "team-a", "annotations": annotations}


def job(consent: str = "suspend", **more: Any) -> dict[str, Any]:
    held = {"trainguard/on-fire": consent, "trainguard/job": "train-17"} if consent else {}
    return {
        "metadata": {**annotated("train"), "annotations": held, **more},
        "spec": {"suspend": False},
        "status": {"active": 2, "startTime": ISO},
    }


def admitted(consent: str = "suspend", **more: Any) -> dict[str, Any]:
    condition = {"type": "Admitted", "status": "True", "lastTransitionTime": ISO}
    return {**job(consent, **more), "spec": {}, "status": {"conditions": [condition]}}


def node(consent: str) -> dict[str, Any]:
    held = {"trainguard/on-fault": consent} if consent else {}
    metadata = {"name": "gpu-7", "annotations": held, "creationTimestamp": ISO}
    return {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


NAMES = {"trainguard/job": "train-17"}


def owned(by: str) -> dict[str, Any]:
    return {"ownerReferences": [{"uid": by}]}


LABEL = "sagemaker.amazonaws.com/node-health-status"
# Kind, resource, allowed action, state's name, and what the patch changes beside the mark.
ON_KUBERNETES: dict[str, Any] = {
    "job": ("job/team-a/train", "suspend", "job/team-a/train", {"spec": {"suspend": True}}),
    "queued": ("job/team-a/train", "suspend", "job/team-a/train", {"spec": {"active": False}}),
    "kueue": ("kueue/team-a/train", "suspend", "kueue/team-a/train", {"spec": {"active": False}}),
    "cordon": ("node/gpu-7", "cordon", "unit/team-a/pod-0", {"spec": {"unschedulable": True}}),
    "label": ("node/gpu-7", "label", "unit/team-a/pod-0", {"labels": {"trainguard/gpu-fault": "true"}}),
    "replace": ("node/gpu-7", "replace", "unit/team-a/pod-0", {"labels": {LABEL: "UnschedulablePendingReplacement"}}),
    "reboot": ("node/gpu-7", "reboot", "unit/team-a/pod-0", {"labels": {LABEL: "UnschedulablePendingReboot"}}),
}
SLURM_JOB = "JobId=1234 JobName=bert UserId=ada(1001) Priority=1 JobState=RUNNING Restarts=0 StartTime=1800000000"
SLURM_NODE = "NodeName=gpu7 Arch=x86_64 State=IDLE BootTime=1800000000"
MARK = "scontrol update JobId=1234 AdminComment=trainguard:f1:0"
UPDATE, NOTED, F1 = "scontrol update NodeName=gpu7", "Comment=night run trainguard", "trainguard:f1"
WHY = "Reason=TrainGuard: GPUHealth"
ON_SLURM: dict[str, Any] = {
    "requeue": ("slurm/1234", "slurm/1234", [MARK, "scontrol requeue 1234"]),
    "cancel": ("slurm/1234", "slurm/1234", [MARK, "scancel 1234"]),
    "drain": (
        "slurm-node/gpu7",
        "unit/slurm/1234/gpu7",
        [f"{UPDATE} State=DRAIN {WHY} {NOTED}=drain {F1}"],
    ),
    "hyperpod": (
        "slurm-node/gpu7",
        "unit/slurm/1234/gpu7",
        [f"{UPDATE} State=FAIL Reason=Action:Replace {NOTED}=replace {F1}"],
    ),
}


def on_kubernetes(kind: str, server: ApiServer, account: Path) -> Case:
    resource, action, state, change = ON_KUBERNETES[kind]
    path, make = {
        "job": (JOBS, job),
        "queued": (JOBS, lambda consent: job(consent, labels={"kueue.x-k8s.io/queue-name": "gpus"})),
        "kueue": (WORKLOADS, admitted),
    }.get(kind, (NODES, node))
    if kind == "queued":
        server.put(WORKLOADS, admitted("", labels={"kueue.x-k8s.io/job-uid": "uid-train"}))
    for number in range(3):
        owner = owned("uid-set" if number == 1 else "uid-of-17")
        metadata = {**annotated(f"pod-{number}"), **owner}
        server.put(PODS, {"metadata": metadata, "spec": {"nodeName": "gpu-7"}, "status": {"startTime": ISO}})
        server.put(JOBS, {**job(""), "metadata": annotated(f"other-{number}")})
    server.put(path, make(action))
    if path == NODES:
        # A workload of Kueue is owned by the set whose Job owns a pod; the Job of the others names the job itself.
        server.put(WORKLOADS, {**admitted(), "metadata": {**annotated("w", **NAMES), **owned("uid-top")}})
        server.put(JOBS, {**job(""), "metadata": {**annotated("set"), **owned("uid-top")}})
        server.put(JOBS, {**job(""), "metadata": {**annotated("of-17", **NAMES), "uid": "uid-of-17"}})
    (account / "token").write_text("a-token\n")

    def acts() -> list[Any]:
        found = []
        for _, patch in server.patches:
            labels = patch["metadata"].get("labels")
            assert patch["metadata"]["annotations"] == {"trainguard/acted": "f1"}
            found.append({"labels": labels} if labels else {"spec": patch["spec"]})
        return found

    api = Api(f"http://127.0.0.1:{server.server_port}", account)
    return Case(
        Kubernetes(api, [] if path == NODES else ["team-a"], with_nodes=path == NODES),
        resource,
        action,
        state,
        acts,
        [change],
        lambda: vars(server).update(loses=True),
        lambda: server.broken.append(500),
        lambda: server.put(path, make("")),
    )


def on_slurm(kind: str, commands: SlurmCommands) -> Case:
    resource, state, done = ON_SLURM[kind]
    action = "replace" if kind == "hyperpod" else kind
    line, what, name = (SLURM_JOB, "job", "1234") if "1234" in resource else (SLURM_NODE, "node", "gpu7")
    job_tag = ";trainguard-job=train-17" if what == "job" else ""
    if what == "node":
        commands.put("job", "1234", f"{SLURM_JOB} NodeList=gpu[6-8] Comment=trainguard-job=train-17")
        commands.put("job", "99", f"{SLURM_JOB.replace('1234', '99')} NodeList=gpu[8,10-12]")
    commands.put(what, name, f"{line} Comment=night run trainguard={action}{job_tag}")
    return Case(
        Slurm(with_nodes=what == "node"),
        resource,
        action,
        state,
        lambda: commands.acts,
        done,
        (commands.folder / "loses").touch,
        (commands.folder / "down").touch,
        lambda: commands.put(what, name, line),
    )


@pytest.fixture(params=[*ON_KUBERNETES, *ON_SLURM])
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    if request.param in ON_SLURM:
        commands = SlurmCommands(tmp_path)
        monkeypatch.setenv("PATH", commands.path)
        yield on_slurm(request.param, commands)
        return
    with api_server() as server:
        yield on_kubernetes(request.param, server, tmp_path)


def agent_of(case: Case, desk: MemoryDesk, **more: bool) -> Agent:
    return Agent(desk, case.platform, lambda: BEGAN + 900.0, **more)


def ask(desk: MemoryDesk, case: Case, **changes: Any) -> None:
    fields = {
        "id": "f1",
        "resource": case.resource,
        "action": case.action,
        "job": "train-17",
        "rule": "GPUHealth",
        "started_at": BEGAN,
        "expires_at": BEGAN + 1_000.0,
    }
    desk.ask("prod", AgentRequest(**{**fields, **changes}))


def test_opted_in_resource_is_published_and_acted_on_once(case: Case) -> None:
    desk = MemoryDesk()
    agent = agent_of(case, desk)
    assert agent.run_once() == 0
    state = desk.state("prod", case.state)
    assert state is not None
    assert (state.resource, state.action, state.runs, state.started_at) == (case.resource, case.action, True, BEGAN)
    units = [name for _, name in desk.states if name.startswith("unit/")]
    assert len(units) == (3 if case.resource.startswith("node/") else case.state.count("unit/"))
    assert {each.job for each in desk.states.values()} == {"train-17"}
    ask(desk, case)
    assert agent.run_once() == 0
    assert (case.acts(), desk.answers["f1"].stage) == (case.done, "done")
    agent_of(case, desk).run_once()
    assert case.acts() == case.done


@pytest.mark.parametrize(
    "changes", [{"action": "another"}, {"started_at": BEGAN - 9.0}, {"resource": "job/team-b/x"}, {"job": "another"}]
)
def test_request_about_something_else_is_refused(case: Case, changes: dict[str, Any]) -> None:
    desk = MemoryDesk()
    ask(desk, case, **changes)
    agent_of(case, desk).run_once()
    assert (desk.answers["f1"].stage, case.acts()) == ("refused", [])


def test_withdrawn_consent_and_dry_run_do_nothing(case: Case) -> None:
    desk = MemoryDesk()
    ask(desk, case)
    agent_of(case, desk, dry_run=True).run_once()
    assert desk.answers["f1"].why.startswith("the agent makes a dry run")
    agent = agent_of(case, desk)
    agent.run_once()
    case.withdraw()
    ask(desk, case, id="f2")
    agent.run_once()
    assert desk.answers["f2"].why == "its owner has not opted in"
    assert not any(state.resource == case.resource for state in desk.states.values())


def test_node_is_left_once_nothing_of_the_job_runs_there() -> None:
    request = Request("f1", "node/gpu-7", "drain", "train-17", "GPUHealth", BEGAN, BEGAN + 60.0)
    node = Resource("node/gpu-7", "drain", "ready", True, BEGAN, units=(("team-a/pod-0", BEGAN, "train-17"),))
    assert objection_to(request, node) is None
    for units in ((), (("team-a/pod-0", BEGAN, None),), (("team-a/pod-0", BEGAN, "another"),)):
        assert objection_to(request, replace(node, units=units)) == "nothing of job 'train-17' runs on it"


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("gpu7", {"gpu7"}),
        ("gpu[08-10,12],login", {"gpu08", "gpu09", "gpu10", "gpu12", "login"}),
        ("r[1-2]n[3-4]-ib", {"r1n3-ib", "r1n4-ib", "r2n3-ib", "r2n4-ib"}),
        ("", set()),
        ("gpu[0-999999999]", set()),
        ("gpu[1-99999999999999999999]", set()),
        ("gpu[a-b]", set()),
        ("a[1-999]b[1-999]", set()),
    ],
)
def test_list_of_hosts_is_expanded_within_bounds(listed: str, names: set[str]) -> None:
    assert hosts_of(listed) == names


def test_state_of_any_length_is_one_that_the_stack_reads() -> None:
    long = Resource("job/team-a/train", "suspend", "active", True, BEGAN, job="\N{PILE OF POO}" * 60_000)
    (state,) = states_of(long).values()
    assert msgspec.convert({**state, "at": BEGAN}, AgentState).job != long.job


def test_workload_that_names_its_job_alone_allows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = SlurmCommands(tmp_path)
    monkeypatch.setenv("PATH", commands.path)
    commands.put("job", "1234", f"{SLURM_JOB} Comment=trainguard-job=train-17")
    with api_server() as server:
        (tmp_path / "token").write_text("a-token")
        server.put(JOBS, {**job(""), "metadata": annotated("train", **{"trainguard/job": "train-17"})})
        api = Api(f"http://127.0.0.1:{server.server_port}", tmp_path)
        found = [*Slurm().opted_in(), *Kubernetes(api).opted_in()]
    assert [(each.action, each.job) for each in found] == [("", "train-17")] * 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"action": ""}, "its owner has not opted in"),
        ({"exempt": True}, "it is exempt"),
        ({"action": "cancel"}, "its owner allows cancel, and suspend was announced"),
        ({"job": "another"}, "it is of job 'another'"),
        ({"runs": False}, "it is active, and does not run"),
        ({"started_at": BEGAN + 9.0}, "it was started again since"),
    ],
)
def test_each_objection_stands_alone(changes: dict[str, Any], why: str | None) -> None:
    found = Resource("job/team-a/train", "suspend", "active", True, BEGAN, job="train-17")
    request = Request("f1", found.name, found.action, "train-17", "R", BEGAN, BEGAN + 60.0)
    assert objection_to(request, replace(found, **changes)) == why


def test_comment_of_another_job_gives_no_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = SlurmCommands(tmp_path)
    monkeypatch.setenv("PATH", commands.path)
    forged = f"{SLURM_JOB} Comment=trainguard=cancel;trainguard-job=train-17"
    commands.put("job", "1234", SLURM_JOB)
    commands.put("job", "77", f"{SLURM_JOB.replace('1234', '77')} Comment=x\n{forged}\nno job at all")
    desk = MemoryDesk()
    agent = Agent(desk, Slurm(), lambda: BEGAN + 900.0)
    fields = {"action": "cancel", "job": "train-17", "rule": "R", "started_at": BEGAN, "expires_at": BEGAN + 1_000.0}
    desk.ask("prod", AgentRequest(id="f1", resource="slurm/1234", **fields))  # type: ignore[arg-type]
    assert agent.run_once() == 0
    assert (commands.acts, desk.answers["f1"].why) == ([], "its owner has not opted in")


def test_request_after_an_outage_or_a_lost_answer_is_done_once(case: Case) -> None:
    desk = MemoryDesk()
    agent = agent_of(case, desk)
    ask(desk, case)
    case.lose()
    agent.run_once()
    agent_of(case, desk).run_once()
    assert desk.answers["f1"].stage == "done"
    assert case.acts() == case.done
    case.fail()
    assert agent.run_once() > 0
