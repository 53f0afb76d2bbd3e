"""What the fire state machine writes into the row of the fire's job and rule, in RuleState.

A row has room for one fire, and executions of several can be under way: one waits for the end of quiet hours while the
next one begins. So each write says under which condition it is meant; where that does not hold, the row is left as it
is, which is no fault.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.constructs.states import State, passing, task

_UNMET = ("DynamoDB.ConditionalCheckFailedException", "DynamoDb.ConditionalCheckFailedException")
_OUTCOME_WHEN_FAILED = "'alert failed (' & $publishFault & '); training job stopped: ' & ($stop.made ? 'yes' : 'no')"
_NOTIFICATION_WHEN_FAILED = "'alert failed (' & $publishFault & ')'"

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Condition:
    """When a row may be written: ``text`` names attributes as ``#Name``, and ``values`` as ``:Name``."""

    text: str
    values: Values = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The attributes that the text names."""
        return set(re.findall(r"#(\w+)", self.text))


_FIRE_ID: Values = {"FireId": "{% {'S': $fire.fireId} %}"}
_EPISODE: Values = {
    "FireEpisode": "{% {'N': $string($fire.episode)} %}",
    "FireJobArn": "{% {'S': $fire.jobArn} %}",
}
"""A job that SageMaker comes to know has another ARN from then on, and counts its episodes anew."""

_OF_THIS_FIRE = Condition(
    "#FireId = :FireId OR (attribute_not_exists(#FireId) AND attribute_exists(#Status))", _FIRE_ID
)
"""Where `MarkFired` failed the row may name no fire; where there is no row, half of one would be worse than none."""

_NO_NEWER_FIRE = "(attribute_not_exists(#FireEpisode) OR #FireEpisode <= :FireEpisode OR #FireJobArn <> :FireJobArn)"
_NOT_OVER = "(attribute_not_exists(#EvaluatedThrough) OR #EvaluatedThrough <= :FiredAt OR #Status = :Status)"

_SENT: Values = {"Action": "{% {'S': $sent.action} %}", "ActionAt": "{% {'S': $now()} %}"}

_OF_THE_FIRE_BEFORE = ("Action", "ActionAt", "AlertId")


def marking_states(*, following: str) -> State:
    """Say that the rule has fired, and which fire the row is about; starts with ``MarkFired``.

    A row that was evaluated beyond the fire says itself how the rule stands, so that only the fire is named in it. The
    row of a newer fire is left alone.
    """
    named = {**_FIRE_ID, **_EPISODE}
    values = {
        "Status": "{% {'S': 'FIRED'} %}",
        "DebuggerStatus": "{% {'S': 'IssuesFound'} %}",
        "Reason": "{% {'S': $fire.reason} %}",
        "FiredAt": "{% {'S': $fire.firedAt} %}",
        **named,
    }
    mark = update_row(
        "MarkFired",
        values=values,
        drops=_OF_THE_FIRE_BEFORE,
        condition=Condition(f"{_NO_NEWER_FIRE} AND {_NOT_OVER}"),
        unmet="NameFire",
        fault="markFault",
        following=following,
    )
    name = update_row(
        "NameFire",
        values=named,
        drops=_OF_THE_FIRE_BEFORE,
        condition=Condition(_NO_NEWER_FIRE),
        fault="markFault",
        following=following,
    )
    return {"MarkFired": mark, "NameFire": name}


def record_decision(name: str, *, fault: str, following: str, unmet: str) -> State:
    """Keep the decision to stop before the call: ``StopMade`` is not there until its outcome is known."""
    return update_row(name, values=_decision(), drops=("StopMade",), fault=fault, following=following, unmet=unmet)


def record_stop(name: str, *, fault: str, following: str) -> State:
    """Keep the decision on a stop, whatever it was: what, why, when, by which fire, and whether the stop was made.

    ``StopMade`` is null where the call failed and the job could not be asked either.
    """
    made = "{% $lookFault = '' ? {'BOOL': $stop.made} : {'NULL': true} %}"
    values = {**_decision(), "StopMade": made}
    return update_row(name, values=values, fault=fault, following=following)


def _decision() -> Values:
    return {
        "StopDecision": "{% {'S': $decision.decision} %}",
        "StopWhy": "{% {'S': $decision.why} %}",
        "StopAt": "{% {'S': $now()} %}",
        "StopFireId": "{% {'S': $fire.fireId} %}",
    }


def record_waiting(*, following: str) -> State:
    """Say until when the alert waits."""
    values = {"Action": "{% {'S': $alert.waiting} %}", "ActionAt": "{% {'S': $now()} %}"}
    return update_row("RecordWaiting", values=values, fault="waitingFault", following=following)


def record_outcome(*, following: str) -> State:
    """Record what was done about the fire, and whether its alert was sent."""
    values = {
        "Action": f"{{% {{'S': $publishFault = '' ? $alert.action : {_OUTCOME_WHEN_FAILED}}} %}}",
        "ActionAt": "{% {'S': $now()} %}",
        "AlertId": "{% $alert.send and $publishFault = '' ? {'S': $alert.alertId} : {'NULL': true} %}",
    }
    return update_row("RecordOutcome", values=values, fault="outcomeFault", following=following)


def record_sent(*, following: str) -> State:
    """Say that the alert of a fire was sent after all."""
    values = {**_SENT, "AlertId": "{% {'S': $sent.alertId} %}"}
    return update_row("RecordSent", values=values, fault="sentFault", following=following)


def record_sent_notification(*, following: str) -> State:
    """Record that a later notification about the fire was sent after all."""
    return update_row("RecordSentNews", values=_SENT, fault="sentFault", following=following)


def record_notification(*, following: str) -> State:
    """Record a later notification about the fire; ``AlertId`` stays that of the fire."""
    values = {
        "Action": f"{{% {{'S': $publishFault = '' ? $alert.action : {_NOTIFICATION_WHEN_FAILED}}} %}}",
        "ActionAt": "{% {'S': $now()} %}",
    }
    return update_row("RecordNews", values=values, fault="outcomeFault", following=following)


def update_row(
    name: str,
    *,
    values: Values,
    fault: str,
    following: str,
    drops: Sequence[str] = (),
    condition: Condition = _OF_THIS_FIRE,
    unmet: str | None = None,
) -> State:
    """Return a task that sets attributes in the row of the fire's job and rule, and drops others.

    Where ``condition`` does not hold nothing is written, and ``unmet`` comes next, or else ``following``. Every name is
    aliased.
    """
    names = sorted({*values, *drops, *condition.names})
    dropped = " REMOVE " + ", ".join(f"#{attribute}" for attribute in drops) if drops else ""
    updated = task(
        name,
        resource="dynamodb:updateItem",
        arguments={
            "TableName": "${RuleStateTable}",
            "Key": {"TrainingJobName": {"S": "{% $fire.job %}"}, "RuleTarget": {"S": "{% $fire.rule %}"}},
            "UpdateExpression": "SET " + ", ".join(f"#{attribute} = :{attribute}" for attribute in values) + dropped,
            "ConditionExpression": condition.text,
            "ExpressionAttributeNames": {f"#{attribute}": attribute for attribute in names},
            "ExpressionAttributeValues": {
                f":{attribute}": value for attribute, value in {**values, **condition.values}.items()
            },
        },
        fault=fault,
        following=following,
    )
    return passing(updated, _UNMET, following=unmet or following)
