"""The words of an alert: its subject, its first line, what was done, and the text for people.

The service silently drops an SNS message of another form, and keeps messages of one ``threadId`` together. Form:
https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html
"""

from typing import Any

from trainguard.core.layout import OWN, open_command, plain_links
from trainguard.core.records import AlertKind, OutboxEntry
from trainguard.core.text import LONGEST_SENTENCE, chat_escaped, chat_line, mail_line, mail_place, one_line
from trainguard.core.timestamps import iso_time
from trainguard.core.units import show_duration
from trainguard.engine.settings.tag_names import STOP_TAG
from trainguard.ledger.document import ledger_line
from trainguard.stack.actions.request import AlertRequest, FireInput

SUBJECT_LIMIT = 99
DETAIL_LIMIT = 1_000
_UNKNOWN = "unknown"


def headline(request: AlertRequest) -> str:
    entry, finding = request.fire.entry, request.fire.entry.finding
    job, stop_at = f"training job {request.fire.job}", request.decision.stop_at
    return {
        AlertKind.FIRE: f"{finding.rule} fired on {job}.",
        AlertKind.ESCALATION: f"{finding.rule} is now {finding.severity} on {job}; it was {_previous(entry)}.",
        AlertKind.CAUSE: f"The cause of {finding.rule} on {job} is known.",
        AlertKind.CLEARED: f"{finding.rule} is over on {job}{_lasted(entry)}.",
        AlertKind.WARNING: f"{finding.rule} fired on {job}, {_whose(request)} {_will(request)} at {stop_at}.",
        AlertKind.NOTICE: f"The settings of {job} have faults.",
        AlertKind.DEADLINE: f"{job[0].upper()}{job[1:]} will not be done at its time limit.",
    }[entry.kind]


def _whose(request: AlertRequest) -> str:
    return {"workload": "whose workload", "node": "one of whose nodes"}.get(request.decision.kind, "which")


def subject(fire: FireInput) -> str:
    """Return the e-mail subject: ASCII without control characters, under 100 characters, as SNS demands."""
    entry, finding = fire.entry, fire.entry.finding
    values = {
        AlertKind.FIRE: f"{finding.rule} fired on {fire.job}",
        AlertKind.ESCALATION: f"{finding.rule} now {finding.severity} on {fire.job}",
        AlertKind.CAUSE: f"cause of {finding.rule} on {fire.job}",
        AlertKind.CLEARED: f"{finding.rule} is over on {fire.job}",
        AlertKind.WARNING: f"{finding.rule} will stop {fire.job}",
        AlertKind.NOTICE: f"faulty settings of {fire.job}",
        AlertKind.DEADLINE: f"{fire.job} will miss its time limit",
    }[entry.kind]
    printable = (character if " " <= character <= "~" else "?" for character in f"TrainGuard: {values}")
    return "".join(printable)[:SUBJECT_LIMIT]


_ACTIONS = {
    AlertKind.CAUSE: "The cause is known; what was done when the rule fired stands.",
    AlertKind.NOTICE: "What is faulty is not in force; everything else is.",
    AlertKind.DEADLINE: "The training job runs on until its limit.",
}


def action(request: AlertRequest) -> str:
    """Return what was done, for the alert and for the rule's row."""
    entry, decision = request.fire.entry, request.decision
    if entry.kind in _ACTIONS:
        return _ACTIONS[entry.kind]
    if entry.kind is AlertKind.ESCALATION:
        return f"Severity grew from {_previous(entry)} to {entry.finding.severity}."
    if entry.kind is AlertKind.CLEARED:
        return f"The finding is over{_lasted(entry)}."
    if entry.kind is AlertKind.WARNING:
        return f"{_thing(request)} {_will(request)} at {decision.stop_at}: {decision.why}."
    return _of_stop(request)


_THINGS = {"workload": "Workload of the training job", "node": "Node of the training job"}
_DONE = {
    "suspend": "suspended",
    "requeue": "requeued",
    "cancel": "cancelled",
    "label": "labelled",
    "cordon": "cordoned",
    "drain": "drained",
    "reboot": "marked for a reboot",
    "replace": "marked for replacement",
}


def _thing(request: AlertRequest) -> str:
    return _THINGS.get(request.decision.kind, "Training job")


def _done(request: AlertRequest) -> str:
    return _DONE.get(request.decision.action, "stopped")


def _will(request: AlertRequest) -> str:
    return f"will be {_done(request)}"


def _of_stop(request: AlertRequest) -> str:
    decision = request.decision
    if request.stop.made is None:
        thing = _thing(request)
        return f"Whether the {thing[0].lower()}{thing[1:]} was {_done(request)} is not known: {request.stop.error}."
    if request.stop.made:
        return f"{_thing(request)} {_done(request)}: {decision.why}."
    if decision.stop and decision.kind not in _THINGS:
        return f"Stopping the training job failed: {(request.stop.error or 'no reason given')[:DETAIL_LIMIT]}"
    why = f"{request.stop.error or 'no reason given'}"[:DETAIL_LIMIT] if decision.stop else decision.why
    return f"{_thing(request)} not {_done(request)}: {why}."


def text(request: AlertRequest, done: str) -> str:
    """Return the text for people, each foreign text on the one line that it belongs to."""
    fire, entry = request.fire, request.fire.entry
    paid, held = ledger_line(entry.finding.facts), entry.finding.held
    about = [*_matters(entry), *([] if paid is None else [paid]), *unless(request), f"Action: {done}"]
    if held:
        about.append(f"Held: {held[-1].sentence}")
    about.append(_when(entry))
    lines = [headline(request), "", *reasons(entry), "", *about, *late(fire)]
    lines = [mail_line(line, LONGEST_SENTENCE) for line in lines]
    if entry.kind is not AlertKind.NOTICE:
        lines += _report(fire)
    last = f"Alert id: {fire.own_id} (the same alert may be delivered more than once)"
    return "\n".join([*lines, mail_line(last, LONGEST_SENTENCE)])


def reasons(entry: OutboxEntry) -> list[str]:
    """Return why an alert is sent: one sentence, or a line for each fault of a job's settings."""
    reason = entry.finding.reason
    return reason.splitlines() if entry.kind is AlertKind.NOTICE else [reason]


def _when(entry: OutboxEntry) -> str:
    at = iso_time(entry.enqueued_at)
    if not entry.kind.is_of_rule:
        return f"Found at: {at}"
    values = {AlertKind.ESCALATION: "Since", AlertKind.CAUSE: "Known at", AlertKind.CLEARED: "Over at"}.get(
        entry.kind, "Fired at"
    )
    return f"{values}: {at} (node {entry.finding.where}, episode {entry.episode})"


def late(fire: FireInput) -> list[str]:
    """Return the line about an alert that is sent late; none of any other alert."""
    return [] if fire.resend is None else ["Sent late: this alert could not be sent when it came about."]


def unless(request: AlertRequest) -> list[str]:
    """Return the line about how a stop that is to come can be averted; none of any other alert."""
    if request.fire.entry.kind is not AlertKind.WARNING:
        return []
    consent = (
        "take back its owner's opt-in"
        if request.decision.kind in _THINGS
        else f"remove its tag {STOP_TAG} from the job"
    )
    never = "It is not stopped either if the finding is over by then, or while it uploads its model."
    return [f"To keep it running: {consent}, or run `trainguard stops disable`. {never}"]


def _matters(entry: OutboxEntry) -> list[str]:
    """Return lines about the finding's severity and advice, where known."""
    finding = entry.finding
    advice = None if entry.kind is AlertKind.CLEARED else finding.advice
    severity = None if entry.kind is AlertKind.NOTICE else finding.severity
    lines = (("What to do", advice), ("Severity", severity), ("Lost", finding.cost))
    return [f"{name}: {value[:DETAIL_LIMIT]}" for name, value in lines if value]


def _report(fire: FireInput) -> list[str]:
    """Return lines about where the report lies: its place, a link into the console, and the command without one."""
    link = [f"Open it in the console: {mail_place(fire.report_link)}"] if fire.report_link else []
    return [
        f"Report: {mail_place(fire.report_page or fire.report_uri)}",
        *link,
        f"Or with a link: {mail_line(open_command(fire.job))}",
        *(f"{named}: {link}" for named, link in run_pages(fire)),
    ]


def run_pages(fire: FireInput) -> list[tuple[str, str]]:
    """Return the pages of the job's run with their titles; a link of any other kind is left out."""
    return [("Run" if tool == OWN else f"Run in {tool}", link) for tool, link in plain_links(fire.run_links).items()]


def _previous(entry: OutboxEntry) -> str:
    return entry.previous_severity or _UNKNOWN


def _lasted(entry: OutboxEntry) -> str:
    return "" if entry.lasted_s is None else f" after {show_duration(entry.lasted_s)}"


TITLE_LIMIT = 200
# Texts of a message stay under the 3,000 characters that Slack shows of one block.
PARAGRAPH_LIMIT = 1_200

_SIGNS = {
    AlertKind.FIRE: ":rotating_light:",
    AlertKind.ESCALATION: ":arrow_double_up:",
    AlertKind.CAUSE: ":mag:",
    AlertKind.CLEARED: ":white_check_mark:",
    AlertKind.WARNING: ":octagonal_sign:",
    AlertKind.NOTICE: ":wrench:",
    AlertKind.DEADLINE: ":hourglass:",
}


def chat_message(request: AlertRequest, done: str) -> dict[str, Any]:
    fire, entry, finding = request.fire, request.fire.entry, request.fire.entry.finding
    rows = (("Severity", finding.severity), ("Lost", finding.cost), ("Action", done))
    paragraphs = [*map(_plain, reasons(entry)), *(f"*{name}:* {_plain(value)}" for name, value in rows if value)]
    paragraphs += late(fire)
    context = {
        "Job": fire.job,
        "Rule": finding.rule,
        "Node": finding.where,
        "AlertId": fire.own_id,
        "At": fire.fired_at,
    }
    return {
        "version": "1.0",
        "source": "custom",
        "id": fire.own_id,
        "content": {
            "textType": "client-markdown",
            "title": f"{_SIGNS[entry.kind]} {chat_line(headline(request), TITLE_LIMIT)}",
            "description": "\n".join(paragraphs),
            "nextSteps": _next_steps(request),
            "keywords": [
                _plain(word) for word in ("TrainGuard", entry.kind.value, finding.rule, finding.severity) if word
            ],
        },
        "metadata": {
            "threadId": entry.fire_id,
            "summary": _plain(subject(fire)),
            "eventType": f"TrainGuard-{entry.kind.value}",
            "relatedResources": [one_line(fire.job_arn)],
            "additionalContext": {name: _plain(value) for name, value in context.items()},
        },
    }


def _plain(words: str) -> str:
    """Return words without mentions and links: node ids come from profiles."""
    return chat_line(words, PARAGRAPH_LIMIT)


def _next_steps(request: AlertRequest) -> list[str]:
    fire, entry, advice = request.fire, request.fire.entry, request.fire.entry.finding.advice
    steps = [_plain(each) for each in unless(request)]
    if advice and entry.kind is not AlertKind.CLEARED:
        steps.append(_plain(advice))
    if entry.kind is AlertKind.NOTICE:
        return steps
    link = chat_escaped(mail_place(fire.report_link)) if fire.report_link else _plain(open_command(fire.job))
    pages = [f"{chat_escaped(named)}: {chat_escaped(page)}" for named, page in run_pages(fire)]
    return [*steps, f"Open the report: {link}", *pages]
