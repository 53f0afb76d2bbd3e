"""``trainguard stops``: the operators' stop switch."""

import typer

from trainguard.cli.options import DEFAULT_STACK, AsJson, Profile, Region, Stack

stops = typer.Typer(
    name="stops",
    no_args_is_help=True,
    help="Show whether TrainGuard may stop training jobs, or forbid it for the whole stack.",
)


@stops.command()
def status(
    *, stack: Stack = DEFAULT_STACK, region: Region = None, profile: Profile = None, as_json: AsJson = False
) -> None:
    """Show the stop switch: what the stack deploys, what operators say, and which of the two is in force.

    Examples: `trainguard stops status`, `trainguard stops status --json`
    """
    from trainguard.cli.commands.stops.run import show_switch
    from trainguard.cli.services.deployment import Where

    raise typer.Exit(show_switch(Where(stack=stack, region=region, profile=profile), as_json=as_json))


@stops.command()
def disable(
    *, stack: Stack = DEFAULT_STACK, region: Region = None, profile: Profile = None, as_json: AsJson = False
) -> None:
    """Stop no training job any more, from the next decision on, until stops are enabled. An upgrade changes nothing.

    Examples: `trainguard stops disable`, `trainguard stops disable --region eu-west-1`
    """
    _override("disabled", stack, region, profile, as_json=as_json)


@stops.command("dry-run")
def dry_run(
    *, stack: Stack = DEFAULT_STACK, region: Region = None, profile: Profile = None, as_json: AsJson = False
) -> None:
    """Stop no training job, and let alerts say which one would have been stopped. An upgrade changes nothing.

    Examples: `trainguard stops dry-run`
    """
    _override("dry-run", stack, region, profile, as_json=as_json)


@stops.command()
def enable(
    *, stack: Stack = DEFAULT_STACK, region: Region = None, profile: Profile = None, as_json: AsJson = False
) -> None:
    """Take back what operators have forbidden. What the stack itself deploys stays in force.

    Examples: `trainguard stops enable`
    """
    _override("enabled", stack, region, profile, as_json=as_json)


def _override(value: str, stack: str, region: str | None, profile: str | None, *, as_json: bool) -> None:
    from trainguard.actions.stop_switch import StopSwitch
    from trainguard.cli.commands.stops.run import set_override
    from trainguard.cli.services.deployment import Where

    where = Where(stack=stack, region=region, profile=profile)
    raise typer.Exit(set_override(StopSwitch(value), where, as_json=as_json))
