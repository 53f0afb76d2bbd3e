"""The end of the fire state machine: what was not sent is tried once more, in states that a redrive repeats.

Step Functions redrives an execution from the state in which it failed. So an alert that could not be sent fails the
execution in the very task that sends it, after everything else is done: a redrive sends it, and repeats nothing else. A
redriven state has its input again; variables are set anew from it and from the execution's own input.
"""

from infra.constructs.fire_alerts import publish_alert, publish_chat
from infra.constructs.fire_rows import record_sent, record_sent_notification
from infra.constructs.states import State, choice, listed
from trainguard.actions.resend import STEP_FAILED

UNSENT: State = {"alertFault": "{% $publishFault %}", "chatFault": "{% $chatFault %}", "alert": "{% $alert %}"}
"""What the end needs to know of the alert; the faults are empty where it was sent, or was not to be."""

_INPUT = "{% $states.input %}"
_FAULTS = "[$states.input.faults]"
_OF_ALERT, _OF_CHAT = ("$states.input.unsent.alertFault", "$states.input.unsent.chatFault")


def ending_states() -> State:
    """Send what was not sent, and end well or say what failed; starts with ``AllDone``."""
    composed = "states.input.unsent.alert"
    return {
        "AllDone": {
            "Type": "Choice",
            "Choices": [
                {"Condition": f"{{% {_OF_ALERT} != '' %}}", "Next": "PublishAlertAgain"},
                {"Condition": f"{{% {_OF_CHAT} != '' %}}", "Next": "PublishChatAgain"},
                {"Condition": f"{{% $count({_FAULTS}) = 0 %}}", "Next": "Done"},
            ],
            "Default": "SomeStepFailed",
        },
        "PublishAlertAgain": {
            **publish_alert("PublishAlertAgain", composed, fault=None, following="IsChatUnsent"),
            "Output": _INPUT,
        },
        "IsChatUnsent": choice(f"{_OF_CHAT} != ''", then="PublishChatAgain", otherwise="TakeUpAgain"),
        "PublishChatAgain": {
            **publish_chat("PublishChatAgain", composed, fault=None, following="TakeUpAgain"),
            "Output": _INPUT,
        },
        "TakeUpAgain": {
            "Type": "Pass",
            "Assign": {
                "fire": "{% $states.context.Execution.Input %}",
                "sent": f"{{% ${composed} %}}",
                "faults": f"{{% {_FAULTS} %}}",
                "sentFault": "",
            },
            "Next": "HasRowAgain",
        },
        "HasRowAgain": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $fire.kind = 'notice' %}", "Next": "OtherFaults"},
                {"Condition": "{% $fire.kind = 'fire' %}", "Next": "RecordSent"},
            ],
            "Default": "RecordSentNews",
        },
        "RecordSent": record_sent(following="OtherFaults"),
        "RecordSentNews": record_sent_notification(following="OtherFaults"),
        "OtherFaults": {
            "Type": "Pass",
            "Output": {"faults": listed("$faults", "$sentFault")},
            "Next": "IsRestDone",
        },
        "IsRestDone": choice(f"$count({_FAULTS}) = 0", then="Done", otherwise="SomeStepFailed"),
        "Done": {"Type": "Succeed", "Output": {"faults": []}},
        "SomeStepFailed": {
            "Type": "Fail",
            "Error": STEP_FAILED,
            "Cause": f"{{% $join({_FAULTS}, '; ') %}}",
        },
    }
