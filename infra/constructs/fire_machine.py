"""The fire state machine, in Amazon States Language with JSONata.

An execution handles one fire (``kind`` is ``fire``: alert, stop where opted in, report), or the end of a job (``kind``
is ``report``: report only). Each task catches its own errors, notes them in a variable and goes on, so that no step
and no branch keeps another from running. What was noted fails the execution at its very end, where an alarm sees it.

``${…}`` are names and ARNs that CloudFormation puts in; ``{% … %}`` is JSONata. The variables:

=========== ======================================================================================================
fire        the execution's input
markFault   what went wrong in `MarkFired`; like every fault an empty text, or ``<state>: <error>: <cause>``
decision    answer of `decide_stop`: ``stop``, ``decision``, ``why``
stop        outcome of `StopTrainingJob`: ``made``, ``error``
alert       answer of `compose_alert`: ``subject``, ``text``, ``json``, ``attributes``, ``action``
=========== ======================================================================================================
"""

from collections.abc import Mapping
from typing import Any

State = dict[str, Any]

_EXECUTION_TIMEOUT_S = 1800
_TASK_TIMEOUT_S = 60
_REPORT_TIMEOUT_S = 300
_CAUSE_CHARACTERS = 300

_RETRY = [
    {
        "ErrorEquals": ["States.TaskFailed"],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": 3,
        "JitterStrategy": "FULL",
    }
]

_ERROR_TEXT = (
    f"$states.errorOutput.Error & ': ' & $substring($string($states.errorOutput.Cause), 0, {_CAUSE_CHARACTERS})"
)

_FALLBACK_ALERT = {
    "subject": "{% $substring('TrainGuard: ' & $fire.rule & ' fired on ' & $fire.job, 0, 99) %}",
    "text": (
        "{% $fire.rule & ' fired on training job ' & $fire.job & ', node ' & $fire.node & ': ' & $fire.reason"
        " & '\\n\\nTraining job stopped: ' & ($stop.made ? 'yes' : 'no') & '\\nReport: ' & $fire.reportUri %}"
    ),
    "json": "{% $string($merge([$fire, {'stopMade': $stop.made, 'stopError': $stop.error}])) %}",
    "attributes": {
        "AlertId": {"DataType": "String", "StringValue": "{% $fire.fireId %}"},
        "Job": {"DataType": "String", "StringValue": "{% $fire.job %}"},
        "Rule": {"DataType": "String", "StringValue": "{% $fire.rule %}"},
        "Kind": {"DataType": "String", "StringValue": "fire"},
        "Stopped": {"DataType": "String", "StringValue": "{% $stop.made ? 'true' : 'false' %}"},
    },
    "action": "{% 'alert sent without its details' & ($stop.made ? '; training job stopped' : '') %}",
}


def definition() -> State:
    """Return the state machine's definition."""
    return {
        "Comment": "Handles one fire of a rule, or the report at a training job's end",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": _EXECUTION_TIMEOUT_S,
        "StartAt": "TakeInput",
        "States": {
            "TakeInput": {
                "Type": "Pass",
                "Assign": {"fire": "{% $states.input %}", "markFault": ""},
                "Next": "IsFire",
            },
            "IsFire": _choice("$fire.kind = 'fire'", then="MarkFired", otherwise="ActAndReport"),
            "MarkFired": _update_rule_state(
                "MarkFired",
                values={
                    "Status": "{% {'S': 'FIRED'} %}",
                    "DebuggerStatus": "{% {'S': 'IssuesFound'} %}",
                    "Reason": "{% {'S': $fire.reason} %}",
                    "FiredAt": "{% {'S': $fire.firedAt} %}",
                    "FireId": "{% {'S': $fire.fireId} %}",
                },
                fault="markFault",
                following="ActAndReport",
            ),
            "ActAndReport": {
                "Type": "Parallel",
                "Branches": [_act_branch(), _report_branch()],
                "Output": {"faults": _listed("$markFault", "$states.result.faults")},
                "Next": "AllDone",
            },
            "AllDone": _choice("$count($states.input.faults) = 0", then="Done", otherwise="SomeStepFailed"),
            "Done": {"Type": "Succeed"},
            "SomeStepFailed": {
                "Type": "Fail",
                "Error": "TrainGuard.StepFailed",
                "Cause": "{% $join($states.input.faults, '; ') %}",
            },
        },
    }


def _act_branch() -> State:
    """Decide, stop, alert, record: each step runs whatever became of the one before."""
    faults = ("decideFault", "stopFault", "composeFault", "publishFault", "outcomeFault")
    return {
        "StartAt": "PrepareAct",
        "States": {
            "PrepareAct": {
                "Type": "Pass",
                "Assign": {"stop": {"made": False, "error": None}, **dict.fromkeys(faults, "")},
                "Next": "HasAlert",
            },
            "HasAlert": _choice("$fire.kind = 'fire'", then="DecideStop", otherwise="ActFaults"),
            **_stopping_states(),
            **_alerting_states(),
            "ActFaults": _faults(*faults),
        },
    }


def _stopping_states() -> State:
    """Stop the job, if that is what was decided, and go on to the alert."""
    return {
        "DecideStop": _invoke(
            "DecideStop",
            payload="{% $fire %}",
            answer="decision",
            otherwise={"stop": False, "decision": "undecided", "why": f"{{% {_ERROR_TEXT} %}}"},
            fault="decideFault",
            following="MayStop",
        ),
        "MayStop": _choice("$decision.stop = true", then="StopTrainingJob", otherwise="ComposeAlert"),
        "StopTrainingJob": _keeping(
            "stop",
            _task(
                "StopTrainingJob",
                resource="aws-sdk:sagemaker:stopTrainingJob",
                arguments={"TrainingJobName": "{% $fire.job %}"},
                fault="stopFault",
                following="ComposeAlert",
            ),
            answer={"made": True, "error": None},
            otherwise={"made": False, "error": f"{{% {_ERROR_TEXT} %}}"},
        ),
    }


def _alerting_states() -> State:
    """Say what happened, send it, and record in the rule's row what was done."""
    return {
        "ComposeAlert": _invoke(
            "ComposeAlert",
            payload={"fire": "{% $fire %}", "decision": "{% $decision %}", "stop": "{% $stop %}"},
            answer="alert",
            otherwise=_FALLBACK_ALERT,
            fault="composeFault",
            following="PublishAlert",
        ),
        "PublishAlert": _task(
            "PublishAlert",
            resource="sns:publish",
            arguments={
                "TopicArn": "${AlertTopicArn}",
                "Subject": "{% $alert.subject %}",
                "MessageStructure": "json",
                "Message": (
                    "{% $string({'default': $alert.text, 'email': $alert.text, 'sqs': $alert.json,"
                    " 'lambda': $alert.json, 'http': $alert.json, 'https': $alert.json}) %}"
                ),
                "MessageAttributes": "{% $alert.attributes %}",
            },
            fault="publishFault",
            following="RecordOutcome",
        ),
        "RecordOutcome": _update_rule_state(
            "RecordOutcome",
            values={
                "Action": (
                    "{% {'S': $publishFault = '' ? $alert.action : 'alert failed (' & $publishFault"
                    " & '); training job stopped: ' & ($stop.made ? 'yes' : 'no')} %}"
                ),
                "ActionAt": "{% {'S': $now()} %}",
                "AlertId": "{% $publishFault = '' ? {'S': $fire.fireId} : {'NULL': true} %}",
            },
            fault="outcomeFault",
            following="ActFaults",
        ),
    }


def _report_branch() -> State:
    """Aggregate the ProfilerReport into S3 and, for a fire, say in the rule's row where it lies."""
    return {
        "StartAt": "PrepareReport",
        "States": {
            "PrepareReport": {
                "Type": "Pass",
                "Assign": {"reportFault": "", "placeFault": ""},
                "Next": "BuildReport",
            },
            "BuildReport": _invoke(
                "BuildReport",
                payload="{% $fire %}",
                answer="report",
                otherwise={"reportUri": ""},
                fault="reportFault",
                following="HasRowToMark",
                timeout_s=_REPORT_TIMEOUT_S,
            ),
            "HasRowToMark": _choice(
                "$fire.kind = 'fire' and $reportFault = ''", then="RecordReport", otherwise="ReportFaults"
            ),
            "RecordReport": _update_rule_state(
                "RecordReport",
                values={"ReportUri": "{% {'S': $report.reportUri} %}"},
                fault="placeFault",
                following="ReportFaults",
            ),
            "ReportFaults": _faults("reportFault", "placeFault"),
        },
    }


def _choice(condition: str, *, then: str, otherwise: str) -> State:
    return {
        "Type": "Choice",
        "Choices": [{"Condition": f"{{% {condition} %}}", "Next": then}],
        "Default": otherwise,
    }


def _faults(*variables: str) -> State:
    """End a branch with the list of what went wrong in it."""
    return {"Type": "Pass", "Output": {"faults": _listed(*(f"${name}" for name in variables))}, "End": True}


def _listed(*expressions: str) -> str:
    """Return an expression for the list of those texts that are not empty.

    The outer brackets keep a list of one or none a list; `$filter` alone would give a text, or nothing.
    """
    return f"{{% [$filter([{', '.join(expressions)}], function($text) {{ $text != '' }})] %}}"


def _task(
    name: str,
    *,
    resource: str,
    arguments: Mapping[str, object],
    fault: str,
    following: str,
    timeout_s: int = _TASK_TIMEOUT_S,
) -> State:
    """Return a task that goes on to ``following`` either way, after a failure with the variable ``fault`` set."""
    noted = {fault: f"{{% '{name}: ' & {_ERROR_TEXT} %}}"}
    return {
        "Type": "Task",
        "Resource": f"arn:${{Partition}}:states:::{resource}",
        "Arguments": dict(arguments),
        "TimeoutSeconds": timeout_s,
        "Retry": _RETRY,
        "Catch": [{"ErrorEquals": ["States.ALL"], "Assign": noted, "Next": following}],
        "Next": following,
    }


def _keeping(variable: str, task: State, *, answer: object, otherwise: object) -> State:
    """Return ``task`` with ``variable`` set: to ``answer`` when it succeeded, to ``otherwise`` when it failed."""
    (catch,) = task["Catch"]
    caught = {**catch, "Assign": {**catch["Assign"], variable: otherwise}}
    return {**task, "Assign": {variable: answer}, "Catch": [caught]}


def _invoke(
    name: str,
    *,
    payload: object,
    answer: str,
    otherwise: Mapping[str, object],
    fault: str,
    following: str,
    timeout_s: int = _TASK_TIMEOUT_S,
) -> State:
    """Return a task that keeps a function's answer in the variable ``answer``, or ``otherwise`` when it failed."""
    task = _task(
        name,
        resource="lambda:invoke",
        arguments={"FunctionName": f"${{{name}Arn}}", "Payload": payload},
        fault=fault,
        following=following,
        timeout_s=timeout_s,
    )
    return _keeping(answer, task, answer="{% $states.result.Payload %}", otherwise=otherwise)


def _update_rule_state(name: str, *, values: Mapping[str, str], fault: str, following: str) -> State:
    """Return a task that sets attributes in the row of the fire's job and rule; every name is aliased."""
    return _task(
        name,
        resource="dynamodb:updateItem",
        arguments={
            "TableName": "${RuleStateTable}",
            "Key": {"TrainingJobName": {"S": "{% $fire.job %}"}, "RuleTarget": {"S": "{% $fire.rule %}"}},
            "UpdateExpression": "SET " + ", ".join(f"#{attribute} = :{attribute}" for attribute in values),
            "ExpressionAttributeNames": {f"#{attribute}": attribute for attribute in values},
            "ExpressionAttributeValues": {f":{attribute}": value for attribute, value in values.items()},
        },
        fault=fault,
        following=following,
    )
