"""The alert: text for people, one JSON document for machines, a message for chats, attributes to filter by."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from trainguard.core.brakes import Brake
from trainguard.core.canary_name import CANARY_KIND, is_canary
from trainguard.core.finding import Severity, flat
from trainguard.core.job_policy import DAYS, QuietHours
from trainguard.core.layout import open_command, plain_links
from trainguard.core.ports import Journal
from trainguard.core.records import AlertKind
from trainguard.core.text import LONGEST_SENTENCE, chat_line, mail_line, mail_place, one_line, plain_document
from trainguard.core.timestamps import epoch_of, iso_time
from trainguard.stack.actions import wording
from trainguard.stack.actions.document import AlertDocument
from trainguard.stack.actions.request import AlertRequest, FireInput, outcome_of_call
from trainguard.stack.actions.wording import PARAGRAPH_LIMIT, SUBJECT_LIMIT, TITLE_LIMIT, chat_message

# No alert waits for longer, however the quiet hours follow on each other.
LONGEST_S = 7 * 86_400.0


def quiet_until(hours: Sequence[QuietHours], now: float) -> float | None:
    """Return the end of the joined quiet hours around ``now``, epoch seconds; None without any."""
    until = now
    while until - now < LONGEST_S:
        ends = [end for each in hours for start, end in _about(each, until) if start <= until < end]
        if not ends:
            break
        until = max(ends)
    return min(until, now + LONGEST_S) if until > now else None


def _about(hours: QuietHours, moment: float) -> Iterator[tuple[float, float]]:
    """Yield start and end of the quiet times that can cover a moment: that of its day, and that of the day before."""
    zone = ZoneInfo(hours.timezone)
    today = datetime.fromtimestamp(moment, UTC).astimezone(zone).date()
    start, end = time.fromisoformat(hours.start), time.fromisoformat(hours.end)
    for day in (today - timedelta(days=1), today):
        if DAYS[day.weekday()] in hours.days:
            last = day if end > start else day + timedelta(days=1)
            yield _epoch(day, start, zone), _epoch(last, end, zone)


def _epoch(day: date, clock: time, zone: ZoneInfo) -> float:
    return datetime.combine(day, clock, tzinfo=zone).timestamp()


STAGED = "staged: nobody paged"
MUTED = "muted: no alert sent"
LATE = "too late to warn: no alert sent"

# At least this share of a grace time must lie between the warning and the stop.
WARNED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Routing:
    """``withheld`` says why no alert is sent, ``wait_until`` (epoch seconds) when; with neither at once.

    ``brake`` is the one that silences it.
    """

    withheld: str | None = None
    wait_until: float | None = None
    brake: Brake | None = None


def silenced(brake: Brake) -> Routing:
    return Routing(withheld=f"silenced by {brake.words}: no alert sent", brake=brake)


def route(request: AlertRequest, *, now: float, brake: Brake | None = None) -> Routing:
    """Decide on an alert at ``now``, epoch seconds; ``brake`` is in force on its job and rule."""
    entry, alerts = request.fire.entry, request.fire.policy.alerts
    is_finding = entry.kind is not AlertKind.NOTICE
    if is_finding and alerts.is_staged(entry.finding.rule):
        return Routing(withheld=STAGED)
    stop_at, grace_s = request.decision.stop_at, request.fire.policy.stops.grace_s
    # A warning may have waited so long, for a function to be free, that little of the grace time is left.
    is_late = stop_at is not None and epoch_of(stop_at) - now < WARNED_SHARE * grace_s
    if entry.kind is AlertKind.WARNING and is_late:
        return Routing(withheld=LATE)
    if request.is_about_a_stop:
        return Routing()
    if brake is not None:
        return silenced(brake)
    if is_finding and alerts.is_muted(entry.finding.rule):
        return Routing(withheld=MUTED)
    is_urgent = entry.finding.severity == Severity.CRITICAL and entry.kind is not AlertKind.CLEARED
    return Routing(wait_until=None if is_urgent else quiet_until(alerts.quiet_hours, now))


SENT_LATE = "alert sent late"
UNKNOWN = "unknown"
# Of a text in the document: a link into the console is three times as long as a key can be.
LONGEST_TEXT = 4_000

_STOPPED = {True: "true", False: "false", None: UNKNOWN}


@dataclass(frozen=True, slots=True)
class ReadyAlert:
    """An alert, ready to publish; ``action`` is for the rule's row, ``waiting`` for the time until quiet hours end."""

    alert_id: str
    subject: str
    text: str
    document: Mapping[str, Any]
    chat: Mapping[str, Any]
    attributes: Mapping[str, str]
    action: str
    waiting: str
    routing: Routing


def compose_alert(request: AlertRequest, *, now: float, brake: Brake | None = None) -> ReadyAlert:
    """Compose the alert of a fire or follow-up with its stop; ``now``, epoch seconds, is for quiet hours.

    ``brake`` is in force on its job and rule.
    """
    fire, routing, done = request.fire, route(request, now=now, brake=brake), wording.action(request)
    waiting = "" if routing.wait_until is None else f"alert waits until {iso_time(routing.wait_until)} (quiet hours)"
    return ReadyAlert(
        alert_id=fire.own_id,
        subject=wording.subject(fire),
        text=wording.text(request, done),
        document=plain_document(_document(request, done, routing), LONGEST_TEXT),
        chat=chat_message(request, done),
        attributes=plain_document(_attributes(request), LONGEST_TEXT),
        action=one_line(_recorded(fire, routing, done), LONGEST_SENTENCE),
        waiting=one_line(f"{waiting}. {done}", LONGEST_SENTENCE),
        routing=routing,
    )


def _attributes(request: AlertRequest) -> dict[str, str]:
    fire = request.fire
    return {
        "AlertId": fire.own_id,
        "Job": fire.job,
        "Rule": fire.rule,
        "Kind": CANARY_KIND if is_canary(fire.job, fire.job_arn, fire.canary) else fire.entry.kind.value,
        "Severity": fire.entry.finding.severity or UNKNOWN,
        "Stopped": _STOPPED[request.stop.made],
    }


def _recorded(fire: FireInput, routing: Routing, done: str) -> str:
    """Return the sentence for the rule's row; a staged rule stops nothing."""
    if routing.withheld == STAGED:
        return STAGED
    note = routing.withheld or (None if fire.resend is None else SENT_LATE)
    return done if note is None else f"{note}. {done}"


def _document(request: AlertRequest, done: str, routing: Routing) -> dict[str, Any]:
    fire, entry, decision = request.fire, request.fire.entry, request.decision
    document = {
        "kind": entry.kind.value,
        "canary": is_canary(fire.job, fire.job_arn, fire.canary),
        "alert_id": fire.own_id,
        "fire_id": entry.fire_id,
        "job": fire.job,
        "job_arn": fire.job_arn,
        "tuning_job": fire.tuning_job,
        "episode": entry.episode,
        "fired_at": fire.fired_at,
        "previous_severity": entry.previous_severity,
        "lasted_s": entry.lasted_s,
        "faults": fire.faults,
        **flat(entry.finding),
        "stop": {
            "made": request.stop.made,
            "decision": decision.decision,
            "why": decision.why,
            "stop_at": decision.stop_at,
        },
        "stop_error": request.stop.error,
        "action": done,
        "late": fire.resend is not None,
        "withheld": routing.withheld,
        "waits_until": None if routing.wait_until is None else iso_time(routing.wait_until),
        **_report(fire),
    }
    return msgspec.structs.asdict(AlertDocument(**document))


def _report(fire: FireInput) -> dict[str, Any]:
    return {
        "report_uri": fire.report_uri,
        "report_page": fire.report_page,
        "report_link": fire.report_link,
        "report_command": open_command(fire.job),
        "run_links": plain_links(fire.run_links),
    }


_STOPPED_BARE = {True: ("yes", "true"), False: ("no", "false")}


def bare_alert(call: Mapping[str, Any], brake: Brake | None = None) -> ReadyAlert:
    """Return the alert of a call of `send_alert`, of which nothing but texts is expected."""
    fire = call["fire"]
    decision, stop = (outcome if isinstance(outcome, Mapping) else {} for outcome in outcome_of_call(call))
    made = stop.get("made") if isinstance(stop.get("made"), bool) else None
    job, rule, kind = (str(fire.get(name, UNKNOWN)) for name in ("job", "rule", "kind"))
    outcome = f"{rule} fired" if kind == AlertKind.FIRE.value else f"{rule} ({kind})"
    in_words, as_value = _STOPPED_BARE[made] if made is not None else (UNKNOWN, UNKNOWN)
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
        "Kind": CANARY_KIND if is_canary(job, str(fire.get("jobArn")), fire.get("canary")) else kind,
        "Severity": str(fire.get("severity") or UNKNOWN),
        "Stopped": as_value,
    }
    done = "alert sent without its details" + ("; training job stopped" if made else "")
    routing = _routing(fire, brake, is_about_a_stop=failed or made is not False)
    return ReadyAlert(
        alert_id=alert_id,
        subject="".join(each if " " <= each <= "~" else "?" for each in title)[:SUBJECT_LIMIT],
        text="\n".join(
            [*(mail_line(line, LONGEST_SENTENCE) for line in lines), *places, f"Or with a link: {open_command(job)}"]
        ),
        document=plain_document({**fire, "stopMade": made, "stopError": stop.get("error")}, LONGEST_TEXT),
        chat=_chat(title, lines),
        attributes=plain_document(attributes, LONGEST_TEXT),
        action=one_line(routing.withheld or done, LONGEST_SENTENCE),
        waiting="",
        routing=routing,
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


def _routing(fire: Mapping[str, Any], brake: Brake | None, *, is_about_a_stop: bool) -> Routing:
    """Withhold the alert of a staged rule; where no stop is to be reported, that of a braked or muted one."""
    named: set[str] = set()
    if fire.get("kind") != AlertKind.NOTICE.value:
        policy = fire.get("policy")
        alerts = policy.get("alerts") if isinstance(policy, Mapping) else None
        named = {name for name in ("staged", "muted") if {str(fire.get("rule")), "all"} & _names(alerts, name)}
    if "staged" in named:
        return Routing(withheld=STAGED)
    if is_about_a_stop:
        return Routing()
    if brake is not None:
        return silenced(brake)
    return Routing(withheld=MUTED if "muted" in named else None)


def _names(alerts: object, kind: str) -> set[Any]:
    found = alerts.get(kind) if isinstance(alerts, Mapping) else None
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def count_stop(request: AlertRequest, journal: Journal, *, sent: bool = True) -> None:
    """Count the stop of an alert; refusals if the owner wanted it, a warning if ``sent``, and no late alert."""
    fire, decision, stop = request.fire, request.decision, request.stop
    if fire.resend is not None:
        return
    if stop.made:
        what = "stops_made"
    elif decision.stop:
        what = "stops_failed"
    elif fire.entry.kind is AlertKind.WARNING and sent:
        what = "stops_announced"
    elif decision.decision == "dry-run":
        what = "stops_in_dry_run"
    elif decision.decision == "refused" and decision.opted_in:
        what = "stops_refused"
    else:
        return
    journal.count(what, job=fire.job, rule=fire.rule, reason=stop.error or decision.why)
