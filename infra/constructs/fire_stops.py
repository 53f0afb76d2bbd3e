"""How the fire state machine stops a job: decide, warn and wait where its owner wants that, decide again, stop.

A stop that was announced is made only if its warning went out, and only if everything still speaks for it at the end of
the grace time. Each decision is recorded in the rule's row.
"""

from infra.constructs.fire_alerts import emit_event, publish_alert, publish_chat
from infra.constructs.fire_rows import record_stop
from infra.constructs.states import ERROR_TEXT, State, choice, keeping, task

FAULTS = (
    "decideFault",
    "composeWarningFault",
    "publishWarningFault",
    "chatWarningFault",
    "eventWarningFault",
    "recordWarningFault",
    "decideAgainFault",
    "stopFault",
    "recordStopFault",
)
"""Variables in which `stopping_states` note what went wrong."""

NO_DECISION: State = {"stop": False, "decision": "none", "why": "", "stopAt": None}
"""What is decided on a stop where nothing fired."""

_UNDECIDED: State = {"stop": False, "decision": "undecided", "why": f"{{% {ERROR_TEXT} %}}", "stopAt": None}
_UNWARNED: State = {
    "stop": False,
    "decision": "refused",
    "why": "the warning of the stop could not be sent",
    "stopAt": None,
}


def stopping_states(*, following: str) -> State:
    """Stop the job, if that is what was decided, and go on; starts with ``DecideStop``."""
    return {
        "DecideStop": _decide("DecideStop", attempt="first", fault="decideFault", following="HasGrace"),
        "HasGrace": choice("$decision.decision = 'grace'", then="RecordWarning", otherwise="MayStop"),
        **_grace_states(),
        "MayStop": choice("$decision.stop = true", then="StopTrainingJob", otherwise="RecordStop"),
        "StopTrainingJob": keeping(
            "stop",
            task(
                "StopTrainingJob",
                resource="aws-sdk:sagemaker:stopTrainingJob",
                arguments={"TrainingJobName": "{% $fire.job %}"},
                fault="stopFault",
                following="RecordStop",
            ),
            answer={"made": True, "error": None},
            otherwise={"made": False, "error": f"{{% {ERROR_TEXT} %}}"},
        ),
        "RecordStop": record_stop("RecordStop", fault="recordStopFault", following=following),
    }


def _grace_states() -> State:
    """Warn, wait until the grace time is over, and decide again."""
    return {
        "RecordWarning": record_stop("RecordWarning", fault="recordWarningFault", following="ComposeWarning"),
        "ComposeWarning": keeping(
            "warning",
            task(
                "ComposeWarning",
                resource="lambda:invoke",
                arguments={
                    "FunctionName": "${ComposeAlertArn}",
                    "Payload": {
                        "fire": "{% $merge([$fire, {'kind': 'warning'}]) %}",
                        "decision": "{% $decision %}",
                    },
                },
                fault="composeWarningFault",
                following="IsWarningComposed",
            ),
            answer="{% $states.result.Payload %}",
            otherwise={"send": False},
        ),
        "IsWarningComposed": choice("$warning.send", then="PublishWarning", otherwise="Unwarned"),
        "PublishWarning": publish_alert("PublishWarning", "warning", fault="publishWarningFault", following="IsWarned"),
        "IsWarned": choice("$publishWarningFault = ''", then="ChatWarning", otherwise="Unwarned"),
        "ChatWarning": publish_chat("ChatWarning", "warning", fault="chatWarningFault", following="EmitWarning"),
        "EmitWarning": emit_event("EmitWarning", "warning", fault="eventWarningFault", following="AwaitGraceEnd"),
        "AwaitGraceEnd": {"Type": "Wait", "Timestamp": "{% $decision.stopAt %}", "Next": "DecideAgain"},
        "DecideAgain": _decide("DecideAgain", attempt="final", fault="decideAgainFault", following="MayStop"),
        "Unwarned": {"Type": "Pass", "Assign": {"decision": _UNWARNED}, "Next": "RecordStop"},
    }


def _decide(name: str, *, attempt: str, fault: str, following: str) -> State:
    """Return the task that asks `decide_stop`; where it fails nothing is decided, and nothing stopped."""
    asked = task(
        name,
        resource="lambda:invoke",
        arguments={
            "FunctionName": "${DecideStopArn}",
            "Payload": f"{{% $merge([$fire, {{'attempt': '{attempt}'}}]) %}}",
        },
        fault=fault,
        following=following,
    )
    return keeping("decision", asked, answer="{% $states.result.Payload %}", otherwise=_UNDECIDED)
