"""The report path, run in memory: all items are digested, whatever fails the report is built, and faults show."""

import json
from collections.abc import Collection
from typing import Any

import pytest

from tests.infra.machines import assert_outwaits_its_function, assert_standard_and_logged, deployed_definition
from tests.infra.states_language import Ending, Execution, TaskError
from tests.infra.template import Template

JOB = "llm-7b-2026-01-01"
RUN = "report-3f1c"
ITEMS = [{"node": f"algo-{number}", "part": 0, "more": True} for number in (1, 2, 3)]
PLACE = {"bucket": "profiles", "key": f"{JOB}/rule-output/TrainGuardReport/parts/{RUN}/items.json"}
FUNCTIONS = {"BuildFromState": "BuildReport", "DropParts": "BuildReport"}
TASKS = ("PlanReport", "DigestProfile", "BuildReport", "BuildFromState", "DropParts")


@pytest.fixture(scope="module")
def machine(template: Template) -> dict[str, Any]:
    """Return the definition as it is deployed."""
    return deployed_definition(template, "ReportsReport")


def execute(
    machine: dict[str, Any],
    *,
    count: int = 3,
    few: bool = True,
    parts: int = 1,
    failing: Collection[str] = (),
    throttled: int = 0,
    throttled_task: str = "DigestProfile",
    **data: Any,
) -> tuple[Execution, Ending]:
    """Run an execution with ``count`` items that take ``parts`` calls each.

    Steps of ``failing`` always fail, and the first ``throttled`` calls of ``throttled_task`` are refused.
    """
    items = ITEMS[:count]

    refused = iter(range(throttled))

    def digest(arguments: Any) -> Any:
        item = arguments["Payload"]
        return {"Payload": {**item, "part": item["part"] + 1, "more": item["part"] + 1 < parts}}

    answers: dict[str, Any] = {
        "PlanReport": lambda _: {"Payload": {"count": count, "items": items if few else [], **PLACE}},
        "DigestMany": lambda _: items,
        "DigestProfile": digest,
        "DigestProfileOfMany": digest,
        "BuildReport": lambda _: {"Payload": {"reportUri": "s3://profiles/report.html", "files": 13}},
        "BuildFromState": lambda _: {"Payload": {"reportUri": "s3://profiles/report.html", "files": 13}},
        "DropParts": lambda _: {"Payload": {"dropped": 4}},
    }

    def answer(name: str, arguments: Any) -> Any:
        if name in failing or (name.startswith("DigestProfile") and arguments["Payload"]["node"] in failing):
            raise TaskError("Service.Exception", f"{name} is down")
        if name == throttled_task and next(refused, None) is not None:
            raise TaskError("Lambda.TooManyRequestsException", "Rate Exceeded.")
        return answers[name](arguments)

    tasks = {name: lambda arguments, name=name: answer(name, arguments) for name in answers}
    execution = Execution(machine, tasks, name=RUN)
    return execution, execution.run({"job": JOB, **data})


def payloads(execution: Execution, state: str) -> list[Any]:
    return [call["Payload"] for name in (state, f"{state}OfMany") for call in execution.arguments_of(name)]


@pytest.mark.parametrize("few", [True, False])
def test_given_a_job_when_its_report_is_made_then_each_item_is_digested_and_the_parts_are_put_together_and_deleted(
    machine: dict[str, Any], few: bool
) -> None:
    execution, ending = execute(machine, few=few)
    assert ending == Ending("SUCCEEDED")
    assert payloads(execution, "PlanReport") == [{"job": JOB, "run": RUN, "listing": None}]
    assert payloads(execution, "DigestProfile") == ITEMS
    assert payloads(execution, "BuildReport") == [{"job": JOB, "run": RUN}]
    assert payloads(execution, "DropParts") == [{"job": JOB, "run": RUN, "drop": True}]
    read = [] if few else [{"Bucket": PLACE["bucket"], "Key": PLACE["key"]}]
    assert execution.arguments_of("DigestMany") == read


@pytest.mark.parametrize("few", [True, False])
def test_given_an_item_that_takes_several_calls_when_digested_then_each_goes_on_where_the_last_one_ended(
    machine: dict[str, Any], few: bool
) -> None:
    execution, ending = execute(machine, count=1, few=few, parts=3)
    assert ending == Ending("SUCCEEDED")
    assert [(item["part"], item["more"]) for item in payloads(execution, "DigestProfile")] == [
        (0, True),
        (1, True),
        (2, True),
    ]


@pytest.mark.parametrize("few", [True, False])
def test_given_an_item_that_always_fails_when_digested_then_the_others_are_read_and_the_report_is_built(
    machine: dict[str, Any], few: bool
) -> None:
    execution, ending = execute(machine, few=few, failing={"algo-2"})
    tried = [item["node"] for item in payloads(execution, "DigestProfile")]
    assert tried == ["algo-1", *["algo-2"] * 4, "algo-3"]
    assert ending == Ending("SUCCEEDED")
    assert len(execution.arguments_of("BuildReport")) == 1


def test_given_a_job_without_objects_when_its_report_is_made_then_nothing_is_digested(machine: dict[str, Any]) -> None:
    execution, ending = execute(machine, count=0)
    assert ending == Ending("SUCCEEDED")
    assert execution.arguments_of("DigestProfile") == []
    assert payloads(execution, "BuildReport") == [{"job": JOB, "run": RUN}]


@pytest.mark.parametrize("task", ["PlanReport", "DigestProfile", "BuildReport", "DropParts"])
def test_given_an_account_whose_functions_are_used_up_when_one_is_called_then_it_waits_and_nothing_is_lost(
    machine: dict[str, Any], task: str
) -> None:
    execution, ending = execute(machine, count=1, throttled=30, throttled_task=task)
    assert ending == Ending("SUCCEEDED")
    assert len(execution.arguments_of(task)) == 31


def test_given_a_plan_that_fails_when_a_report_is_asked_for_then_none_is_built_and_the_execution_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, failing={"PlanReport"})
    assert {name for name, _ in execution.calls} == {"PlanReport"}
    assert ending == Ending("FAILED", "TrainGuard.StepFailed", "PlanReport: Service.Exception: PlanReport is down")


def test_given_a_plan_that_fails_when_a_job_ends_then_a_report_is_built_of_state_and_the_execution_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, failing={"PlanReport"}, kind="end")
    assert payloads(execution, "BuildFromState") == [{"job": JOB}]
    assert {name for name, _ in execution.calls} == {"PlanReport", "BuildFromState"}
    assert ending == Ending("FAILED", "TrainGuard.StepFailed", "PlanReport: Service.Exception: PlanReport is down")


def test_given_a_list_that_cannot_be_read_when_a_report_is_made_then_it_is_built_and_the_execution_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, few=False, failing={"DigestMany"})
    assert len(execution.arguments_of("BuildReport")) == 1
    assert ending.cause == "DigestMany: Service.Exception: DigestMany is down"


def test_given_a_report_that_cannot_be_built_when_asked_for_then_its_parts_are_deleted_and_the_execution_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, failing={"BuildReport"})
    assert len(execution.arguments_of("BuildReport")) == 4
    assert execution.arguments_of("BuildFromState") == []
    assert payloads(execution, "DropParts") == [{"job": JOB, "run": RUN, "drop": True}]
    assert ending.cause == "BuildReport: Service.Exception: BuildReport is down"


def test_given_a_report_that_cannot_be_built_when_a_job_ends_then_there_is_one_of_state_and_the_execution_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, failing={"BuildReport"}, kind="end")
    assert payloads(execution, "BuildFromState") == [{"job": JOB}]
    assert len(execution.arguments_of("DropParts")) == 1
    assert ending.cause == "BuildReport: Service.Exception: BuildReport is down"


def test_given_a_job_that_ends_when_its_report_is_built_then_none_of_state_takes_its_place(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, kind="end")
    assert ending == Ending("SUCCEEDED")
    assert execution.arguments_of("BuildFromState") == []


def test_given_parts_that_cannot_be_deleted_when_a_report_is_made_then_the_execution_says_so(
    machine: dict[str, Any],
) -> None:
    _, ending = execute(machine, failing={"DropParts"})
    assert ending.cause == "DropParts: Service.Exception: DropParts is down"


def test_given_the_maps_when_read_then_both_are_bounded_and_a_distributed_one_outlives_a_lost_item(
    machine: dict[str, Any],
) -> None:
    few, many = machine["States"]["DigestFew"], machine["States"]["DigestMany"]
    assert few["MaxConcurrency"] == many["MaxConcurrency"] == 40
    assert few["ItemProcessor"]["ProcessorConfig"] == {"Mode": "INLINE"}
    assert many["ItemProcessor"]["ProcessorConfig"] == {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
    assert (many["ToleratedFailurePercentage"], many["Label"]) == (100, "Digests")


def test_given_as_many_items_as_an_inline_map_takes_when_counted_then_they_fit_into_history_and_payload(
    machine: dict[str, Any],
) -> None:
    events_a_call, calls = 9, 24
    assert machine["States"]["DigestFew"]["MaxConcurrency"] * events_a_call * calls < 25_000


def test_given_the_machine_when_read_then_it_is_standard_logged_traced_and_limited_in_time(
    template: Template, machine: dict[str, Any]
) -> None:
    assert_standard_and_logged(template, "ReportsReport")
    assert machine["QueryLanguage"] == "JSONata"
    assert machine["TimeoutSeconds"] == 24 * 3600


def test_given_the_tasks_when_read_then_each_waits_longer_than_its_function(
    template: Template, machine: dict[str, Any]
) -> None:
    digesting = machine["States"]["DigestFew"]["ItemProcessor"]["States"]
    states = {**machine["States"], **digesting}
    for name in TASKS:
        assert_outwaits_its_function(template, states[name], f"Reports{FUNCTIONS.get(name, name)}")
        assert states[name]["Retry"][-1] == {
            **states[name]["Retry"][-1],
            "ErrorEquals": ["States.TaskFailed"],
            "MaxAttempts": 3,
        }


def test_given_few_and_many_items_when_their_maps_are_read_then_they_do_the_same_under_names_of_their_own(
    machine: dict[str, Any],
) -> None:
    few, many = (machine["States"][name]["ItemProcessor"] for name in ("DigestFew", "DigestMany"))
    assert not set(few["States"]) & set(many["States"])
    renamed = json.loads(json.dumps(many).replace('OfMany"', '"'))
    assert renamed["States"] == few["States"]
    assert renamed["StartAt"] == few["StartAt"]


def test_given_who_reads_and_puts_together_when_read_then_each_has_two_gigabytes(template: Template) -> None:
    for name in ("DigestProfile", "BuildReport"):
        assert template.one("AWS::Lambda::Function", f"Reports{name}Function")["MemorySize"] == 2048
