"""``trainguard jobs``."""

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import Where, option, since_option, status_option

if TYPE_CHECKING:
    from trainguard.core.records import JobRecord


StatusOf = Literal["InProgress", "Stopping", "Stopped", "Completed", "Failed", "Unknown"]


@command()
def jobs(
    *,
    active: Annotated[bool, typer.Option("--active", help="Jobs that are still evaluated.")] = False,
    status: Annotated[
        StatusOf | None,
        status_option("Jobs of that status."),
    ] = None,
    since: Annotated[float | None, since_option("Begun in the last 12h, 7d, …")] = None,
    fired: Annotated[bool, typer.Option("--fired", help="Jobs on which a rule has fired.")] = False,
    tuning: Annotated[str | None, option("--tuning", "NAME", "Jobs of that tuning job.")] = None,
    platform: Annotated[str | None, option("--platform", "NAME", "Jobs of sagemaker, slurm, batch, …")] = None,
    queue: Annotated[str | None, option("--queue", "NAME", "Jobs of that queue or partition.")] = None,
    owner: Annotated[str | None, option("--owner", "NAME", "Jobs of that user, team or project.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most N, the newest.")] = 50,
    where: Where,
) -> Result:
    """List the jobs that the deployed stack has seen, the newest first, with what was found on them.

    Examples: `trainguard jobs --fired --since 7d`, `trainguard jobs --active`, `trainguard jobs --status failed --json`
    """
    from trainguard.cli.services.deployment import connect
    from trainguard.cli.services.job_list import begun, jobs_result

    now = time.time()

    def wanted(record: "JobRecord") -> bool:
        at = begun(record)
        recent = since is None or (at is not None and now - at <= since)
        described = ((status, record.status.value), (tuning, record.tuning_job), (platform, record.platform))
        named = all(asked in {None, found} for asked, found in (*described, (queue, record.queue)))
        return recent and named and (owner is None or owner in record.owners.values())

    return jobs_result(connect(where).stores, wanted, active=active, fired=fired, limit=limit, now=now)
