"""``trainguard replay``."""

from pathlib import Path
from typing import Annotated

import typer

from trainguard.cli.options import (
    DEFAULT_STACK,
    AsJson,
    FailOnFire,
    OwnRules,
    Params,
    Prices,
    Profile,
    Region,
    Stack,
    out_option,
)


def replay(
    source: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="A training job's name, s3://bucket/prefix/<job>, or a folder with its profile.",
            show_default=False,
        ),
    ],
    *,
    params: Params = None,
    prices: Prices = None,
    rules_package: OwnRules = None,
    label: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Call it <job>@replay-NAME; else by the time.", show_default=False),
    ] = None,
    out: Annotated[Path | None, out_option("Folder for its report; else ./<name>-report.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Write its report into the bucket too.")] = False,
    fail_on_fire: FailOnFire = False,
    as_json: AsJson = False,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
) -> None:
    """Evaluate an old job with today's rules and parameters, and show what would have changed.

    Its rows get the name <job>@replay-<time>. It sends no alert and stops nothing.

    Examples: `trainguard replay my-job`, `trainguard replay my-job --params stricter.json --as stricter`,
    `trainguard replay s3://my-profiles/jobs/my-job --report --json`
    """
    from trainguard.cli.services.own_rules import know

    know(package=rules_package)
    from trainguard.cli.commands.replay.run import ReplayRequest, replay_command
    from trainguard.cli.services.deployment import Where

    request = ReplayRequest(
        source=source,
        params=params,
        prices=prices,
        label=label,
        out=out,
        publish=report,
        where=Where(stack=stack, region=region, profile=profile),
    )
    raise typer.Exit(replay_command(request, as_json=as_json, fail_on_fire=fail_on_fire))
