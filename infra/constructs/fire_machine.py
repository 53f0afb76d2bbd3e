"""The fire state machine, in Amazon States Language with JSONata.

An execution handles one fire: it marks the rule's row, decides, stops where opted in, alerts, and reports from state;
or it sends a follow-up, or a notice of faults in a job's settings. With ``resend`` it only sends another one's alert.

Each task calls a function that does one thing, once however often it is asked. No step and no branch keeps another from
running, but for a stop: what could not be announced or recorded is not done. Faults fail the execution at its very end.
An alert that was not sent fails it in `SendUnsent`, from which a redrive sends the alert and repeats nothing else.
"""

from infra.constructs.states import ERROR_TEXT, RETRY, TASK_TIMEOUT_S, State, call, choice
from trainguard.core.canary_name import CANARY_KIND, CANARY_PREFIX
from trainguard.core.records import OUTSIDE_ARN
from trainguard.stack.actions.unsent_alerts import STEP_FAILED

# Longer than the function that builds reports may run.
REPORT_TIMEOUT_S = 610

# Longer than a day of grace and a week of quiet hours; what works and does not wait is limited task by task.
EXECUTION_TIMEOUT_S = 9 * 86_400

# Between two questions whether a cluster's agent has answered.
AGENT_POLL_S = 10

# The execution's input: a redriven state has it too, and has no variables.
_FIRE = "$states.context.Execution.Input"

# A brake may silence the alert; it is sent later by the execution's name.
_EXECUTION = "{% $states.context.Execution.Name %}"

_IS_RESEND = f"$type({_FIRE}.resend) = 'object'"
_IS_NEW_FIRE = f"{_FIRE}.kind = 'fire' and $not({_IS_RESEND})"
_ANSWER = "$states.result.Payload"
_UNDECIDED: State = {
    "stop": False,
    "decision": "undecided",
    "why": f"{{% {ERROR_TEXT} %}}",
    "stopAt": None,
    "optedIn": False,
}
# The variables of the branch that acts, before anything is done; ``faults`` has ``<state>: <error>: <cause>``.
_NOTHING: State = {
    "attempt": "first",
    "warned": True,
    "due": False,
    "decision": {"stop": False, "decision": "none", "why": "", "stopAt": None, "optedIn": False},
    "stop": {"made": False, "error": None},
    "alert": {"waitUntil": None, "unsent": [], "outcome": {"action": "", "alertId": None}},
    "faults": [],
}


PUBLISH = "sns:publish"

_NAMES = f"[{_FIRE}.rule, 'all']"
_IS_STAGED = f"$exists({_NAMES}[$ in {_FIRE}.policy.alerts.staged])"
_IS_MUTED = f"$exists({_NAMES}[$ in {_FIRE}.policy.alerts.muted])"
# Whether people are alerted without its details: nothing of a staged rule, and of a muted one only of a stop.
_IS_NOTIFIED = (
    f"$not({_IS_RESEND}) and"
    f" ({_FIRE}.kind = 'notice' or ($not({_IS_STAGED}) and ($stop.made != false or $not({_IS_MUTED}))))"
)

_IS_CANARY = (
    f"$substring({_FIRE}.job, 0, {len(CANARY_PREFIX)}) = '{CANARY_PREFIX}'"
    f" and ({_FIRE}.canary = true or $substring({_FIRE}.jobArn, 0, {len(OUTSIDE_ARN)}) = '{OUTSIDE_ARN}')"
)
_STOPPED = "$type($stop.made) = 'null' ? 'unknown' : $stop.made ? 'yes' : 'no'"
# Subscriptions filter by these; see `Alert`.
_ATTRIBUTES = {
    "AlertId": f"$type({_FIRE}.alertId) = 'string' ? {_FIRE}.alertId : {_FIRE}.fireId",
    "Job": f"{_FIRE}.job",
    "Rule": f"{_FIRE}.rule",
    "Kind": f"{_IS_CANARY} ? '{CANARY_KIND}' : {_FIRE}.kind",
    "Severity": f"$type({_FIRE}.severity) = 'string' ? {_FIRE}.severity : 'unknown'",
    "Stopped": "$type($stop.made) = 'null' ? 'unknown' : $string($stop.made)",
}


def definition() -> State:
    return {
        "Comment": "Handles one fire of a rule, or a later notification about it: stop where opted in, alert, report",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": EXECUTION_TIMEOUT_S,
        "StartAt": "IsNew",
        "States": {
            "IsNew": choice(_IS_NEW_FIRE, then="MarkFired", otherwise="ActAndReport"),
            "MarkFired": {
                **call("RecordFire", {"fire": _expression(_FIRE)}, following="ActAndReport"),
                "Output": {"markFaults": []},
                "Catch": [_caught("ActAndReport", Output={"markFaults": [_fault("MarkFired")]})],
            },
            "ActAndReport": {
                "Type": "Parallel",
                "Branches": [_act_branch(), _report_branch()],
                "Output": {
                    "faults": "{% [$states.input.markFaults, $states.result.faults] %}",
                    **{name: f"{{% $states.result[0].{name} %}}" for name in ("decision", "stop")},
                    "unsent": "{% [$states.result.unsent] %}",
                },
                "Next": "IsAllDone",
            },
            **_ending_states(),
        },
    }


def _act_branch() -> State:
    """Decide, stop, alert, record: each step runs whatever the result of the one before."""
    return {
        "StartAt": "Begin",
        "States": {
            "Begin": {"Type": "Pass", "Assign": _NOTHING, "Next": "MayStop"},
            "MayStop": choice(_IS_NEW_FIRE, then="DecideStop", otherwise="SendAlert"),
            **_stopping_states(),
            **_alerting_states(),
            "Acted": {
                "Type": "Pass",
                "Output": {
                    **{name: f"{{% ${name} %}}" for name in ("faults", "decision", "stop")},
                    "unsent": "{% $alert.unsent %}",
                },
                "End": True,
            },
        },
    }


def _stopping_states() -> State:
    """Decide, and carry out the decision; with a grace time warn, wait, and decide and carry out once more."""
    asked = f"$merge([{_FIRE}, {{'attempt': $attempt, 'warned': $warned}}])"
    unknown = "{'made': $decision.stop = true ? null : false, 'error': " + ERROR_TEXT + "}"
    warned = {"attempt": "final", "warned": _expression(f"{_ANSWER}.sent = true")}
    return {
        "DecideStop": {
            **call("DecideStop", _expression(asked), following="StopJob"),
            "Assign": {"decision": _expression(_ANSWER)},
            "Catch": [_caught("StopJob", Assign={"decision": _UNDECIDED, "faults": _with_fault("DecideStop")})],
        },
        "StopJob": {
            **call(
                "StopJob",
                {"fire": _expression(_FIRE), "decision": "{% $decision %}"},
                following="HasGrace",
            ),
            "Assign": {
                "decision": _expression(f"{_ANSWER}.decision"),
                "stop": _expression(f"{_ANSWER}.stop"),
                "faults": _expression(f"[$faults, {_ANSWER}.faults]"),
            },
            "Catch": [_caught("HasGrace", Assign={"stop": _expression(unknown), "faults": _with_fault("StopJob")})],
        },
        "AwaitAgent": {"Type": "Wait", "Seconds": AGENT_POLL_S, "Next": "StopJob"},
        "HasGrace": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $stop.pending = true %}", "Next": "AwaitAgent"},
                {"Condition": "{% $attempt = 'first' and $decision.decision = 'grace' %}", "Next": "Warn"},
            ],
            "Default": "SendAlert",
        },
        "Warn": {
            **call(
                "SendAlert",
                {"fire": _expression(f"$merge([{_FIRE}, {{'kind': 'warning'}}])"), "decision": "{% $decision %}"},
                following="AwaitGraceEnd",
            ),
            "Assign": {**warned, "faults": _expression(f"[$faults, {_ANSWER}.faults, {_ANSWER}.unsent]")},
            "Catch": [
                _caught("AwaitGraceEnd", Assign={"attempt": "final", "warned": False, "faults": _with_fault("Warn")})
            ],
        },
        "AwaitGraceEnd": {
            "Type": "Wait",
            "Timestamp": "{% $warned ? $decision.stopAt : $now() %}",
            "Next": "DecideStop",
        },
    }


def _alerting_states() -> State:
    """Send the alert, or wait with it for the end of quiet hours, and record what was done.

    Where the function that sends cannot run, people are alerted at once to the fire and the job's state.
    """
    outcome = {"decision": "{% $decision %}", "stop": "{% $stop %}"}
    unsent = {
        **_NOTHING["alert"],
        "unsent": [_fault("SendAlert")],
        "outcome": {"action": _expression(f"'alert failed (' & {ERROR_TEXT} & ')'"), "alertId": None},
    }
    return {
        "SendAlert": {
            **call(
                "SendAlert",
                {"fire": _expression(_FIRE), **outcome, "due": "{% $due %}", "execution": _EXECUTION},
                following="RecordAlert",
            ),
            "Assign": {
                "alert": _expression(_ANSWER),
                "faults": _expression(f"[$faults, {_ANSWER}.faults]"),
                "due": True,
            },
            "Catch": [_caught("IsTold", Assign={"alert": unsent})],
        },
        "IsTold": choice(_IS_NOTIFIED, then="SendBareAlert", otherwise="RecordAlert"),
        "SendBareAlert": {
            "Type": "Task",
            "Resource": f"arn:${{Partition}}:states:::{PUBLISH}",
            "Arguments": _bare_alert(),
            "TimeoutSeconds": TASK_TIMEOUT_S,
            "Retry": RETRY,
            "Next": "RecordAlert",
            "Catch": [_caught("RecordAlert", Assign={"faults": _with_fault("SendBareAlert")})],
        },
        "RecordAlert": {
            **call(
                "RecordFire",
                {"fire": _expression(_FIRE), "alert": "{% $alert.outcome %}"},
                following="HasToWait",
            ),
            "Catch": [_caught("HasToWait", Assign={"faults": _with_fault("RecordAlert")})],
        },
        "HasToWait": choice("$type($alert.waitUntil) = 'string'", then="AwaitQuietEnd", otherwise="Acted"),
        "AwaitQuietEnd": {"Type": "Wait", "Timestamp": "{% $alert.waitUntil %}", "Next": "SendAlert"},
    }


def _bare_alert() -> State:
    """Return the message where `send_alert` cannot run: no foreign text but names."""
    text = (
        f"{_FIRE}.rule & ' (' & {_FIRE}.kind & ') on training job ' & {_FIRE}.job"
        f" & '\\nTraining job stopped: ' & ({_STOPPED}) & '\\nReport: ' & {_FIRE}.reportUri"
    )
    return {
        "TopicArn": "${AlertTopicArn}",
        "Subject": "TrainGuard: an alert without its details",
        "Message": _expression(text),
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": _expression(value)} for name, value in _ATTRIBUTES.items()
        },
    }


def _report_branch() -> State:
    """Build the report of a fire, an escalation or a known cause from state, and record its place in the row."""
    is_reported = f"{_FIRE}.kind in ['fire', 'escalation', 'cause'] and $not({_IS_RESEND})"
    place = {"fire": _expression(_FIRE), "reportUri": _expression("$states.input.reportUri")}
    return {
        "StartAt": "HasReport",
        "States": {
            "HasReport": choice(is_reported, then="BuildReport", otherwise="Reported"),
            "BuildReport": {
                **call(
                    "BuildReport",
                    _expression(f"$merge([{_FIRE}, {{'kind': 'fire'}}])"),
                    following="RecordReport",
                    timeout_s=REPORT_TIMEOUT_S,
                ),
                "Output": _expression(_ANSWER),
                "Catch": [_caught("Reported", Output={"reportFaults": [_fault("BuildReport")]})],
            },
            "RecordReport": {
                **call("RecordFire", place, following="Reported"),
                "Output": {"reportFaults": []},
                "Catch": [_caught("Reported", Output={"reportFaults": [_fault("RecordReport")]})],
            },
            "Reported": {"Type": "Pass", "Output": {"faults": "{% [$states.input.reportFaults] %}"}, "End": True},
        },
    }


def _ending_states() -> State:
    """Send what was not sent, and end well or say what failed; starts with ``IsAllDone``."""
    outcome = {name: f"{{% $states.input.{name} %}}" for name in ("decision", "stop")}
    return {
        "IsAllDone": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $count([$states.input.unsent]) > 0 %}", "Next": "SendUnsent"},
                {"Condition": "{% $count([$states.input.faults]) = 0 %}", "Next": "Done"},
            ],
            "Default": "StepFailed",
        },
        "SendUnsent": {
            **call(
                "SendAlert",
                {"fire": _expression(_FIRE), **outcome, "due": True, "last": True, "execution": _EXECUTION},
                following="RecordSent",
            ),
            "Output": {
                "faults": _expression(f"[$states.input.faults, {_ANSWER}.faults]"),
                "unsent": [],
                "outcome": _expression(f"{_ANSWER}.outcome"),
            },
        },
        "RecordSent": {
            **call(
                "RecordFire",
                {"fire": _expression(_FIRE), "alert": _expression("$states.input.outcome")},
                following="IsAllDone",
            ),
            "Output": _expression("$states.input"),
            "Catch": [
                _caught(
                    "IsAllDone",
                    Output={
                        "faults": _expression(f"[$states.input.faults, {_noted('RecordSent')}]"),
                        "unsent": [],
                    },
                )
            ],
        },
        "Done": {"Type": "Succeed"},
        "StepFailed": {
            "Type": "Fail",
            "Error": STEP_FAILED,
            "Cause": "{% $join([$states.input.faults], '; ') %}",
        },
    }


def _caught(following: str, **kept: object) -> State:
    return {"ErrorEquals": ["States.ALL"], **kept, "Next": following}


def _expression(text: str) -> str:
    return f"{{% {text} %}}"


def _noted(name: str) -> str:
    return f"'{name}: ' & {ERROR_TEXT}"


def _fault(name: str) -> str:
    return _expression(_noted(name))


def _with_fault(name: str) -> str:
    return _expression(f"[$faults, {_noted(name)}]")
