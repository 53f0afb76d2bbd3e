"""``trainguard jobs``."""

from enum import StrEnum
from typing import Annotated

import typer

from trainguard.cli.options import DEFAULT_STACK, AsJson, Profile, Region, Stack, since_option, status_option


class StatusOf(StrEnum):
    """The statuses of `trainguard.records.JobStatus`, which takes time to import."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    COMPLETED = "Completed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


def jobs(
    *,
    active: Annotated[bool, typer.Option("--active", help="Jobs that are still evaluated.")] = False,
    status: Annotated[
        StatusOf | None,
        status_option("Jobs of that status."),
    ] = None,
    since: Annotated[float | None, since_option("Begun in the last 12h, 7d, …")] = None,
    fired: Annotated[bool, typer.Option("--fired", help="Jobs on which a rule has fired.")] = False,
    tuning: Annotated[
        str | None, typer.Option("--tuning", metavar="NAME", help="Jobs of that tuning job.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many, the newest.")] = 50,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs that the deployed stack has seen, the newest first, with what was found on them.

    Examples: `trainguard jobs --fired --since 7d`, `trainguard jobs --active`, `trainguard jobs --status failed --json`
    """
    from trainguard.cli.commands.jobs.run import JobFilter, jobs_command
    from trainguard.cli.services.deployment import Where
    from trainguard.records import JobStatus

    wanted_status = None if status is None else JobStatus(status.value)
    wanted = JobFilter(active=active, status=wanted_status, since_s=since, fired=fired, tuning_job=tuning, limit=limit)
    where = Where(stack=stack, region=region, profile=profile)
    raise typer.Exit(jobs_command(where, wanted, as_json=as_json))
