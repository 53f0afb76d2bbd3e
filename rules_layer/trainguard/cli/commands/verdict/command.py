"""``trainguard verdict``."""

from typing import Annotated

import typer

from trainguard.cli.options import (
    DEFAULT_STACK,
    AsJson,
    FailOnFire,
    InstanceType,
    Params,
    Prices,
    Profile,
    Region,
    Stack,
)


def verdict(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The name of a training job that the stack knows, or a place as of trainguard report.",
            show_default=False,
        ),
    ],
    *,
    params: Params = None,
    instance_type: InstanceType = None,
    prices: Prices = None,
    write_mlflow: Annotated[
        str | None,
        typer.Option(
            "--write-mlflow",
            metavar="PLACE",
            help="Also write the verdict as tags of a run: mlflow+https://host#RUN; without #RUN of the job's own run.",
            show_default=False,
        ),
    ] = None,
    fail_on_fire: FailOnFire = False,
    as_json: AsJson = False,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
) -> None:
    """Say in one word whether a job is idle, wasted, at risk or healthy, since when, and what is done about it.

    For other programs: whatever is unknown or cannot be reached counts as active. Exit code 0: it was looked up.
    1: idle, wasted or at risk, and --fail-on-fire was given. 2: it could not be looked up. 3: unknown.

    Examples: `trainguard verdict my-job --json`, `trainguard verdict ./my-job`,
    `trainguard verdict 'mlflow.db#my run' --fail-on-fire`,
    `trainguard verdict my-job --write-mlflow mlflow+https://mlflow.example.com`
    """
    from trainguard.cli.commands.verdict.run import VerdictRequest, verdict_command
    from trainguard.cli.services.deployment import Where

    request = VerdictRequest(
        source=source,
        where=Where(stack=stack, region=region, profile=profile),
        params=params,
        prices=prices,
        instance_type=instance_type,
        write_mlflow=write_mlflow,
    )
    raise typer.Exit(verdict_command(request, as_json=as_json, fail_on_fire=fail_on_fire))
