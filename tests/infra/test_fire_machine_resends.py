"""Alerts that could not be sent, or are asked for: a redrive sends them and repeats nothing else."""

import json
from typing import Any

import pytest

from tests.infra.states_language import Ending
from tests.infra.test_fire_machine import AGAIN, ALERT, FIRE, REFUSED, STOP, TOLD, execute, machine, written
from trainguard.actions.resend import STEP_FAILED

__all__ = ["machine"]


@pytest.mark.parametrize("failing", [("PublishAlert",), ("PublishChat",), ("PublishAlert", "PublishChat")])
@pytest.mark.parametrize("kind", ["fire", "escalation", "cleared", "notice"])
def test_given_an_alert_that_was_not_sent_when_redriven_then_it_is_sent_and_recorded_and_nothing_else_is_repeated(
    machine: dict[str, Any], kind: str, failing: tuple[str, ...]
) -> None:
    down = {*failing}
    execution, ending = execute(machine, FIRE | {"kind": kind}, failing=down)
    first, *_ = (AGAIN[name] for name in failing)
    assert ending == Ending("FAILED", "Service.Exception", f"{first} is down")
    assert not {"RecordSent", "RecordSentNews"} & {name for name, _ in execution.calls}
    for _ in range(2):
        before = len(execution.calls)
        assert execution.redrive() == ending
        assert {name for name, _ in execution.calls[before:]} == {first}
    down.clear()
    before = len(execution.calls)
    assert execution.redrive() == Ending("SUCCEEDED")
    recorded = {"fire": ["RecordSent"], "notice": []}.get(kind, ["RecordSentNews"])
    assert [name for name, _ in execution.calls[before:]] == [*(AGAIN[name] for name in failing), *recorded]
    for name in failing:
        assert execution.arguments_of(AGAIN[name])[-1] == execution.arguments_of(name)[0]
    if recorded:
        row = written(execution, recorded[0])
        assert row.pop("ActionAt")["S"].endswith("Z")
        assert row == {"Action": {"S": ALERT["action"]}} | ({"AlertId": {"S": "3f1c"}} if kind == "fire" else {})


def test_given_an_alert_that_fails_for_a_moment_when_sent_again_at_the_end_then_the_execution_is_no_failure(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, failing={"PublishAlert"}, outlasted=True)
    assert ending == Ending("SUCCEEDED")
    assert written(execution, "RecordOutcome")["AlertId"] == {"NULL": True}
    assert written(execution, "RecordSent")["AlertId"] == {"S": "3f1c"}


def test_given_a_step_that_failed_and_no_alert_unsent_when_redriven_then_nothing_is_repeated(
    machine: dict[str, Any],
) -> None:
    execution, ending = execute(machine, FIRE, failing={"BuildReport", "StopTrainingJob"})
    before = len(execution.calls)
    assert execution.redrive() == ending
    assert ending.error == STEP_FAILED
    assert execution.calls[before:] == []


@pytest.mark.parametrize("kind", ["fire", "escalation", "cleared", "notice"])
@pytest.mark.parametrize("made", [True, False, None])
def test_given_an_alert_that_is_sent_on_request_when_run_then_it_is_told_what_came_of_the_stop_and_stops_nothing(
    machine: dict[str, Any], kind: str, made: bool | None
) -> None:
    outcome = {"decision": STOP, "stop": {"made": made, "error": None}}
    fire = FIRE | {"kind": kind, "resend": {"of": "an-execution", "attempt": 1, **outcome}}
    execution, ending = execute(machine, fire)
    assert ending == Ending("SUCCEEDED")
    recorded = {"fire": {"RecordOutcome"}, "notice": set()}.get(kind, {"RecordNews"})
    assert {name for name, _ in execution.calls} == {*TOLD, *recorded}
    assert [call["Payload"] for call in execution.arguments_of("ComposeAlert")] == [{"fire": fire, **outcome}]
    if kind == "fire":
        assert written(execution, "RecordOutcome")["AlertId"] == {"S": "3f1c"}


@pytest.mark.parametrize(("made", "said"), [(True, "yes"), (False, "no"), (None, "unknown")])
def test_given_an_alert_that_is_sent_on_request_when_its_composition_fails_then_the_plain_one_claims_nothing_untrue(
    machine: dict[str, Any], made: bool | None, said: str
) -> None:
    outcome = {"decision": REFUSED, "stop": {"made": made, "error": None}}
    execution, _ = execute(machine, FIRE | {"resend": {"of": "one", "attempt": 1, **outcome}}, failing={"ComposeAlert"})
    (message,) = execution.arguments_of("PublishAlert")
    assert f"Training job stopped: {said}\n" in json.loads(message["Message"])["email"]
    attribute = {"yes": "true", "no": "false"}.get(said, said)
    assert message["MessageAttributes"]["Stopped"]["StringValue"] == attribute
