"""``trainguard alerts``: the alerts that were not sent."""

from typing import Annotated

import typer

from trainguard.cli.options import DEFAULT_STACK, AsJson, Profile, Region, Stack, since_option

alerts = typer.Typer(
    name="alerts",
    no_args_is_help=True,
    help="Show the alerts that were not sent, and send them.",
)

_LOOKED_BACK_S = 14 * 86_400.0

_Since = Annotated[float | None, since_option("How far back to look: 14d, or up to 90d.")]


@alerts.command("list")
def list_unsent(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="A training job; else all.", show_default=False),
    ] = None,
    *,
    since: _Since = None,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show the alerts that an execution of the fire machine should have sent and could not. It only reads.

    What is withheld, as of a staged or muted rule, is not among them.

    Examples: `trainguard alerts list`, `trainguard alerts list my-job --since 30d`
    """
    from trainguard.cli.commands.alerts.run import list_command
    from trainguard.cli.services.deployment import Where

    where = Where(stack=stack, region=region, profile=profile)
    raise typer.Exit(list_command(where, job, since or _LOOKED_BACK_S, as_json=as_json))


@alerts.command()
def send(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="The training job whose alerts are sent.", show_default=False),
    ] = None,
    *,
    every_job: Annotated[bool, typer.Option("--all", help="Send the alerts of all jobs.")] = False,
    since: _Since = None,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Send the alerts that were not sent, each by its own execution. It stops no training job.

    Sending again what was sent, or is being sent, does nothing. Exit code 0: all are sent, or wait for the end of quiet
    hours. 1: one could not be sent. 2: it could not try.

    Examples: `trainguard alerts send my-job`, `trainguard alerts send --all --since 2d`
    """
    from trainguard.cli.commands.alerts.run import send_command
    from trainguard.cli.services.deployment import Where

    if (job is None) != every_job:
        raise typer.BadParameter("give either a JOB or --all")
    where = Where(stack=stack, region=region, profile=profile)
    raise typer.Exit(send_command(where, job, since or _LOOKED_BACK_S, as_json=as_json))
