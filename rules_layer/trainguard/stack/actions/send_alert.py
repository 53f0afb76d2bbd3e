"""Sends one alert once on each channel: bus, mail, chats, webhook; the bus also gets withheld findings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from trainguard.core.brakes import Brake, Braked, BrakeList
from trainguard.core.canary_name import CANARY_KIND, is_canary
from trainguard.core.errors import PortUnavailableError, TrainGuardError, error_text
from trainguard.core.ports import Journal
from trainguard.core.records import AlertKind
from trainguard.core.timestamps import iso_time
from trainguard.stack.actions.alert import ReadyAlert, bare_alert, compose_alert, count_stop
from trainguard.stack.actions.marks import Channel, SentAlerts
from trainguard.stack.actions.request import AlertRequest


class Channels(Protocol):
    """The topics and the bus."""

    def send(self, channel: Channel, alert: ReadyAlert) -> None:
        """Send an alert; raises PortUnavailableError where it is not accepted."""


class AlertUnsentError(TrainGuardError):
    """An alert that the last attempt did not send on every channel."""

    def __init__(self, unsent: Sequence[str]) -> None:
        super().__init__("; ".join(unsent))


@dataclass(frozen=True, slots=True)
class AlertSender:
    """Sends alerts, but for those that ``brakes`` silence; ``has_webhook``: not to people alone."""

    channels: Channels
    sent: SentAlerts
    journal: Journal
    brakes: Callable[[], BrakeList]
    has_webhook: bool = False

    def send(self, call: Mapping[str, Any], *, now: float) -> dict[str, Any]:
        """Send the alert of ``call``, unless it waits or is withheld; ``last``: there is no other try.

        Returns ``sent``, ``waitUntil``, the ``unsent`` channels with errors, other ``faults``, and ``outcome`` for the
        row. With ``due`` quiet hours are over. Raises AlertUnsentError with ``last``, msgspec.ValidationError where
        the call is of no fire, and PortUnavailableError where it cannot be noted that a brake silences the alert.
        """
        if not isinstance(call, Mapping) or not isinstance(call.get("fire"), Mapping):
            raise msgspec.ValidationError("fire: expected the input of an execution")
        brake = self._brake_on(call, now)
        alert, faults = self._composed(call, brake, now)
        if alert.routing.brake is not None:
            why, execution = alert.routing.brake.words, str(call["execution"])
            self.sent.silence(alert.alert_id, why=why, execution=execution, now=now)
            self.journal.count("alerts_silenced", job=str(call["fire"].get("job")), reason=why)
        wait_until = None if call.get("due") else alert.routing.wait_until
        channels = []
        if alert.routing.withheld is None and wait_until is None:
            # Chats and webhook get none of a canary.
            further = [Channel.CHAT, *([Channel.WEBHOOK] if self.has_webhook else [])]
            channels = [Channel.MAIL, *(further if alert.attributes["Kind"] != CANARY_KIND else [])]
        errors = dict(self._errors(alert, [Channel.BUS, *channels], faults, now=now))
        if call.get("last") and errors:
            raise AlertUnsentError(list(errors.values()))
        is_sent = bool(channels) and not errors.keys() & {*channels}
        return {
            "sent": is_sent,
            "waitUntil": None if wait_until is None else iso_time(wait_until),
            "unsent": list(errors.values()),
            "faults": faults,
            "outcome": _outcome(alert, call, errors, waits=wait_until is not None),
        }

    def _brake_on(self, call: Mapping[str, Any], now: float) -> Brake | None:
        """Return the brake on the alert; none on a canary's, nor where the call names no execution to send it later."""
        fire = call["fire"]
        job, rule = str(fire.get("job")), str(fire.get("rule"))
        if not call.get("execution") or is_canary(job, str(fire.get("jobArn")), fire.get("canary")):
            return None
        return self.brakes().on(Braked.ALERTS, job=job, rule=rule, now=now)

    def _composed(self, call: Mapping[str, Any], brake: Brake | None, now: float) -> tuple[ReadyAlert, list[str]]:
        """Compose the alert, and count its stop at the first try; a warning without its details would be none."""
        try:
            request = AlertRequest.read(call)
            alert = compose_alert(request, now=now, brake=brake)
            if not call.get("due"):
                count_stop(request, self.journal, sent=alert.routing.withheld is None)
        # Whatever fails in an alert's words, people are alerted to the fire.
        except Exception as fault:
            if call["fire"].get("kind") == AlertKind.WARNING.value:
                raise
            return bare_alert(call, brake), [f"ComposeAlert: {error_text(fault)}"]
        return alert, []

    def _errors(
        self, alert: ReadyAlert, channels: Sequence[Channel], faults: list[str], *, now: float
    ) -> Iterator[tuple[Channel, str]]:
        """Send on each channel; yield those that did not accept it, and add other failures to ``faults``."""
        for channel in channels:
            try:
                claim = self.sent.claim(alert.alert_id, channel, now=now)
            except PortUnavailableError as fault:
                # Without an answer it sends: two alerts are better than none.
                faults.append(f"{channel}: {fault}")
                claim = "taken"
            if claim == "busy":
                yield channel, f"{channel}: another invocation is sending it"
            if claim != "taken":
                continue
            error = None
            try:
                self.channels.send(channel, alert)
            except PortUnavailableError as fault:
                error = f"{channel}: {fault}"
            try:
                self.sent.settle(alert.alert_id, channel, sent_at=None if error else now)
            except PortUnavailableError as fault:
                faults.append(f"{channel}: {fault}")
            if error is not None:
                yield channel, error


def _outcome(
    alert: ReadyAlert, call: Mapping[str, Any], errors: Mapping[Channel, str], *, waits: bool
) -> dict[str, Any]:
    if waits:
        return {"action": alert.waiting, "alertId": None}
    if (mail_error := errors.get(Channel.MAIL)) is not None:
        stopped = {"true": "yes", "false": "no"}.get(alert.attributes["Stopped"], "not known")
        is_fire = call["fire"].get("kind") == AlertKind.FIRE.value
        ended = f"; training job stopped: {stopped}" if is_fire else ""
        return {"action": f"alert failed ({mail_error}){ended}", "alertId": None}
    # A sentence can follow another one; how a bare alert's words end says whether the job was stopped.
    is_told = Channel.CHAT in errors and alert.action.endswith(".")
    return {
        "action": f"{alert.action} No alert in the chat ({errors[Channel.CHAT]})." if is_told else alert.action,
        "alertId": alert.alert_id if alert.routing.withheld is None else None,
    }
