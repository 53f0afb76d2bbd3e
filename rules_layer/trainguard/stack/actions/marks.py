"""Which channels took an alert: what is claimed, sent and silenced."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol


class Channel(StrEnum):
    """Channel of an alert."""

    BUS = "bus"
    MAIL = "mail"
    CHAT = "chat"
    WEBHOOK = "webhook"


# The channels of an alert that is not a canary's, beside the bus.
PEOPLE = (Channel.MAIL, Channel.CHAT)

# Whether a channel may be used: claimed here, used before, or in use by another invocation.
Claim = Literal["taken", "sent", "busy"]


@dataclass(frozen=True, slots=True)
class AlertMark:
    """What became of one alert: the channels that took it, and the brake that silenced it at ``silenced_at``.

    ``execution`` names the execution that a brake silenced; times are in epoch seconds.
    """

    alert_id: str
    sent: frozenset[Channel] = frozenset()
    silenced: str | None = None
    silenced_at: float | None = None
    execution: str | None = None

    @property
    def reached_people(self) -> bool:
        """Whether each channel of people took the alert."""
        return self.sent >= {*PEOPLE}


class SentAlerts(Protocol):
    """Which alerts were sent where; every method raises PortUnavailableError."""

    def claim(self, alert_id: str, channel: Channel, *, now: float) -> Claim:
        """Claim a channel for an alert."""

    def settle(self, alert_id: str, channel: Channel, *, sent_at: float | None) -> None:
        """Release it, with the time at which the alert was sent, if it was."""

    def silence(self, alert_id: str, *, why: str, execution: str, now: float) -> None:
        """Note the brake that silenced an alert, and the execution that would have sent it."""


class AlertMarks(Protocol):
    """What became of alerts, to read; both methods raise PortUnavailableError."""

    def mark(self, alert_id: str) -> AlertMark:
        """Return the mark of an alert; an empty one where there is none."""

    def silenced(self) -> Iterator[AlertMark]:
        """Iterate over the marks of alerts that a brake silenced."""
