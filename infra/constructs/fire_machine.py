"""The fire state machine, in Amazon States Language with JSONata.

An execution handles one fire: alert, stop where opted in, report from state. No step and no branch keeps another from
running. What went wrong fails the execution at its very end, where an alarm sees it. The variables:

=========== ======================================================================================================
fire        the execution's input
markFault   what went wrong in `MarkFired`; like every fault an empty text, or ``<state>: <error>: <cause>``
decision    answer of `decide_stop`: ``stop``, ``decision``, ``why``
stop        outcome of `StopTrainingJob`: ``made``, ``error``
alert       answer of `compose_alert`: ``subject``, ``text``, ``json``, ``attributes``, ``action``
=========== ======================================================================================================
"""

from collections.abc import Mapping

from infra.constructs.states import ERROR_TEXT, State, choice, invoke, keeping, listed, task

REPORT_TIMEOUT_S = 610
"""Longer than the function that builds reports may run."""

_EXECUTION_TIMEOUT_S = 1800

_REPORT_PLACE = (
    "'\\nReport: ' & ($type($fire.reportPage) = 'string' ? $fire.reportPage : $fire.reportUri)"
    " & ($type($fire.reportLink) = 'string' ? '\\nOpen it in the console: ' & $fire.reportLink : '')"
    " & '\\nOr by a link of its own: trainguard open ' & $fire.job"
)

_FALLBACK_ALERT = {
    "subject": "{% $substring('TrainGuard: ' & $fire.rule & ' fired on ' & $fire.job, 0, 99) %}",
    "text": (
        "{% $fire.rule & ' fired on training job ' & $fire.job & ', node ' & $fire.node & ': ' & $fire.reason"
        f" & '\\n\\nTraining job stopped: ' & ($stop.made ? 'yes' : 'no') & {_REPORT_PLACE} %}}"
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
        "Comment": "Handles one fire of a rule: alert, stop where opted in, report from state",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": _EXECUTION_TIMEOUT_S,
        "StartAt": "TakeInput",
        "States": {
            "TakeInput": {
                "Type": "Pass",
                "Assign": {"fire": "{% $states.input %}", "markFault": ""},
                "Next": "MarkFired",
            },
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
                "Output": {"faults": listed("$markFault", "$states.result.faults")},
                "Next": "AllDone",
            },
            "AllDone": choice("$count($states.input.faults) = 0", then="Done", otherwise="SomeStepFailed"),
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
    noted = ("decideFault", "stopFault", "composeFault", "publishFault", "outcomeFault")
    return {
        "StartAt": "PrepareAct",
        "States": {
            "PrepareAct": {
                "Type": "Pass",
                "Assign": {"stop": {"made": False, "error": None}, **dict.fromkeys(noted, "")},
                "Next": "DecideStop",
            },
            **_stopping_states(),
            **_alerting_states(),
            "ActFaults": _faults(*noted),
        },
    }


def _stopping_states() -> State:
    """Stop the job, if that is what was decided, and go on to the alert."""
    return {
        "DecideStop": invoke(
            "DecideStop",
            payload="{% $fire %}",
            answer="decision",
            otherwise={"stop": False, "decision": "undecided", "why": f"{{% {ERROR_TEXT} %}}"},
            fault="decideFault",
            following="MayStop",
        ),
        "MayStop": choice("$decision.stop = true", then="StopTrainingJob", otherwise="ComposeAlert"),
        "StopTrainingJob": keeping(
            "stop",
            task(
                "StopTrainingJob",
                resource="aws-sdk:sagemaker:stopTrainingJob",
                arguments={"TrainingJobName": "{% $fire.job %}"},
                fault="stopFault",
                following="ComposeAlert",
            ),
            answer={"made": True, "error": None},
            otherwise={"made": False, "error": f"{{% {ERROR_TEXT} %}}"},
        ),
    }


def _alerting_states() -> State:
    """Say what happened, send it, and record in the rule's row what was done."""
    return {
        "ComposeAlert": invoke(
            "ComposeAlert",
            payload={"fire": "{% $fire %}", "decision": "{% $decision %}", "stop": "{% $stop %}"},
            answer="alert",
            otherwise=_FALLBACK_ALERT,
            fault="composeFault",
            following="PublishAlert",
        ),
        "PublishAlert": task(
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
    """Build the report from state and say in the rule's row where it lies."""
    return {
        "StartAt": "PrepareReport",
        "States": {
            "PrepareReport": {
                "Type": "Pass",
                "Assign": {"reportFault": "", "placeFault": ""},
                "Next": "BuildReport",
            },
            "BuildReport": invoke(
                "BuildReport",
                payload="{% $fire %}",
                answer="report",
                otherwise={"reportUri": ""},
                fault="reportFault",
                following="IsWritten",
                timeout_s=REPORT_TIMEOUT_S,
            ),
            "IsWritten": choice("$reportFault = ''", then="RecordReport", otherwise="ReportFaults"),
            "RecordReport": _update_rule_state(
                "RecordReport",
                values={"ReportUri": "{% {'S': $report.reportUri} %}"},
                fault="placeFault",
                following="ReportFaults",
            ),
            "ReportFaults": _faults("reportFault", "placeFault"),
        },
    }


def _update_rule_state(name: str, *, values: Mapping[str, str], fault: str, following: str) -> State:
    """Return a task that sets attributes in the row of the fire's job and rule; every name is aliased."""
    return task(
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


def _faults(*variables: str) -> State:
    """End a branch with the list of what went wrong in it."""
    return {"Type": "Pass", "Output": {"faults": listed(*(f"${name}" for name in variables))}, "End": True}
