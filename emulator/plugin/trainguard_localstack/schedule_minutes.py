"""How long a minute of EventBridge's scheduled rules lasts.

LocalStack looks at its scheduled rules once a minute, and a rule with ``rate(1 minute)`` fires at each look. A test
that waits for two ticks need not last two minutes: with ``TRAINGUARD_MINUTE_S=5`` LocalStack looks every five seconds.
Rules with other rates or with cron expressions are still judged by the real clock, and only make sense with the real
minute.
"""

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
