"""The fire path, run in memory: a stop that is announced, made only if all still speaks for it, and looked up."""

from typing import Any

import pytest

from tests.infra.states_language import Ending
from tests.infra.test_fire_machine import (
    AGAIN,
    FIRE,
    GRACE,
    GRACE_STEPS,
    REFUSED,
    STEPS,
    STOP,
    WARNING,
    execute,
    machine,
    written,
)

__all__ = ["machine"]


def names(execution: Any) -> list[str]:
    return [name for name, _ in execution.calls]


def test_given_a_grace_time_when_a_rule_fires_then_it_warns_waits_decides_again_and_stops(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, decision=GRACE)
    assert ending == Ending("SUCCEEDED")
    act = names(execution)[1:-2]
    assert act == [
        "DecideStop",
        "RecordWarning",
        "ComposeWarning",
        "PublishWarning",
        "ChatWarning",
        "EmitWarning",
        "AwaitGraceEnd",
        "DecideAgain",
        "RecordDecision",
        "StopTrainingJob",
        "RecordStop",
        "ComposeAlert",
        "EmitEvent",
        "PublishAlert",
        "PublishChat",
        "RecordOutcome",
    ]
    assert execution.arguments_of("AwaitGraceEnd") == [GRACE["stopAt"]]
    attempts = [*execution.arguments_of("DecideStop"), *execution.arguments_of("DecideAgain")]
    assert [call["Payload"] for call in attempts] == [{**FIRE, "attempt": name} for name in ("first", "final")]
    assert written(execution, "RecordWarning")["StopDecision"] == {"S": "grace"}
    assert written(execution, "RecordStop")["StopMade"] == {"BOOL": True}


def test_given_a_grace_time_when_it_warns_then_topic_chat_and_bus_get_the_warning(machine: dict[str, Any]) -> None:
    execution, _ = execute(machine, FIRE, decision=GRACE)
    (call,) = execution.arguments_of("ComposeWarning")
    assert call["Payload"] == {"fire": {**FIRE, "kind": "warning"}, "decision": GRACE}
    assert execution.arguments_of("PublishWarning")[0]["Subject"] == WARNING["subject"]
    assert execution.arguments_of("ChatWarning")[0]["TopicArn"] == "{ActionsChat}"
    assert execution.arguments_of("EmitWarning")[0]["Entries"][0]["Detail"] == {"kind": "warning"}


def test_given_a_grace_time_when_it_is_refused_at_its_end_then_the_job_runs_on_and_people_hear_why(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, decision=GRACE, again=REFUSED)
    assert ending == Ending("SUCCEEDED")
    assert execution.arguments_of("StopTrainingJob") == []
    recorded = written(execution, "RecordStop")
    assert (recorded["StopDecision"], recorded["StopWhy"]) == ({"S": "refused"}, {"S": REFUSED["why"]})
    assert execution.arguments_of("ComposeAlert")[0]["Payload"]["decision"] == REFUSED


@pytest.mark.parametrize("step", ["ComposeWarning", "PublishWarning", "ChatWarning"])
def test_given_a_warning_that_cannot_be_sent_when_a_rule_fires_then_nothing_is_stopped_and_the_alert_says_so(
    machine: dict[str, Any], step: str
) -> None:
    execution, ending = execute(machine, FIRE, decision=GRACE, failing={step})
    assert {"StopTrainingJob", "DecideAgain", "AwaitGraceEnd"} & set(names(execution)) == set()
    (call,) = execution.arguments_of("ComposeAlert")
    assert call["Payload"]["decision"] == {
        "stop": False,
        "decision": "refused",
        "why": "the warning of the stop could not be sent",
        "stopAt": None,
        "optedIn": True,
    }
    assert written(execution, "RecordStop")["StopDecision"] == {"S": "refused"}
    assert (ending.status, (ending.cause or "").split(":")[0]) == ("FAILED", step)


def test_given_a_final_decision_that_fails_when_the_grace_time_is_over_then_nothing_is_stopped(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, decision=GRACE, failing={"DecideAgain"})
    assert execution.arguments_of("StopTrainingJob") == []
    assert written(execution, "RecordStop")["StopDecision"] == {"S": "undecided"}
    assert (ending.cause or "").startswith("DecideAgain: ")


@pytest.mark.parametrize("again", [{"decision": "stop"}, {"stop": "true", "decision": "stop", "why": "text"}, GRACE])
def test_given_a_final_decision_that_is_not_plainly_to_stop_when_the_grace_time_is_over_then_nothing_is_stopped(
    machine: dict[str, Any], again: dict[str, Any]
) -> None:
    execution, _ = execute(machine, FIRE, decision=GRACE, again=again)
    assert execution.arguments_of("StopTrainingJob") == []
    assert len(execution.arguments_of("PublishAlert")) == 1


@pytest.mark.parametrize("step", [*STEPS, *GRACE_STEPS])
def test_given_any_failing_step_when_a_stop_has_a_grace_time_then_the_alert_goes_out_and_the_failure_is_named(
    machine: dict[str, Any], step: str
) -> None:
    execution, ending = execute(machine, FIRE, decision=GRACE, failing={step})
    assert ending.status == "FAILED"
    assert (ending.cause or "").split(":")[0] == (f"{AGAIN[step]} is down" if step in AGAIN else step)
    assert len({"PublishAlert"} & set(names(execution))) == 1
    averting = {"DecideStop", "DecideAgain", "ComposeWarning", "PublishWarning", "ChatWarning", "RecordDecision"}
    stopped = step not in averting
    assert ("StopTrainingJob" in names(execution)) is stopped


def test_given_a_stop_without_grace_time_when_a_rule_fires_then_nothing_is_announced(machine: dict[str, Any]) -> None:
    execution, _ = execute(machine, FIRE, decision=STOP)
    assert not {*GRACE_STEPS, "AwaitGraceEnd"} & set(names(execution))


@pytest.mark.parametrize("status", ["Stopping", "Stopped"])
def test_given_an_answer_that_is_lost_when_the_job_is_stopped_all_the_same_then_the_stop_was_made(
    machine: dict[str, Any], status: str
) -> None:
    execution, ending = execute(machine, FIRE, failing={"StopTrainingJob"}, status=status)
    assert ending == Ending("SUCCEEDED")
    assert execution.arguments_of("LookAtJob") == [{"TrainingJobName": FIRE["job"]}]
    assert written(execution, "RecordStop")["StopMade"] == {"BOOL": True}
    (call,) = execution.arguments_of("ComposeAlert")
    assert call["Payload"]["stop"] == {"made": True, "error": None}


@pytest.mark.parametrize(
    "seen",
    [
        {"status": "InProgress"},
        {"status": "Completed"},
        {"status": "Failed"},
        {"status": "Stopping", "arn": f"{FIRE['jobArn']}-2"},
    ],
)
def test_given_an_error_of_the_stop_when_the_job_is_not_seen_to_be_stopped_then_it_failed(
    machine: dict[str, Any], seen: dict[str, Any]
) -> None:
    execution, ending = execute(machine, FIRE, failing={"StopTrainingJob"}, **seen)
    assert written(execution, "RecordStop")["StopMade"] == {"BOOL": False}
    (call,) = execution.arguments_of("ComposeAlert")
    assert call["Payload"]["stop"] == {"made": False, "error": "Service.Exception: StopTrainingJob is down"}
    assert [part.split(":")[0] for part in (ending.cause or "").split("; ")] == ["StopTrainingJob"]


def test_given_an_error_of_the_stop_when_the_job_cannot_be_asked_either_then_it_is_not_known_and_so_recorded(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, failing={"StopTrainingJob", "LookAtJob"})
    assert written(execution, "RecordStop")["StopMade"] == {"NULL": True}
    (call,) = execution.arguments_of("ComposeAlert")
    assert call["Payload"]["stop"]["error"] == (
        "Service.Exception: StopTrainingJob is down; and whether it was stopped could not be asked: "
        "Service.Exception: LookAtJob is down"
    )
    assert [part.split(":")[0] for part in (ending.cause or "").split("; ")] == ["StopTrainingJob", "LookAtJob"]
