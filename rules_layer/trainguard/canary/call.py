"""What a schedule asks of the canary."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec


class CanaryCall(msgspec.Struct, frozen=True):
    """A step, and the time of the event that asks for it."""

    step: Literal["plant", "look"]
    time: Annotated[datetime, msgspec.Meta(tz=True)]
