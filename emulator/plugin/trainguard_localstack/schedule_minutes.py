"""How long a minute of EventBridge's ``rate(1 minute)`` rules lasts: ``TRAINGUARD_MINUTE_S`` seconds."""

from __future__ import annotations

import os

from localstack.services.events.scheduler import JobScheduler

MINUTE_VARIABLE = "TRAINGUARD_MINUTE_S"


def install() -> None:
    """Replace the scheduler's loop by one that knows the minute's length."""
    minute_s = float(os.environ.get(MINUTE_VARIABLE, "60"))

    def loop(scheduler: JobScheduler, *_args: object) -> None:
        while not scheduler._stop_event.wait(timeout=minute_s):
            for job in list(scheduler.jobs):
                job.run()

    JobScheduler.loop = loop
