"""What the state machine of full reports, and the schedule of digests, give their functions."""

from datetime import datetime
from typing import Annotated

import msgspec

from trainguard.report.stack.keys import Listing
from trainguard.timestamps import check_event_time


class PlanCall(msgspec.Struct, frozen=True):
    """The job to plan a report of, the execution that does, and how far an earlier call has listed its objects."""

    job: str
    run: str
    listing: Listing | None = None


class BuildCall(msgspec.Struct, frozen=True):
    """The job to report on: from the parts of ``run``, or from its state; with ``drop``, the parts are deleted.

    ``kind`` is that of the execution's input: after a fire, a full report that is there already stays.
    """

    job: str
    run: str | None = None
    drop: bool = False
    kind: str | None = None


class WeeklyCall(msgspec.Struct, frozen=True):
    """The event of a schedule, whose time says which week is over."""

    time: Annotated[datetime, msgspec.Meta(tz=True)]

    def __post_init__(self) -> None:
        """Refuse a time at which no schedule calls."""
        check_event_time(self.time)
