"""How the fire state machine tells people and machines: alert topic, chat topic, event bus; now, later or never."""

from infra.constructs.canary import CANARY_KIND, CANARY_PREFIX
from infra.constructs.fire_rows import record_notification, record_outcome, record_waiting
from infra.constructs.states import State, choice, invoke, task

EVENT_SOURCE = "trainguard"
EVENT_TYPE = "TrainGuard Finding"

FAULTS = ("composeFault", "eventFault", "waitingFault", "publishFault", "chatFault", "outcomeFault")
"""Variables in which `alerting_states` note what went wrong."""

UNSENT_FAULTS = ("publishFault", "chatFault")
"""Those of them that say that no alert was sent."""

_REPORT_PLACE = (
    "'\\nReport: ' & ($type($fire.reportPage) = 'string' ? $fire.reportPage : $fire.reportUri)"
    " & ($type($fire.reportLink) = 'string' ? '\\nOpen it in the console: ' & $fire.reportLink : '')"
    " & '\\nOr with a link: trainguard open ' & $fire.job"
)
_SAYS = "$fire.rule & ($fire.kind = 'fire' ? ' fired' : ' (' & $fire.kind & ')') & ' on '"
_STOP_TRIED = "($decision.stop = true or $stop.made)"
_STOP_FAILED = "($decision.stop = true and $not($stop.made) ? '\\nStopping it failed: ' & $string($stop.error) : '')"
_WAS_STOPPED = "($type($stop.made) = 'null' ? 'unknown' : $stop.made ? 'yes' : 'no')"
_BARE_TEXT = (
    f"{_SAYS} & 'training job ' & $fire.job & ', node ' & $fire.node & ': ' & $fire.reason"
    f" & '\\n\\nTraining job stopped: ' & {_WAS_STOPPED} & {_STOP_FAILED} & {_REPORT_PLACE}"
)
_BARE_DOCUMENT = "$merge([$fire, {'stopMade': $stop.made, 'stopError': $stop.error}])"
_BARE_SUBJECT = f"$substring('TrainGuard: ' & {_SAYS} & $fire.job, 0, 99)"
_IS_CANARY = (
    f"($substring($fire.job, 0, {len(CANARY_PREFIX)}) = '{CANARY_PREFIX}'"
    " and $substring($fire.jobArn, 0, 8) = 'unknown:')"
)
_CHAT_CHARACTERS = 2_500
_ALERT_ID = "($type($fire.alertId) = 'string' ? $fire.alertId : $fire.fireId)"


def _plain(expression: str) -> str:
    """Return an expression for words in which a chat program finds no mention and no link, as `chat.plain` makes them.

    They are cut to what Slack shows of one block.
    """
    shown = f"$substring({expression}, 0, {_CHAT_CHARACTERS})"
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b")):
        shown = f"$replace({shown}, '{sign}', '{instead}')"
    return shown


def _named_in(names: str) -> str:
    return f"($fire.rule in $fire.policy.alerts.{names} or 'all' in $fire.policy.alerts.{names})"


def _attribute(expression: str) -> State:
    return {"DataType": "String", "StringValue": f"{{% {expression} %}}"}


BARE_ALERT: State = {
    "alertId": f"{{% {_ALERT_ID} %}}",
    "subject": f"{{% {_BARE_SUBJECT} %}}",
    "text": f"{{% {_BARE_TEXT} %}}",
    "document": f"{{% {_BARE_DOCUMENT} %}}",
    "json": f"{{% $string({_BARE_DOCUMENT}) %}}",
    "chat": (
        "{% $string({'version': '1.0', 'source': 'custom', 'content': {'textType': 'client-markdown',"
        f" 'title': {_plain(_BARE_SUBJECT)}, 'description': {_plain(_BARE_TEXT)}}}}}) %}}"
    ),
    "attributes": {
        "AlertId": _attribute(_ALERT_ID),
        "Job": _attribute("$fire.job"),
        "Rule": _attribute("$fire.rule"),
        "Kind": _attribute(f"{_IS_CANARY} ? '{CANARY_KIND}' : $fire.kind"),
        "Severity": _attribute("$type($fire.severity) = 'string' ? $fire.severity : 'unknown'"),
        "Stopped": _attribute("$type($stop.made) = 'null' ? 'unknown' : $stop.made ? 'true' : 'false'"),
    },
    "action": "{% 'alert sent without its details' & ($stop.made ? '; training job stopped' : '') %}",
    "send": (
        f"{{% $fire.kind = 'notice' or ($not({_named_in('staged')}) and ({_STOP_TRIED} or $not({_named_in('muted')})))"
        " %}"
    ),
    "waitUntil": None,
    "waiting": "",
}
"""The alert where `compose_alert` failed: it says the truth in fewer words, and knows no quiet hours."""


def alerting_states(*, following: str) -> State:
    """Say what happened, send it, and record in the rule's row what was done; a notice has no rule and no row."""
    return {
        "ComposeAlert": invoke(
            "ComposeAlert",
            payload={"fire": "{% $fire %}", "decision": "{% $decision %}", "stop": "{% $stop %}"},
            answer="alert",
            otherwise=BARE_ALERT,
            fault="composeFault",
            following="EmitEvent",
        ),
        "EmitEvent": emit_event("EmitEvent", "alert", fault="eventFault", following="IsSent"),
        "IsSent": choice("$alert.send", then="IsDue", otherwise="HasRow"),
        "IsDue": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $type($alert.waitUntil) != 'string' %}", "Next": "PublishAlert"},
                {"Condition": "{% $fire.kind = 'notice' %}", "Next": "AwaitQuietEnd"},
            ],
            "Default": "RecordWaiting",
        },
        "RecordWaiting": record_waiting(following="AwaitQuietEnd"),
        "AwaitQuietEnd": {"Type": "Wait", "Timestamp": "{% $alert.waitUntil %}", "Next": "PublishAlert"},
        "PublishAlert": publish_alert("PublishAlert", "alert", fault="publishFault", following="IsCanary"),
        "IsCanary": choice(
            f"$alert.attributes.Kind.StringValue = '{CANARY_KIND}'", then="HasRow", otherwise="PublishChat"
        ),
        "PublishChat": publish_chat("PublishChat", "alert", fault="chatFault", following="HasRow"),
        "HasRow": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $fire.kind = 'notice' %}", "Next": following},
                {"Condition": "{% $fire.kind = 'fire' %}", "Next": "RecordOutcome"},
            ],
            "Default": "RecordNews",
        },
        "RecordOutcome": record_outcome(following=following),
        "RecordNews": record_notification(following=following),
    }


def publish_alert(name: str, alert: str, *, fault: str | None, following: str) -> State:
    """Return the task that publishes the variable ``alert`` for mail, queues, functions and web hooks."""
    return task(
        name,
        resource="sns:publish",
        arguments={
            "TopicArn": "${AlertTopicArn}",
            "Subject": f"{{% ${alert}.subject %}}",
            "MessageStructure": "json",
            "Message": (
                f"{{% $string({{'default': ${alert}.text, 'email': ${alert}.text, 'sqs': ${alert}.json,"
                f" 'lambda': ${alert}.json, 'http': ${alert}.json, 'https': ${alert}.json}}) %}}"
            ),
            "MessageAttributes": f"{{% ${alert}.attributes %}}",
        },
        fault=fault,
        following=following,
    )


def publish_chat(name: str, alert: str, *, fault: str | None, following: str) -> State:
    """Return the task that publishes the variable ``alert`` for chats, on a topic of its own: they read it as it is."""
    return task(
        name,
        resource="sns:publish",
        arguments={
            "TopicArn": "${ChatTopicArn}",
            "Message": f"{{% ${alert}.chat %}}",
            "MessageAttributes": f"{{% ${alert}.attributes %}}",
        },
        fault=fault,
        following=following,
    )


def emit_event(name: str, alert: str, *, fault: str, following: str) -> State:
    """Return the task that puts the variable ``alert`` on the default bus, be it sent to people or not."""
    entry = {"Source": EVENT_SOURCE, "DetailType": EVENT_TYPE, "Detail": f"{{% ${alert}.document %}}"}
    return task(name, resource="events:putEvents", arguments={"Entries": [entry]}, fault=fault, following=following)
