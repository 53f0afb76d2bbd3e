"""The path of a capture, run in memory: each trace is digested, ranks are joined whatever fails, and faults show."""

from collections.abc import Collection
from typing import Any

import pytest

from infra.constructs.kernels_machine import EXECUTION_TIMEOUT_S
from tests.infra.machines import assert_outwaits_its_function, assert_standard_and_logged, deployed_definition
from tests.infra.states_language import Ending, Execution, TaskError
from tests.infra.template import Template
from trainguard.engine.kernels.session import AGAIN_S

RUN = "kernels-3f1c"
CALL = {
    "job": "llm-7b",
    "bucket": "profiles",
    "prefix": "",
    "generation": 0,
    "run": RUN,
    "capture": "c",
    "folder": "f/",
}
ITEMS = [{"key": f"rank{number}.pt.trace.json"} for number in range(3)]
PLACE = {"bucket": "profiles", "key": f"llm-7b/rule-output/TrainGuardReport/kernels/runs/{RUN}/items.json"}


@pytest.fixture(scope="module")
def machine(template: Template) -> dict[str, Any]:
    """Return the definition as it is deployed."""
    return deployed_definition(template, "CapturesKernels")


def execute(
    machine: dict[str, Any], *, count: int = 3, few: bool = True, failing: Collection[str] = ()
) -> tuple[Execution, Ending]:
    """Run an execution with ``count`` traces to digest; steps and traces of ``failing`` always fail."""
    items = ITEMS[:count]
    answers: dict[str, Any] = {
        "PlanCapture": {"Payload": {"count": count, "items": items if few else [], **PLACE}},
        "DigestMany": items,
        "DigestTrace": {"Payload": {}},
        "DigestTraceOfMany": {"Payload": {}},
        "JoinCapture": {"Payload": {"traces": 3}},
    }

    def answer(name: str, arguments: Any) -> Any:
        if name in failing or (name.startswith("DigestTrace") and arguments["Payload"]["key"] in failing):
            raise TaskError("Service.Exception", f"{name} is down")
        return answers[name]

    tasks = {name: lambda arguments, name=name: answer(name, arguments) for name in answers}
    execution = Execution(machine, tasks, name=RUN)
    return execution, execution.run(CALL)


def payloads(execution: Execution, state: str) -> list[Any]:
    return [call["Payload"] for name in (state, f"{state}OfMany") for call in execution.arguments_of(name)]


@pytest.mark.parametrize("few", [True, False], ids=["inline", "distributed"])
def test_traces_of_a_capture_are_digested_and_joined(machine: dict[str, Any], few: bool) -> None:
    execution, ending = execute(machine, few=few)
    assert ending == Ending("SUCCEEDED")
    assert payloads(execution, "PlanCapture") == [CALL]
    assert payloads(execution, "DigestTrace") == ITEMS
    assert payloads(execution, "JoinCapture") == [CALL]
    read = [] if few else [{"Bucket": PLACE["bucket"], "Key": PLACE["key"]}]
    assert execution.arguments_of("DigestMany") == read


@pytest.mark.parametrize("few", [True, False], ids=["inline", "distributed"])
def test_crashing_trace_function_leaves_the_others_joined(machine: dict[str, Any], few: bool) -> None:
    execution, ending = execute(machine, few=few, failing={ITEMS[1]["key"]})
    tried = [item["key"] for item in payloads(execution, "DigestTrace")]
    assert tried == [ITEMS[0]["key"], *[ITEMS[1]["key"]] * 4, ITEMS[2]["key"]]
    assert ending == Ending("SUCCEEDED")
    assert payloads(execution, "JoinCapture") == [CALL]


def test_fully_digested_capture_is_joined_at_once(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, count=0)
    assert ending == Ending("SUCCEEDED")
    assert payloads(execution, "DigestTrace") == []
    assert payloads(execution, "JoinCapture") == [CALL]


@pytest.mark.parametrize("step", ["PlanCapture", "JoinCapture"])
def test_always_failing_step_fails_the_execution(machine: dict[str, Any], step: str) -> None:
    execution, ending = execute(machine, failing={step})
    assert ending.status == "FAILED"
    assert len(execution.arguments_of(step)) == 4


def test_previous_execution_has_ended_before_another_request() -> None:
    assert EXECUTION_TIMEOUT_S < AGAIN_S


def test_machine_is_standard_logged_and_outwaits_its_functions(template: Template, machine: dict[str, Any]) -> None:
    assert_standard_and_logged(template, "CapturesKernels")
    states = machine["States"]
    assert_outwaits_its_function(template, states["PlanCapture"], "CapturesPlanCapture")
    assert_outwaits_its_function(template, states["JoinCapture"], "CapturesJoinCapture")
    for name, state in (("DigestFew", "DigestTrace"), ("DigestMany", "DigestTraceOfMany")):
        assert_outwaits_its_function(template, states[name]["ItemProcessor"]["States"][state], "CapturesDigestTrace")
