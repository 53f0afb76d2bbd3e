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
        "RecordFire": lambda _: {"Payload": {}},
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
def test_items_are_digested_and_their_parts_joined_and_deleted(machine: dict[str, Any], few: bool) -> None:
    execution, ending = execute(machine, few=few)
    assert ending == Ending("SUCCEEDED")
    assert payloads(execution, "PlanReport") == [{"job": JOB, "run": RUN, "listing": None}]
    assert payloads(execution, "DigestProfile") == ITEMS
    assert payloads(execution, "BuildReport") == [{"job": JOB, "run": RUN}]
    assert payloads(execution, "DropParts") == [{"job": JOB, "run": RUN, "drop": True}]
    read = [] if few else [{"Bucket": PLACE["bucket"], "Key": PLACE["key"]}]
    assert execution.arguments_of("DigestMany") == read


@pytest.mark.parametrize("few", [True, False])
def test_digest_of_several_calls_resumes_where_the_last_ended(machine: dict[str, Any], few: bool) -> None:
    execution, ending = execute(machine, count=1, few=few, parts=3)
    assert ending == Ending("SUCCEEDED")
    assert [(item["part"], item["more"]) for item in payloads(execution, "DigestProfile")] == [
        (0, True),
        (1, True),
        (2, True),
    ]


@pytest.mark.parametrize("few", [True, False])
def test_always_failing_item_leaves_the_others_in_the_report(machine: dict[str, Any], few: bool) -> None:
    execution, ending = execute(machine, few=few, failing={"algo-2"})
    tried = [item["node"] for item in payloads(execution, "DigestProfile")]
    assert tried == ["algo-1", *["algo-2"] * 4, "algo-3"]
    assert ending == Ending("SUCCEEDED")
    assert len(execution.arguments_of("BuildReport")) == 1


def test_job_without_objects_digests_nothing(machine: dict[str, Any]) -> None:
    execution, ending = execute(machine, count=0)
    assert ending == Ending("SUCCEEDED")
    assert execution.arguments_of("DigestProfile") == []
    assert payloads(execution, "BuildReport") == [{"job": JOB, "run": RUN}]


@pytest.mark.parametrize("task", ["PlanReport", "DigestProfile", "BuildReport", "DropParts"])
def test_throttled_function_call_waits_and_loses_nothing(machine: dict[str, Any], task: str) -> None:
    execution, ending = execute(machine, count=1, throttled=30, throttled_task=task)
    assert ending == Ending("SUCCEEDED")
    assert len(execution.arguments_of(task)) == 31


def test_failed_plan_on_request_builds_none_and_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, failing={"PlanReport"})
    assert {name for name, _ in execution.calls} == {"PlanReport"}
    assert ending == Ending("FAILED", "TrainGuard.StepFailed", "PlanReport: Service.Exception: PlanReport is down")


def test_failed_plan_at_the_end_builds_from_state_and_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, failing={"PlanReport"}, kind="end")
    assert payloads(execution, "BuildFromState") == [{"job": JOB, "kind": "end"}]
    assert {name for name, _ in execution.calls} == {"PlanReport", "BuildFromState"}
    assert ending == Ending("FAILED", "TrainGuard.StepFailed", "PlanReport: Service.Exception: PlanReport is down")


def test_unreadable_list_builds_the_report_and_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, few=False, failing={"DigestMany"})
    assert len(execution.arguments_of("BuildReport")) == 1
    assert ending.cause == "DigestMany: Service.Exception: DigestMany is down"


def test_unbuildable_report_on_request_deletes_parts_and_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, failing={"BuildReport"})
    assert len(execution.arguments_of("BuildReport")) == 4
    assert execution.arguments_of("BuildFromState") == []
    assert payloads(execution, "DropParts") == [{"job": JOB, "run": RUN, "drop": True}]
    assert ending.cause == "BuildReport: Service.Exception: BuildReport is down"


def test_unbuildable_report_at_the_end_falls_back_and_fails(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, failing={"BuildReport"}, kind="end")
    assert payloads(execution, "BuildFromState") == [{"job": JOB, "kind": "end"}]
    assert len(execution.arguments_of("DropParts")) == 1
    assert ending.cause == "BuildReport: Service.Exception: BuildReport is down"


def test_full_report_at_the_end_is_not_replaced_by_one_of_state(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, kind="end")
    assert ending == Ending("SUCCEEDED")
    assert execution.arguments_of("BuildFromState") == []


def test_dumps_of_a_hang_are_read_without_the_whole_profile(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, kind="hang")
    assert ending == Ending("SUCCEEDED")
    assert payloads(execution, "BuildFromState") == [{"job": JOB, "kind": "hang"}]
    assert {name for name, _ in execution.calls} == {"BuildFromState"}


def test_report_of_a_fire_is_of_state_and_its_place_recorded(machine: dict[str, Any]) -> None:
    fire = {"job": JOB, "rule": "LowGPUUtilization", "fireId": "3f1c"}
    execution, ending = execute(machine, kind="fire", fire=fire)
    assert ending == Ending("SUCCEEDED")
    assert payloads(execution, "BuildFromState") == [{"job": JOB, "kind": "fire"}]
    assert payloads(execution, "RecordFire") == [{"fire": fire, "reportUri": "s3://profiles/report.html"}]
    assert {name for name, _ in execution.calls} == {"BuildFromState", "RecordFire"}


@pytest.mark.parametrize(("failing", "recorded"), [("BuildFromState", False), ("RecordFire", True)])
def test_report_of_a_fire_that_fails_says_so(machine: dict[str, Any], failing: str, recorded: bool) -> None:
    execution, ending = execute(machine, kind="fire", fire={"job": JOB}, failing={failing})
    assert ending.cause == f"{failing}: Service.Exception: {failing} is down"
    assert bool(payloads(execution, "RecordFire")) is recorded


def test_undeletable_parts_are_reported_by_the_execution(
    machine: dict[str, Any],
) -> None:
    _, ending = execute(machine, failing={"DropParts"})
    assert ending.cause == "DropParts: Service.Exception: DropParts is down"


def test_maps_are_bounded_and_distributed_ones_survive_item_loss(
    machine: dict[str, Any],
) -> None:
    few, many = machine["States"]["DigestFew"], machine["States"]["DigestMany"]
    assert few["MaxConcurrency"] == many["MaxConcurrency"] == 40
    assert few["ItemProcessor"]["ProcessorConfig"] == {"Mode": "INLINE"}
    assert many["ItemProcessor"]["ProcessorConfig"] == {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
    assert (many["ToleratedFailurePercentage"], many["Label"]) == (100, "Digests")


def test_items_of_a_full_inline_map_fit_history_and_payload(
    machine: dict[str, Any],
) -> None:
    events_a_call, calls = 9, 24
    assert machine["States"]["DigestFew"]["MaxConcurrency"] * events_a_call * calls < 25_000


def test_machine_is_standard_logged_traced_and_time_limited(template: Template, machine: dict[str, Any]) -> None:
    assert_standard_and_logged(template, "ReportsReport")
    assert machine["QueryLanguage"] == "JSONata"
    assert machine["TimeoutSeconds"] == 24 * 3600


def test_each_task_waits_longer_than_its_function(template: Template, machine: dict[str, Any]) -> None:
    digesting = machine["States"]["DigestFew"]["ItemProcessor"]["States"]
    states = {**machine["States"], **digesting}
    for name in TASKS:
        assert_outwaits_its_function(template, states[name], f"Reports{FUNCTIONS.get(name, name)}")
        assert states[name]["Retry"][-1] == {
            **states[name]["Retry"][-1],
            "ErrorEquals": ["States.TaskFailed"],
            "MaxAttempts": 3,
        }


def test_maps_of_few_and_many_items_do_the_same(
    machine: dict[str, Any],
) -> None:
    few, many = (machine["States"][name]["ItemProcessor"] for name in ("DigestFew", "DigestMany"))
    assert not set(few["States"]) & set(many["States"])
    renamed = json.loads(json.dumps(many).replace('OfMany"', '"'))
    assert renamed["States"] == few["States"]
    assert renamed["StartAt"] == few["StartAt"]


def test_reader_and_builder_have_two_gigabytes_each(template: Template) -> None:
    for name in ("DigestProfile", "BuildReport"):
        assert template.one("AWS::Lambda::Function", f"Reports{name}Function")["MemorySize"] == 2048
