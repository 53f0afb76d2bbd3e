"""Inputs from the state machine of full reports, and from the schedule of digests."""

from datetime import datetime
from typing import Annotated

import msgspec

from trainguard.core.timestamps import check_event_time
from trainguard.stack.report.keys import Listing


class PlanCall(msgspec.Struct, frozen=True):
    """The job to plan a report of, the execution, and how far an earlier call has listed its objects."""

    job: str
    run: str
    listing: Listing | None = None


class BuildCall(msgspec.Struct, frozen=True):
    """The job to report on, from the parts of ``run``, or from its state; ``drop`` deletes the parts."""

    job: str
    run: str | None = None
    drop: bool = False
    kind: str | None = None


class WeeklyCall(msgspec.Struct, frozen=True):
    """The event of a schedule, whose time says which week is over."""

    time: Annotated[datetime, msgspec.Meta(tz=True)]

    def __post_init__(self) -> None:
        check_event_time(self.time)
