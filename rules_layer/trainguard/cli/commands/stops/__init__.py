"""``trainguard stops``: the operators' stop switch."""

import typer

from trainguard.cli.command import PlainGroup, Result, command
from trainguard.cli.options import Where

stops = typer.Typer(
    name="stops",
    cls=PlainGroup,
    no_args_is_help=True,
    help="Show whether TrainGuard may stop training jobs, or forbid it for the whole stack.",
)


@stops.command()
@command()
def status(*, where: Where) -> Result:
    """Show the stop switch: what the stack deploys, what operators say, what is in force, and brakes on stops.

    Examples: `trainguard stops status`, `trainguard stops status --json`
    """
    from trainguard.cli.commands.stops.switch import shown_switch

    return shown_switch(where)


@stops.command()
@command()
def disable(*, where: Where) -> Result:
    """Stop no training job any more, from the next decision on, until stops are enabled. An upgrade changes nothing.

    Examples: `trainguard stops disable`, `trainguard stops disable --region eu-west-1`
    """
    from trainguard.cli.commands.stops.switch import written_switch

    return written_switch("disabled", where)


@stops.command("dry-run")
@command()
def dry_run(*, where: Where) -> Result:
    """Stop no training job, and let alerts say which one would have been stopped. An upgrade changes nothing.

    Examples: `trainguard stops dry-run`
    """
    from trainguard.cli.commands.stops.switch import written_switch

    return written_switch("dry-run", where)


@stops.command()
@command()
def enable(*, where: Where) -> Result:
    """Take back what operators have forbidden. What the stack itself deploys stays in force.

    Examples: `trainguard stops enable`
    """
    from trainguard.cli.commands.stops.switch import written_switch

    return written_switch("enabled", where)
