"""``trainguard doctor``."""

from typing import Annotated

import typer

from trainguard.cli.options import DEFAULT_STACK, AsJson, OwnRules, Profile, Region, Stack, job_option


def doctor(
    *,
    job: Annotated[str | None, job_option("Examine this training job too.")] = None,
    bucket: Annotated[
        str | None,
        typer.Option("--bucket", metavar="NAME", help="A bucket; else the stack's own.", show_default=False),
    ] = None,
    rules_package: OwnRules = None,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Check the deployed stack: what works, what does not, and what to do.

    It only reads. Exit code 0: no check failed, in spite of warnings. 1: a check failed. 2: it could not run.

    Examples: `trainguard doctor`, `trainguard doctor --job my-job`, `trainguard doctor --region eu-west-1 --json`
    """
    from trainguard.cli.services.own_rules import know

    know(package=rules_package)
    from trainguard.cli.commands.doctor.run import DoctorRequest, doctor_command

    request = DoctorRequest(stack=stack, region=region, profile=profile, job=job, bucket=bucket, as_json=as_json)
    raise typer.Exit(doctor_command(request))
