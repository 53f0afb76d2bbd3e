"""The alert for Slack and Teams: a custom notification of Amazon Q Developer in chat applications (AWS Chatbot).

The service silently drops an SNS message of another form, and keeps messages of one ``threadId`` together. Form:
https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html
"""

from typing import Any

from trainguard.core.links import open_command
from trainguard.core.records import AlertKind
from trainguard.core.text import chat_escaped, chat_line, mail_place, one_line
from trainguard.stack.actions.request import AlertRequest
from trainguard.stack.actions.wording import headline, late, reasons, run_pages, subject, unless

TITLE_LIMIT = 200
PARAGRAPH_LIMIT = 1_200
"""Texts of a message stay under the 3,000 characters that Slack shows of one block."""

_SIGNS = {
    AlertKind.FIRE: ":rotating_light:",
    AlertKind.ESCALATION: ":arrow_double_up:",
    AlertKind.CLEARED: ":white_check_mark:",
    AlertKind.WARNING: ":octagonal_sign:",
    AlertKind.NOTICE: ":wrench:",
}


def chat_message(request: AlertRequest, done: str) -> dict[str, Any]:
    """Return the notification; ``done`` is the sentence on what was done."""
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
    steps = [_plain(each) for each in unless(entry)]
    if advice and entry.kind is not AlertKind.CLEARED:
        steps.append(_plain(advice))
    if entry.kind is AlertKind.NOTICE:
        return steps
    link = chat_escaped(mail_place(fire.report_link)) if fire.report_link else _plain(open_command(fire.job))
    pages = [f"{chat_escaped(named)}: {chat_escaped(page)}" for named, page in run_pages(fire)]
    return [*steps, f"Open the report: {link}", *pages]
