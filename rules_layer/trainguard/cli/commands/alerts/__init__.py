"""``trainguard alerts``: the alerts that were not sent."""

import time
from typing import Annotated

import typer

from trainguard.cli.command import PlainGroup, Result, command
from trainguard.cli.options import Where, all_option, argument, since_option

alerts = typer.Typer(
    name="alerts",
    cls=PlainGroup,
    no_args_is_help=True,
    help="Show the alerts that were not sent, and send them.",
)

_LOOKED_BACK_S = 14 * 86_400.0
_Since = Annotated[float | None, since_option("How far back to look: 14d, or up to 90d.")]


@alerts.command("list")
@command()
def list_unsent(
    job: Annotated[str | None, argument("JOB", "A training job; else all.")] = None,
    *,
    since: _Since = None,
    where: Where,
) -> Result:
    """Show the alerts that mail or chat did not get, be it by a fault or by an operator's brake. It only reads.

    What a job's own settings withhold, as of a staged or muted rule, is not among them.

    Examples: `trainguard alerts list`, `trainguard alerts list my-job --since 30d`
    """
    from trainguard.cli.commands.alerts.unsent import alerts_result, find, listed
    from trainguard.cli.services.deployment import connect

    now = time.time()
    begin = now - (since or _LOOKED_BACK_S)
    found = find(connect(where), job, begin, now)
    return alerts_result([listed(alert) for alert in found], job, begin, now)


@alerts.command()
@command()
def send(
    job: Annotated[str | None, argument("JOB", "The training job whose alerts are sent.")] = None,
    *,
    every_job: Annotated[bool, all_option("Send the alerts of all jobs.")] = False,
    since: _Since = None,
    where: Where,
) -> Result:
    """Send the alerts that were not sent, each by its own execution. It stops no training job.

    Sending again what was sent, or is being sent, does nothing. Exit code 0: all are sent, or wait for the end of quiet
    hours. 1: one could not be sent. 2: it could not try.

    Examples: `trainguard alerts send my-job`, `trainguard alerts send --all --since 2d`
    """
    if (job is None) != every_job:
        raise typer.BadParameter("give either a JOB or --all")
    from trainguard.cli.commands.alerts import unsent
    from trainguard.cli.services.deployment import connect

    now, deployment = time.time(), connect(where)
    begin = now - (since or _LOOKED_BACK_S)
    found = unsent.find(deployment, job, begin, now)
    entries = unsent.send_all(found, unsent.machine_of(deployment), deployment.stores.alerts)
    return unsent.alerts_result(entries, job, begin, now, sent=True)
