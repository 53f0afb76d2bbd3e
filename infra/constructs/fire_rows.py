"""What the fire state machine writes into the row of the fire's job and rule, in RuleState."""

from collections.abc import Mapping

from infra.constructs.states import State, task

_OUTCOME_WHEN_FAILED = "'alert failed (' & $publishFault & '); training job stopped: ' & ($stop.made ? 'yes' : 'no')"


def mark_fired(*, following: str) -> State:
    """Say that the rule has fired."""
    values = {
        "Status": "{% {'S': 'FIRED'} %}",
        "DebuggerStatus": "{% {'S': 'IssuesFound'} %}",
        "Reason": "{% {'S': $fire.reason} %}",
        "FiredAt": "{% {'S': $fire.firedAt} %}",
        "FireId": "{% {'S': $fire.fireId} %}",
    }
    return update_row("MarkFired", values=values, fault="markFault", following=following)


def record_stop(name: str, *, fault: str, following: str) -> State:
    """Keep the decision on a stop, whatever it was: what, why, when, by which fire, and whether the stop was made."""
    values = {
        "StopDecision": "{% {'S': $decision.decision} %}",
        "StopWhy": "{% {'S': $decision.why} %}",
        "StopAt": "{% {'S': $now()} %}",
        "StopFireId": "{% {'S': $fire.fireId} %}",
        "StopMade": "{% {'BOOL': $stop.made} %}",
    }
    return update_row(name, values=values, fault=fault, following=following)


def record_waiting(*, following: str) -> State:
    """Say until when the alert waits."""
    values = {"Action": "{% {'S': $alert.waiting} %}", "ActionAt": "{% {'S': $now()} %}", "AlertId": {"NULL": True}}
    return update_row("RecordWaiting", values=values, fault="waitingFault", following=following)


def record_outcome(*, following: str) -> State:
    """Say what was done, and whether people were told."""
    values = {
        "Action": f"{{% {{'S': $publishFault = '' ? $alert.action : {_OUTCOME_WHEN_FAILED}}} %}}",
        "ActionAt": "{% {'S': $now()} %}",
        "AlertId": "{% $alert.send and $publishFault = '' ? {'S': $alert.alertId} : {'NULL': true} %}",
    }
    return update_row("RecordOutcome", values=values, fault="outcomeFault", following=following)


def update_row(name: str, *, values: Mapping[str, object], fault: str, following: str) -> State:
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
