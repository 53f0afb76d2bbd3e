"""What a schedule asks of the canary."""

from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from trainguard.core.timestamps import check_event_time

CANARY_WEEKDAY = 0
"""Monday."""

LOOKED_AFTER_MINUTES = 15


class CanaryCall(msgspec.Struct, frozen=True):
    """A step, and the time of the event that asks for it; ``scheduled`` leaves the step to the time."""

    step: Literal["plant", "look", "scheduled"]
    time: Annotated[datetime, msgspec.Meta(tz=True)]

    def __post_init__(self) -> None:
        """Raise ValueError for a time at which no schedule calls."""
        check_event_time(self.time)

    @property
    def due(self) -> Literal["plant", "look"] | None:
        """The step that is due: on Mondays in UTC one plants and one checks; other days show that the schedule runs."""
        if self.step != "scheduled":
            return self.step
        at = self.time.astimezone(UTC)
        if at.weekday() != CANARY_WEEKDAY:
            return None
        return "plant" if at.minute < LOOKED_AFTER_MINUTES else "look"
