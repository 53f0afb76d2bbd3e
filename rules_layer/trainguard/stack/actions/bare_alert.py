"""The alert of a fire for which the usual one could not be composed, from raw input and without quiet hours."""

from collections.abc import Mapping
from typing import Any

from trainguard.core.canary_name import CANARY_KIND, is_canary
from trainguard.core.links import open_command
from trainguard.core.records import AlertKind
from trainguard.core.text import LONGEST_SENTENCE, chat_line, mail_line, mail_place, one_line, plain_document
from trainguard.stack.actions.alert import LONGEST_TEXT, UNKNOWN, Alert
from trainguard.stack.actions.chat import PARAGRAPH_LIMIT, TITLE_LIMIT
from trainguard.stack.actions.request import outcome_of_call
from trainguard.stack.actions.routing import MUTED, STAGED, Routing
from trainguard.stack.actions.wording import SUBJECT_LIMIT

_STOPPED = {True: ("yes", "true"), False: ("no", "false")}


def bare_alert(call: Mapping[str, Any]) -> Alert:
    """Return the alert of a call of `send_alert`, of which nothing but texts is expected."""
    fire = call["fire"]
    decision, stop = (outcome if isinstance(outcome, Mapping) else {} for outcome in outcome_of_call(call))
    made = stop.get("made") if isinstance(stop.get("made"), bool) else None
    job, rule, kind = (str(fire.get(name, UNKNOWN)) for name in ("job", "rule", "kind"))
    outcome = f"{rule} fired" if kind == AlertKind.FIRE.value else f"{rule} ({kind})"
    in_words, as_value = _STOPPED[made] if made is not None else (UNKNOWN, UNKNOWN)
    failed = decision.get("stop") is True and made is not True
    lines = [
        f"{outcome} on training job {job}, node {fire.get('node')}: {fire.get('reason')}",
        "",
        f"Training job stopped: {in_words}",
        *([f"Stopping it failed: {stop.get('error')}"] if failed else []),
    ]
    places = [f"Report: {mail_place(str(fire.get('reportPage') or fire.get('reportUri')))}"]
    if fire.get("reportLink"):
        places.append(f"Open it in the console: {mail_place(str(fire['reportLink']))}")
    title = f"TrainGuard: {outcome} on {job}"
    alert_id = one_line(str(fire.get("alertId") or fire.get("fireId")))
    attributes = {
        "AlertId": alert_id,
        "Job": job,
        "Rule": rule,
        "Kind": CANARY_KIND if is_canary(job, str(fire.get("jobArn"))) else kind,
        "Severity": str(fire.get("severity") or UNKNOWN),
        "Stopped": as_value,
    }
    done = "alert sent without its details" + ("; training job stopped" if made else "")
    withheld = _withheld(fire, is_about_a_stop=failed or made is not False)
    return Alert(
        alert_id=alert_id,
        subject="".join(each if " " <= each <= "~" else "?" for each in title)[:SUBJECT_LIMIT],
        text="\n".join(
            [*(mail_line(line, LONGEST_SENTENCE) for line in lines), *places, f"Or with a link: {open_command(job)}"]
        ),
        document=plain_document({**fire, "stopMade": made, "stopError": stop.get("error")}, LONGEST_TEXT),
        chat=_chat(title, lines),
        attributes=plain_document(attributes, LONGEST_TEXT),
        action=one_line(withheld or done, LONGEST_SENTENCE),
        waiting="",
        routing=Routing(withheld=withheld),
    )


def _chat(title: str, lines: list[str]) -> dict[str, Any]:
    return {
        "version": "1.0",
        "source": "custom",
        "content": {
            "textType": "client-markdown",
            "title": chat_line(title, TITLE_LIMIT),
            "description": "\n".join(chat_line(line, PARAGRAPH_LIMIT) for line in lines if line),
        },
    }


def _withheld(fire: Mapping[str, Any], *, is_about_a_stop: bool) -> str | None:
    """Return why nobody is notified: the rule is staged, or muted and there is no stop to report."""
    if fire.get("kind") == AlertKind.NOTICE.value:
        return None
    policy = fire.get("policy")
    alerts = policy.get("alerts") if isinstance(policy, Mapping) else None
    named = {name for name in ("staged", "muted") if {str(fire.get("rule")), "all"} & _names(alerts, name)}
    if "staged" in named:
        return STAGED
    return MUTED if "muted" in named and not is_about_a_stop else None


def _names(alerts: object, kind: str) -> set[Any]:
    found = alerts.get(kind) if isinstance(alerts, Mapping) else None
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()
