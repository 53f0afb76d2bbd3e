"""The fire state machine, in Amazon States Language with JSONata.

An execution handles one fire: it marks the rule's row, decides, stops where opted in, alerts, records, and has the
report built; or it sends a follow-up, or a notice of faults in a job's settings. With ``resend`` it only sends another
one's alert.

Each task calls a function that does one thing, once however often it is asked. No step keeps another from running, but
for a stop: what could not be announced or recorded is not done. Faults fail the execution at its very end. An alert
that was not sent fails it in `SendUnsent`, from which a redrive sends the alert and repeats nothing else.

The states pass on what was seen so far, which the console shows at each of them:

======== =============================================================================================================
attempt  ``first``, after a grace time ``final``
warned   whether people know of the stop that comes at the end of the grace time
due      whether quiet hours are over
decision answer of `decide_stop`
stop     result of `stop_job`
alert    answer of `send_alert`; ``bare`` where it could not run, and people are to know at least of the fire
reported whether the report's execution was started, or could not be
faults   what went wrong, ``<state>: <error>: <cause>`` each
======== =============================================================================================================
"""

from collections.abc import Mapping

from infra.constructs.states import ERROR_TEXT, RETRY, TASK_TIMEOUT_S, State, call
from trainguard.core.canary_name import CANARY_KIND, CANARY_PREFIX
from trainguard.core.records import OUTSIDE_ARN
from trainguard.stack.actions.unsent_alerts import STEP_FAILED

# Longer than a day of grace and a week of quiet hours; what works and does not wait is limited task by task.
EXECUTION_TIMEOUT_S = 9 * 86_400

# Between two questions whether a cluster's agent has answered.
AGENT_POLL_S = 10

PUBLISH = "sns:publish"
START = "states:startExecution"
_STARTED_BEFORE = "StepFunctions.ExecutionAlreadyExistsException"

# The execution's input, and its name: a brake may silence the alert, which is sent later by that name.
_FIRE = "$states.context.Execution.Input"
_EXECUTION = "{% $states.context.Execution.Name %}"
_SEEN = "$states.input"
_ANSWER = "$states.result.Payload"

_IS_RESEND = f"$type({_FIRE}.resend) = 'object'"
_IS_NEW_FIRE = f"{_FIRE}.kind = 'fire' and $not({_IS_RESEND})"
_HAS_REPORT = f"{_FIRE}.kind in ['fire', 'escalation', 'cause'] and $not({_IS_RESEND})"
# A stop with a grace time is warned of, and decided on once more at its end.
_IS_WARNING = f"({_SEEN}.attempt = 'first' and {_SEEN}.decision.decision = 'grace')"

_UNSENT = "'waitUntil': null, 'sent': false"
_UNDECIDED = f"{{'stop': false, 'decision': 'undecided', 'why': {ERROR_TEXT}, 'stopAt': null, 'optedIn': false}}"
_NOTHING: State = {
    "attempt": "first",
    "warned": True,
    "due": False,
    "decision": {"stop": False, "decision": "none", "why": "", "stopAt": None, "optedIn": False},
    "stop": {"made": False, "error": None},
    "reported": False,
    "faults": [],
}

_NAMES = f"[{_FIRE}.rule, 'all']"
_IS_STAGED = f"$exists({_NAMES}[$ in {_FIRE}.policy.alerts.staged])"
_IS_MUTED = f"$exists({_NAMES}[$ in {_FIRE}.policy.alerts.muted])"
# Whether people are alerted without its details: nothing of a staged rule, and of a muted one only of a stop.
_IS_TOLD_BARE = (
    f"$not({_IS_RESEND}) and $not({_IS_WARNING}) and"
    f" ({_FIRE}.kind = 'notice' or ($not({_IS_STAGED}) and ({_SEEN}.stop.made != false or $not({_IS_MUTED}))))"
)

_IS_CANARY = (
    f"$substring({_FIRE}.job, 0, {len(CANARY_PREFIX)}) = '{CANARY_PREFIX}'"
    f" and ({_FIRE}.canary = true or $substring({_FIRE}.jobArn, 0, {len(OUTSIDE_ARN)}) = '{OUTSIDE_ARN}')"
)
_IS_UNKNOWN = f"$type({_SEEN}.stop.made) = 'null'"
_STOPPED = f"{_IS_UNKNOWN} ? 'unknown' : {_SEEN}.stop.made ? 'yes' : 'no'"
# Subscriptions filter by these; see `Alert`.
_ATTRIBUTES = {
    "AlertId": f"$type({_FIRE}.alertId) = 'string' ? {_FIRE}.alertId : {_FIRE}.fireId",
    "Job": f"{_FIRE}.job",
    "Rule": f"{_FIRE}.rule",
    "Kind": f"{_IS_CANARY} ? '{CANARY_KIND}' : {_FIRE}.kind",
    "Severity": f"$type({_FIRE}.severity) = 'string' ? {_FIRE}.severity : 'unknown'",
    "Stopped": f"{_IS_UNKNOWN} ? 'unknown' : $string({_SEEN}.stop.made)",
}


def definition() -> State:
    return {
        "Comment": "Handles one fire of a rule, or a later notification about it: stop where opted in, alert, report",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": EXECUTION_TIMEOUT_S,
        "StartAt": "IsNew",
        "States": {
            "IsNew": {
                "Type": "Choice",
                "Choices": [{**_when(_IS_NEW_FIRE, then="MarkFired"), "Output": _NOTHING}],
                "Default": "SendAlert",
                "Output": _NOTHING,
            },
            "MarkFired": {
                **call("RecordFire", {"fire": _expression(_FIRE)}, following="DecideStop"),
                "Output": _expression(_SEEN),
                "Catch": [_caught("MarkFired", "DecideStop")],
            },
            **_stopping_states(),
            **_alerting_states(),
            "Done": {"Type": "Succeed"},
            "StepFailed": {
                "Type": "Fail",
                "Error": STEP_FAILED,
                "Cause": _expression(f"$join([{_SEEN}.faults], '; ')"),
            },
        },
    }


def _stopping_states() -> State:
    """Decide, and carry out the decision, on a cluster until its agent has answered."""
    asked = f"$merge([{_FIRE}, {{'attempt': {_SEEN}.attempt, 'warned': {_SEEN}.warned}}])"
    unknown = f"{{'made': {_SEEN}.decision.stop = true ? null : false, 'error': {ERROR_TEXT}}}"
    return {
        "DecideStop": {
            **call("DecideStop", _expression(asked), following="StopJob"),
            "Output": _with(decision=_ANSWER),
            "Catch": [_caught("DecideStop", "StopJob", decision=_UNDECIDED)],
        },
        "StopJob": {
            **call(
                "StopJob",
                {"fire": _expression(_FIRE), "decision": _expression(f"{_SEEN}.decision")},
                following="IsAnswered",
            ),
            "Output": _with(decision=f"{_ANSWER}.decision", stop=f"{_ANSWER}.stop", faults=_more(f"{_ANSWER}.faults")),
            "Catch": [_caught("StopJob", "IsAnswered", stop=unknown)],
        },
        "IsAnswered": {
            "Type": "Choice",
            "Choices": [_when(f"{_SEEN}.stop.pending = true", then="AwaitAgent")],
            "Default": "SendAlert",
        },
        "AwaitAgent": {"Type": "Wait", "Seconds": AGENT_POLL_S, "Next": "StopJob"},
    }


def _alerting_states() -> State:
    """Send the alert or the warning, record it, start the report, and wait for the end of grace time or quiet hours.

    Where the function that sends cannot run, people are alerted at once to the fire and the job's state.
    """
    outcome = {name: _expression(f"{_SEEN}.{name}") for name in ("decision", "stop", "due")}
    fire = f"$merge([{_FIRE}, {_IS_WARNING} ? {{'kind': 'warning'}} : {{}}])"
    failed = (
        f"{{{_UNSENT}, 'unsent': [{_noted('SendAlert')}], 'bare': {_IS_TOLD_BARE},"
        f" 'outcome': {{'action': 'alert failed (' & {ERROR_TEXT} & ')', 'alertId': null}}}}"
    )
    sent = {"Output": _with(alert=_ANSWER, faults=_more(f"{_ANSWER}.faults"))}
    reported = _with(reported="true")
    told = f"$merge([{_SEEN}.alert, {{'bare': false}}])"
    return {
        "SendAlert": {
            **call(
                "SendAlert",
                {"fire": _expression(fire), **outcome, "execution": _EXECUTION},
                following="RecordAlert",
            ),
            **sent,
            "Catch": [{"ErrorEquals": ["States.ALL"], "Output": _with(alert=failed), "Next": "RecordAlert"}],
        },
        "RecordAlert": {
            **call(
                "RecordFire",
                {"fire": _expression(fire), "alert": _expression(f"{_SEEN}.alert.outcome")},
                following="IsDone",
            ),
            "Output": _expression(_SEEN),
            "Catch": [_caught("RecordAlert", "IsDone")],
        },
        "IsDone": {
            "Type": "Choice",
            "Choices": [
                _when(f"{_SEEN}.alert.bare = true", then="SendBareAlert"),
                _when(f"{_HAS_REPORT} and $not({_SEEN}.reported)", then="StartReport"),
                _when(_IS_WARNING, then="AwaitGraceEnd"),
                _when(f"$type({_SEEN}.alert.waitUntil) = 'string'", then="AwaitQuietEnd"),
                _when(f"$count([{_SEEN}.alert.unsent]) > 0", then="SendUnsent"),
                _when(f"$count([{_SEEN}.faults]) = 0", then="Done"),
            ],
            "Default": "StepFailed",
        },
        "SendBareAlert": {
            "Type": "Task",
            "Resource": f"arn:${{Partition}}:states:::{PUBLISH}",
            "Arguments": _bare_alert(),
            "TimeoutSeconds": TASK_TIMEOUT_S,
            "Retry": RETRY,
            "Output": _with(alert=told),
            "Catch": [_caught("SendBareAlert", "IsDone", alert=told)],
            "Next": "IsDone",
        },
        "StartReport": {
            "Type": "Task",
            "Resource": f"arn:${{Partition}}:states:::{START}",
            "Arguments": {
                "StateMachineArn": "${ReportMachineArn}",
                "Name": _EXECUTION,
                "Input": {"job": _expression(f"{_FIRE}.job"), "kind": "fire", "fire": _expression(_FIRE)},
            },
            "TimeoutSeconds": TASK_TIMEOUT_S,
            # An answer that was lost is no fault: the name lets one execution start.
            "Retry": [{"ErrorEquals": [_STARTED_BEFORE], "MaxAttempts": 0}, *RETRY],
            "Output": reported,
            "Catch": [
                {"ErrorEquals": [_STARTED_BEFORE], "Output": reported, "Next": "IsDone"},
                _caught("StartReport", "IsDone", reported="true"),
            ],
            "Next": "IsDone",
        },
        "AwaitGraceEnd": {
            "Type": "Wait",
            "Timestamp": _expression(f"{_SEEN}.alert.sent = true ? {_SEEN}.decision.stopAt : $now()"),
            "Output": _with(
                attempt="'final'", warned=f"{_SEEN}.alert.sent = true", faults=_more(f"{_SEEN}.alert.unsent")
            ),
            "Next": "DecideStop",
        },
        "AwaitQuietEnd": {
            "Type": "Wait",
            "Timestamp": _expression(f"{_SEEN}.alert.waitUntil"),
            "Output": _with(due="true"),
            "Next": "SendAlert",
        },
        "SendUnsent": {
            **call(
                "SendAlert",
                {"fire": _expression(_FIRE), **outcome, "due": True, "last": True, "execution": _EXECUTION},
                following="RecordAlert",
            ),
            **sent,
        },
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


def _when(condition: str, *, then: str) -> State:
    return {"Condition": _expression(condition), "Next": then}


def _caught(name: str, following: str, **seen: str) -> State:
    """Return what happens when a state fails for good: its fault is noted, and the next one runs."""
    return {
        "ErrorEquals": ["States.ALL"],
        "Output": _merged({**seen, "faults": _more(_noted(name))}),
        "Next": following,
    }


def _with(**seen: str) -> str:
    return _merged(seen)


def _merged(seen: Mapping[str, str]) -> str:
    """Return the expression for what was seen, with fields by their expressions."""
    fields = ", ".join(f"'{name}': {value}" for name, value in seen.items())
    return _expression(f"$merge([{_SEEN}, {{{fields}}}])")


def _more(faults: str) -> str:
    return f"[{_SEEN}.faults, {faults}]"


def _noted(name: str) -> str:
    return f"'{name}: ' & {ERROR_TEXT}"


def _expression(text: str) -> str:
    return f"{{% {text} %}}"
