"""``trainguard brake``: what operators silence or forbid, now and for running jobs."""

import time
from typing import Annotated, Literal

import typer

from trainguard.cli.command import PlainGroup, Result, command
from trainguard.cli.options import Where, all_option, argument, job_option, option, rule_names, rule_option, until

brake = typer.Typer(
    name="brake",
    cls=PlainGroup,
    no_args_is_help=True,
    help="Silence alerts, hold evaluation back or forbid stops: of a job, a rule, or the whole stack, until a time.",
)

_What = Literal["alerts", "evaluation", "stops"]


@brake.command("list")
@command()
def list_brakes(*, where: Where) -> Result:
    """Show the brakes that are in force, and those that ended within a day. It only reads.

    Examples: `trainguard brake list`, `trainguard brake list --json`
    """
    from trainguard.cli.commands.brake.brakes import listed

    return listed(where, now=time.time())


@brake.command()
@command(loads_rules=("rules_package",))
def add(
    what: Annotated[_What, argument("WHAT", "What is held back: alerts, evaluation or stops.")],
    *,
    why: Annotated[str, option("--why", "TEXT", "The reason, for whoever meets the brake.")],
    job: Annotated[str | None, job_option("Of this job; else of all.")] = None,
    rule: Annotated[str | None, rule_option("RULE", "Of this rule; else of all.", autocompletion=rule_names)] = None,
    ends: Annotated[
        float | None,
        option(
            "--until", "TIME", "For 2h, 7d, …, or until 2026-12-01T08:00Z; else until it is released.", parser=until
        ),
    ] = None,
    where: Where,
) -> Result:
    """Put a brake on, which reaches running jobs within a minute. No upgrade takes it off.

    Alerts about a stop are sent in any case. A silenced alert is shown by `trainguard alerts list`. What is not
    evaluated now is evaluated after the brake.

    Examples: `trainguard brake add alerts --until 2h --why "maintenance of the network"`,
    `trainguard brake add alerts --job my-job --why "known, ticket 17"`,
    `trainguard brake add evaluation --why "costs"`
    """
    from trainguard.cli.commands.brake.brakes import added

    return added(what, where, why=why, job=job, rule=rule, until=ends, now=time.time())


@brake.command()
@command()
def release(
    brake_id: Annotated[str | None, argument("BRAKE", "The brake, as `trainguard brake list` names it.")] = None,
    *,
    every_brake: Annotated[bool, all_option("Release all brakes.")] = False,
    where: Where,
) -> Result:
    """Take a brake off before its time.

    Examples: `trainguard brake release b-3f09ac`, `trainguard brake release --all`
    """
    if (brake_id is None) != every_brake:
        raise typer.BadParameter("give either a BRAKE or --all")
    from trainguard.cli.commands.brake.brakes import released_brakes

    return released_brakes(brake_id, where, now=time.time())
