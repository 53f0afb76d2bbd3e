"""``trainguard status``."""

from typing import Annotated

import typer

from trainguard.cli.options import DEFAULT_STACK, AsJson, FailOnFire, Profile, Region, Stack


def status(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="A job, or a tuning job; else all active.", show_default=False),
    ] = None,
    *,
    nodes: Annotated[bool, typer.Option("--nodes", help="Show the rules on each node of the job too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat the output, on a terminal.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=1.0, help="Time between two outputs of --watch.")
    ] = 10.0,
    fail_on_fire: FailOnFire = False,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show what fires on the active jobs, every rule of one job with what it measured, or the jobs of a tuning job.

    Exit code 0: it was looked up. 1: a rule has fired and --fail-on-fire was given. 2: it could not be looked up.

    Examples: `trainguard status`, `trainguard status my-job --nodes`, `trainguard status my-job --watch --every 30`
    """
    from trainguard.cli.commands.status.run import StatusRequest, status_command
    from trainguard.cli.services.deployment import Where

    request = StatusRequest(
        where=Where(stack=stack, region=region, profile=profile),
        job=job,
        nodes=nodes,
        watch_s=every if watch else None,
        fail_on_fire=fail_on_fire,
        as_json=as_json,
    )
    raise typer.Exit(status_command(request))
