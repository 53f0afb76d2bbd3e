"""The fire machine, run in memory: whichever steps fail, all others run, and the execution says so at its end."""

import itertools
from collections.abc import Callable, Collection
from typing import Any

import pytest

from infra.constructs import report_machine
from infra.constructs.fire_machine import definition
from tests.infra.machines import assert_outwaits_its_function, assert_standard_and_logged, deployed_definition
from tests.infra.states_language import Ending, Execution, TaskError, state_names
from tests.infra.template import Template
from trainguard.running_costs.operating import FIRE_INVOCATIONS, FIRE_TRANSITIONS
from trainguard.stack.actions.unsent_alerts import STEP_FAILED

FIRE: dict[str, Any] = {
    "kind": "fire",
    "alertId": "3f1c",
    "severity": "high",
    "policy": {"alerts": {"staged": [], "muted": [], "quiet_hours": []}},
    "job": "llm-7b-2026-01-01",
    "jobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/llm-7b-2026-01-01",
    "rule": "LowGPUUtilization",
    "fireId": "3f1c",
    "episode": 0,
    "node": "algo-1",
    "reason": "95 % of the samples lie below 70 %.",
    "faults": ["of a notice"],
    "firedAt": "2026-01-01T12:34:00Z",
    "reportUri": "s3://profiles/report.json",
}
STOP = {"stop": True, "decision": "stop", "why": "the job carries the tag", "stopAt": None, "optedIn": True}
REFUSED = STOP | {"stop": False, "decision": "refused", "why": "the job did not opt in"}
GRACE = STOP | {"stop": False, "decision": "grace", "stopAt": "2026-01-01T12:44:00.000Z"}
NOTHING = STOP | {"stop": False, "decision": "none", "why": "", "optedIn": False}
OUTCOME = {"action": "Training job stopped: the job carries the tag.", "alertId": "3f1c"}
SENT: dict[str, Any] = {"sent": True, "waitUntil": None, "unsent": [], "faults": [], "outcome": OUTCOME}
WAITING = SENT | {"sent": False, "waitUntil": "2026-01-02T07:00:00.000Z", "outcome": {"action": "waits"}}
UNSENT = SENT | {"sent": False, "unsent": ["chat: it is down"], "outcome": {"action": "failed", "alertId": None}}
ALERT = ["SendAlert", "RecordAlert"]
STEPS = ["MarkFired", "DecideStop", "StopJob", *ALERT, "StartReport"]
GRACED = [*STEPS, "AwaitGraceEnd", "DecideStop", "StopJob", *ALERT]
FUNCTIONS = {
    "MarkFired": "RecordFire",
    "DecideStop": "DecideStop",
    "StopJob": "StopJob",
    "SendAlert": "SendAlert",
    "RecordAlert": "RecordFire",
    "SendUnsent": "SendAlert",
}
STARTED_BEFORE = "StepFunctions.ExecutionAlreadyExistsException"


class Run:
    """An execution whose functions answer as they do when all is well, or as a test says.

    Functions of ``failing`` fail at each attempt; ``decisions`` are answered one after the other.
    """

    def __init__(self, *decisions: Any, failing: Collection[str] = (), **answers: Any) -> None:
        self.failing = set(failing)
        self._decisions = iter(decisions or (STOP,))
        self._answers = {
            "SendAlert": SENT,
            "SendUnsent": SENT,
            **answers,
        }
        tasks = {name: self._task(name) for name in [*FUNCTIONS, "StartReport", "SendBareAlert"]}
        self.execution = Execution(definition(), tasks)

    def start(self, data: Any = FIRE) -> Ending:
        return self.execution.run(data)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.execution.calls]

    def given(self, state: str) -> Any:
        """Return what a step's function was given when it was called last."""
        return self.execution.arguments_of(state)[-1]["Payload"]

    def _task(self, name: str) -> Callable[[Any], Any]:
        def run(arguments: Any) -> Any:
            if name in FUNCTIONS:
                assert arguments["FunctionName"] == f"${{{FUNCTIONS[name]}Arn}}"
            if name in self.failing:
                raise TaskError("Fault", f"{name} is down")
            if name == "DecideStop":
                return {"Payload": next(self._decisions)}
            if name == "StopJob" and name not in self._answers:
                decision = arguments["Payload"]["decision"]
                stop = {"made": decision.get("stop") is True, "error": None}
                return {"Payload": {"decision": decision, "stop": stop, "faults": []}}
            answer = self._answers.get(name, {})
            return {"Payload": answer(arguments["Payload"]) if callable(answer) else answer}

        return run


def faults_of(ending: Ending) -> list[str]:
    """Return the steps that an ending names."""
    return [part.split(":")[0] for part in (ending.cause or "").split("; ")]


def test_fire_runs_every_step_in_order() -> None:
    run = Run()
    assert run.start() == Ending("SUCCEEDED")
    assert run.names == STEPS
    assert run.given("MarkFired") == {"fire": FIRE}
    assert run.given("DecideStop") == FIRE | {"attempt": "first", "warned": True}
    assert run.given("StopJob") == {"fire": FIRE, "decision": STOP}
    stop = {"made": True, "error": None}
    assert run.given("SendAlert") == {
        "fire": FIRE,
        "decision": STOP,
        "stop": stop,
        "due": False,
        "execution": "an-execution",
    }
    assert run.given("RecordAlert") == {"fire": FIRE, "alert": OUTCOME}
    assert run.execution.arguments_of("StartReport") == [
        {
            "StateMachineArn": "${ReportMachineArn}",
            "Name": "an-execution",
            "Input": {"job": FIRE["job"], "kind": "fire", "fire": FIRE},
        }
    ]


def test_fire_costs_what_the_model_says() -> None:
    run = Run()
    run.start()
    (started,) = run.execution.arguments_of("StartReport")
    tasks = dict.fromkeys(("BuildFromState", "RecordFire"), lambda _: {"Payload": {"reportUri": "s3://report.html"}})
    report = Execution(report_machine.definition(), tasks)
    assert report.run(started["Input"]) == Ending("SUCCEEDED")
    assert [name for name, _ in report.calls] == [*tasks]
    assert len(run.names) - 1 + len(report.calls) == FIRE_INVOCATIONS
    assert run.execution.entered + report.entered == FIRE_TRANSITIONS


@pytest.mark.parametrize("count", range(len(STEPS) + 1))
def test_any_failing_steps_keep_no_other_from_running(count: int) -> None:
    for failing in itertools.combinations(STEPS, count):
        run = Run(failing=failing)
        ending = run.start()
        resent = {"SendBareAlert", "SendUnsent"} if "SendAlert" in failing else set()
        assert set(run.names) == {*STEPS} | resent
        named = {*failing} - {"SendAlert"}
        assert ending.error == (STEP_FAILED if named else None)
        assert set(faults_of(ending)) - {""} == named


def test_failing_decision_is_undecided_and_told() -> None:
    run = Run(failing={"DecideStop"})
    assert faults_of(run.start()) == ["DecideStop"]
    undecided = NOTHING | {"decision": "undecided", "why": "Fault: DecideStop is down"}
    assert run.given("StopJob")["decision"] == run.given("SendAlert")["decision"] == undecided


@pytest.mark.parametrize(("decision", "made"), [(STOP, None), (REFUSED, False)])
def test_failing_stop_step_claims_no_outcome(decision: Any, made: bool | None) -> None:
    run = Run(decision, failing={"StopJob"})
    assert faults_of(run.start()) == ["StopJob"]
    assert run.given("SendAlert")["stop"] == {"made": made, "error": "Fault: StopJob is down"}


def test_alert_tells_what_the_stop_step_answers() -> None:
    stop = {"made": False, "error": "denied"}
    run = Run(StopJob={"decision": REFUSED, "stop": stop, "faults": ["StopJob: denied"]})
    assert run.start() == Ending("FAILED", STEP_FAILED, "StopJob: denied")
    assert (run.given("SendAlert")["decision"], run.given("SendAlert")["stop"]) == (REFUSED, stop)


def test_grace_warns_waits_and_decides_again() -> None:
    run = Run(GRACE, STOP)
    assert run.start() == Ending("SUCCEEDED")
    assert run.names == GRACED
    warned, told = (each["Payload"] for each in run.execution.arguments_of("SendAlert"))
    assert (warned["fire"], warned["decision"], warned["due"]) == (FIRE | {"kind": "warning"}, GRACE, False)
    assert (told["fire"], told["decision"]) == (FIRE, STOP)
    recorded = [each["Payload"]["fire"]["kind"] for each in run.execution.arguments_of("RecordAlert")]
    assert recorded == ["warning", "fire"]
    assert run.execution.arguments_of("AwaitGraceEnd") == [GRACE["stopAt"]]
    assert run.given("DecideStop") == FIRE | {"attempt": "final", "warned": True}
    decisions = [each["Payload"]["decision"] for each in run.execution.arguments_of("StopJob")]
    assert decisions == [GRACE, STOP]


def test_agent_is_asked_until_it_has_answered() -> None:
    decision = STOP | {"kind": "workload", "action": "suspend", "resources": ["prod/job/team-a/train"]}
    results = iter([{"made": False, "error": None, "pending": True}] * 2 + [{"made": True, "error": None}])
    run = Run(decision, StopJob=lambda given: {"decision": given["decision"], "stop": next(results), "faults": []})
    assert run.start() == Ending("SUCCEEDED")
    assert run.names == ["MarkFired", "DecideStop", *["StopJob", "AwaitAgent"] * 2, *STEPS[2:]]
    assert run.given("SendAlert")["stop"] == {"made": True, "error": None}


@pytest.mark.parametrize("warned", [TaskError("Fault", "SendAlert is down"), UNSENT, {**SENT, "sent": False}])
def test_unsent_warning_is_told_to_the_final_decision(warned: Any) -> None:
    def answer(given: Any) -> Any:
        if given["fire"]["kind"] == "fire":
            return SENT
        if isinstance(warned, TaskError):
            raise warned
        return warned

    run = Run(GRACE, REFUSED, SendAlert=answer)
    ending = run.start()
    assert run.given("DecideStop")["warned"] is False
    assert run.execution.arguments_of("AwaitGraceEnd") != [GRACE["stopAt"]]
    assert run.given("SendAlert")["decision"] == REFUSED
    assert "SendBareAlert" not in run.names
    told = {"Fault": ["SendAlert"], "chat": ["chat"]}
    assert faults_of(ending) == next((names for text, names in told.items() if text in (ending.cause or "")), [""])


def test_grace_of_a_final_decision_ends_the_waiting() -> None:
    run = Run(GRACE, GRACE)
    assert run.start() == Ending("SUCCEEDED")
    kinds = [each["Payload"]["fire"]["kind"] for each in run.execution.arguments_of("SendAlert")]
    assert kinds == ["warning", "fire"]


@pytest.mark.parametrize("step", STEPS)
def test_failing_step_of_a_graced_stop_is_named(step: str) -> None:
    run = Run(GRACE, STOP, failing={step})
    assert {*faults_of(run.start())} == {step}
    assert "SendAlert" in run.names
    assert run.names.count("StartReport") == (4 if step == "StartReport" else 1)


def test_report_that_was_started_before_is_no_fault() -> None:
    run = Run()

    def started(_: Any) -> Any:
        raise TaskError(STARTED_BEFORE, "it is there")

    run.execution.tasks = {**run.execution.tasks, "StartReport": started}
    assert run.start() == Ending("SUCCEEDED")
    assert run.names == STEPS


def test_quiet_hours_delay_the_alert_alone() -> None:
    answers = iter([WAITING, SENT])
    run = Run(SendAlert=lambda _: next(answers))
    assert run.start() == Ending("SUCCEEDED")
    waiting = [*ALERT, "StartReport", "AwaitQuietEnd", *ALERT]
    assert run.names == [*STEPS[:3], *waiting]
    assert run.execution.arguments_of("AwaitQuietEnd") == [WAITING["waitUntil"]]
    assert [each["Payload"]["due"] for each in run.execution.arguments_of("SendAlert")] == [False, True]
    recorded = [each["Payload"]["alert"] for each in run.execution.arguments_of("RecordAlert")]
    assert recorded == [WAITING["outcome"], OUTCOME]


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("escalation", [*ALERT, "StartReport"]),
        ("cause", [*ALERT, "StartReport"]),
        ("cleared", ALERT),
        ("notice", ALERT),
    ],
)
def test_later_notification_marks_and_stops_nothing(kind: str, steps: list[str]) -> None:
    later = FIRE | {"kind": kind}
    run = Run()
    assert run.start(later) == Ending("SUCCEEDED")
    assert run.names == steps
    nothing = {"decision": NOTHING, "stop": {"made": False, "error": None}}
    assert run.given("SendAlert") == {"fire": later, **nothing, "due": False, "execution": "an-execution"}


@pytest.mark.parametrize("kind", ["fire", "escalation", "cleared", "notice"])
def test_resend_sends_and_records_and_does_nothing_else(kind: str) -> None:
    late = FIRE | {"kind": kind, "resend": {"of": "one", "attempt": 1, "decision": STOP, "stop": {"made": True}}}
    run = Run()
    assert run.start(late) == Ending("SUCCEEDED")
    assert run.names == ["SendAlert", "RecordAlert"]
    assert run.given("SendAlert")["fire"] == late


@pytest.mark.parametrize("kind", ["fire", "escalation", "cleared", "notice"])
@pytest.mark.parametrize("first", [{"SendAlert": UNSENT}, {"failing": {"SendAlert"}}])
def test_redrive_sends_what_was_not_sent_and_no_more(kind: str, first: Any) -> None:
    run = Run(**first)
    run.failing.add("SendUnsent")
    ending = run.start(FIRE | {"kind": kind})
    assert ending == Ending("FAILED", "Fault", "SendUnsent is down")
    before = len(run.names)
    assert run.execution.redrive() == ending
    assert {*run.names[before:]} == {"SendUnsent"}
    run.failing.remove("SendUnsent")
    before = len(run.names)
    assert run.execution.redrive() == Ending("SUCCEEDED")
    assert run.names[before:] == ["SendUnsent", "RecordAlert"]
    given = run.given("SendAlert") | {"due": True, "last": True}
    assert run.given("SendUnsent") == given
    assert run.given("RecordAlert") == {"fire": given["fire"], "alert": OUTCOME}


def test_alert_that_is_sent_at_the_end_is_no_failure() -> None:
    run = Run(SendAlert=UNSENT)
    assert run.start() == Ending("SUCCEEDED")
    recorded = [each["Payload"]["alert"] for each in run.execution.arguments_of("RecordAlert")]
    assert recorded == [UNSENT["outcome"], OUTCOME]
    assert run.names[-2:] == ["SendUnsent", "RecordAlert"]


def test_people_hear_of_a_fire_though_the_alert_cannot_be_sent() -> None:
    run = Run(failing={"SendAlert", "SendUnsent"})
    assert run.start().error == "Fault"
    (bare,) = run.execution.arguments_of("SendBareAlert")
    assert bare["TopicArn"] == "${AlertTopicArn}"
    assert bare["Message"].splitlines() == [
        "LowGPUUtilization (fire) on training job llm-7b-2026-01-01",
        "Training job stopped: yes",
        "Report: s3://profiles/report.json",
    ]
    assert {name: value["StringValue"] for name, value in bare["MessageAttributes"].items()} == {
        "AlertId": "3f1c",
        "Job": "llm-7b-2026-01-01",
        "Rule": "LowGPUUtilization",
        "Kind": "fire",
        "Severity": "high",
        "Stopped": "true",
    }


def test_bare_alert_that_fails_is_named() -> None:
    run = Run(failing={"SendAlert", "SendBareAlert"})
    assert faults_of(run.start()) == ["SendBareAlert"]
    assert run.names[-2:] == ["SendUnsent", "RecordAlert"]


def test_bare_alert_of_a_stop_that_is_not_known_says_so() -> None:
    run = Run(failing={"SendAlert", "StopJob"})
    run.start()
    (bare,) = run.execution.arguments_of("SendBareAlert")
    assert bare["Message"].splitlines()[1] == "Training job stopped: unknown"
    assert bare["MessageAttributes"]["Stopped"]["StringValue"] == "unknown"


@pytest.mark.parametrize(
    ("given", "kind"),
    [({"jobArn": "unknown:trainguard-canary"}, "canary"), ({"canary": True}, "canary"), ({}, "fire")],
)
def test_bare_alert_of_a_canary_is_left_out_by_its_kind(given: dict[str, Any], kind: str) -> None:
    run = Run(failing={"SendAlert"})
    run.start(FIRE | {"job": "trainguard-canary-20260101-000000-0123456789ab"} | given)
    (bare,) = run.execution.arguments_of("SendBareAlert")
    assert bare["MessageAttributes"]["Kind"]["StringValue"] == kind


@pytest.mark.parametrize("rules", [["LowGPUUtilization"], ["all", "CPUBottleneck"]])
@pytest.mark.parametrize(
    ("name", "decision", "kind", "is_told"),
    [
        ("staged", STOP, "fire", False),
        ("staged", REFUSED, "notice", True),
        ("muted", STOP, "fire", True),
        ("muted", REFUSED, "fire", False),
        ("muted", REFUSED, "cleared", False),
    ],
)
def test_bare_alert_is_withheld_like_any(rules: list[str], name: str, decision: Any, kind: str, is_told: bool) -> None:
    run = Run(decision, failing={"SendAlert"})
    run.start(FIRE | {"kind": kind, "policy": {"alerts": {"staged": [], "muted": [], name: rules}}})
    assert ("SendBareAlert" in run.names) == is_told


def test_late_alert_that_fails_is_not_sent_bare_again() -> None:
    run = Run(failing={"SendAlert", "SendUnsent"})
    run.start(FIRE | {"resend": {"of": "one", "attempt": 1, "decision": STOP, "stop": {"made": True}}})
    assert "SendBareAlert" not in run.names


def test_unrecorded_late_alert_is_named() -> None:
    run = Run(SendAlert=UNSENT, failing={"RecordAlert", "StartReport"})
    assert faults_of(run.start()) == ["RecordAlert", "StartReport", "RecordAlert"]


def test_redrive_repeats_nothing_when_the_alert_was_sent() -> None:
    run = Run(failing={"StartReport", "StopJob"})
    ending = run.start()
    before = len(run.names)
    assert run.execution.redrive() == ending
    assert run.names[before:] == []


@pytest.mark.parametrize("step", FUNCTIONS)
def test_account_without_a_free_function_loses_nothing(step: str) -> None:
    run = Run(GRACE, STOP, SendAlert=lambda given: SENT if given["fire"]["kind"] == "warning" else UNSENT)
    answer = run.execution.tasks[step]
    refused = iter(range(10))

    def throttled(arguments: Any) -> Any:
        if next(refused, None) is not None:
            raise TaskError("Lambda.TooManyRequestsException", "Rate Exceeded.")
        return answer(arguments)

    run.execution.tasks = {**run.execution.tasks, step: throttled}
    assert run.start() == Ending("SUCCEEDED")
    assert run.names.count(step) == 11 + {"MarkFired": 0, "SendUnsent": 0, "RecordAlert": 2}.get(step, 1)


def test_machine_is_standard_logged_and_limited(template: Template) -> None:
    assert_standard_and_logged(template, "ActionsFire")
    machine = deployed_definition(template, "ActionsFire")
    assert (machine["QueryLanguage"], machine["TimeoutSeconds"]) == ("JSONata", 9 * 86_400)


def test_tasks_outwait_their_functions(template: Template) -> None:
    machine = deployed_definition(template, "ActionsFire")
    for name, function in FUNCTIONS.items():
        assert_outwaits_its_function(template, machine["States"][name], f"Actions{function}")


def test_machine_can_be_read_at_night() -> None:
    assert len(list(state_names(definition()))) <= 16
