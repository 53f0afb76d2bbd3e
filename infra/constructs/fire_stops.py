"""How the fire state machine stops a job: decide, warn and wait where its owner wants that, decide again, stop.

A stop that was announced is made only if its warning went out on every channel, and only if everything still speaks for
it at the end of the grace time. Each decision is recorded in the rule's row, that to stop before the call: what cannot
be recorded is not done. The answer of the call can be lost, so that after an error the job itself says whether it was
stopped.
"""

from collections.abc import Sequence

from infra.constructs.fire_alerts import emit_event, publish_alert, publish_chat
from infra.constructs.fire_resources import WHAT, calling, looking, resource_states
from infra.constructs.fire_rows import record_decision, record_stop
from infra.constructs.states import CALL, ERROR_TEXT, State, choice, keeping, task

FAULTS = (
    "decideFault",
    "composeWarningFault",
    "publishWarningFault",
    "chatWarningFault",
    "eventWarningFault",
    "recordWarningFault",
    "decideAgainFault",
    "recordDecisionFault",
    "stopFault",
    "lookFault",
    "recordStopFault",
)
"""Variables in which `stopping_states` note what went wrong."""

NO_DECISION: State = {"stop": False, "decision": "none", "why": "", "stopAt": None, "optedIn": False}
"""What is decided on a stop where nothing fired."""

_UNDECIDED: State = {**NO_DECISION, "decision": "undecided", "why": f"{{% {ERROR_TEXT} %}}"}

_WAS_STOPPED = (
    "$states.result.TrainingJobStatus in ['Stopping', 'Stopped'] and $states.result.TrainingJobArn = $fire.jobArn"
)


def stopping_states(*, following: str, stoppable: Sequence[str] = ()) -> State:
    """Stop the job, if that is what was decided, and go on; starts with ``DecideStop``.

    ``stoppable`` are kinds of resources beside training jobs that a job may run on.
    """
    return {
        "DecideStop": _decide("DecideStop", attempt="first", fault="decideFault", following="HasGrace"),
        "HasGrace": choice("$decision.decision = 'grace'", then="RecordWarning", otherwise="MayStop"),
        **_grace_states(),
        "MayStop": choice("$decision.stop = true", then="RecordDecision", otherwise="RecordStop"),
        "RecordDecision": record_decision(
            "RecordDecision", fault="recordDecisionFault", following="IsRecorded", unmet="Overtaken"
        ),
        "IsRecorded": choice(
            "$recordDecisionFault = ''", then=WHAT if stoppable else "StopTrainingJob", otherwise="Unrecorded"
        ),
        **resource_states(stoppable, otherwise="StopTrainingJob", following="RecordStop"),
        "Unrecorded": _refused("the decision could not be recorded, and what leaves no trace is not done"),
        "Overtaken": _refused("the rule's row is not that of this fire, so that the decision could not be recorded"),
        **_call_states(following="RecordStop"),
        "RecordStop": record_stop("RecordStop", fault="recordStopFault", following=following),
    }


def _call_states(*, following: str) -> State:
    """Stop the job; after an error look whether it is stopped all the same, for the answer of a call can be lost."""
    job = {"TrainingJobName": "{% $fire.job %}"}
    call = task(
        "StopTrainingJob",
        resource="aws-sdk:sagemaker:stopTrainingJob",
        arguments=job,
        fault="stopFault",
        following=following,
        failed="LookAtJob",
    )
    look = task(
        "LookAtJob",
        resource="aws-sdk:sagemaker:describeTrainingJob",
        arguments=job,
        fault="lookFault",
        following=following,
    )
    return {"StopTrainingJob": calling(call), "LookAtJob": looking(look, was_stopped=_WAS_STOPPED)}


def _refused(why: str) -> State:
    """Return the state that refuses a stop for which everything else spoke."""
    decision = {**NO_DECISION, "decision": "refused", "why": why, "optedIn": True}
    return {"Type": "Pass", "Assign": {"decision": decision}, "Next": "RecordStop"}


def _grace_states() -> State:
    """Warn, wait until the grace time is over, and decide again."""
    return {
        "RecordWarning": record_stop("RecordWarning", fault="recordWarningFault", following="ComposeWarning"),
        "ComposeWarning": keeping(
            "warning",
            task(
                "ComposeWarning",
                resource=CALL,
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
        "PublishWarning": publish_alert(
            "PublishWarning", "warning", fault="publishWarningFault", following="ChatWarning"
        ),
        "ChatWarning": publish_chat("ChatWarning", "warning", fault="chatWarningFault", following="IsWarned"),
        "IsWarned": choice(
            "$publishWarningFault = '' and $chatWarningFault = ''", then="EmitWarning", otherwise="Unwarned"
        ),
        "EmitWarning": emit_event("EmitWarning", "warning", fault="eventWarningFault", following="AwaitGraceEnd"),
        "AwaitGraceEnd": {"Type": "Wait", "Timestamp": "{% $decision.stopAt %}", "Next": "DecideAgain"},
        "DecideAgain": _decide("DecideAgain", attempt="final", fault="decideAgainFault", following="MayStop"),
        "Unwarned": _refused("the warning of the stop could not be sent"),
    }


def _decide(name: str, *, attempt: str, fault: str, following: str) -> State:
    """Return the task that asks `decide_stop`; where it fails nothing is decided, and nothing stopped."""
    asked = task(
        name,
        resource=CALL,
        arguments={
            "FunctionName": "${DecideStopArn}",
            "Payload": f"{{% $merge([$fire, {{'attempt': '{attempt}'}}]) %}}",
        },
        fault=fault,
        following=following,
    )
    return keeping("decision", asked, answer="{% $states.result.Payload %}", otherwise=_UNDECIDED)
