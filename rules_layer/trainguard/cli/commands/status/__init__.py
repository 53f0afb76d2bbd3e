"""``trainguard status``."""

import functools
import time
from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import Where, argument


@command(fails_on_fire=True)
def status(
    job: Annotated[str | None, argument("JOB", "A job, or a tuning job; else all active.")] = None,
    *,
    nodes: Annotated[bool, typer.Option("--nodes", help="Show the rules on each node of the job too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat the output, on a terminal.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=1.0, help="Time between two outputs of --watch.")
    ] = 10.0,
    where: Where,
    as_json: bool,
    fail_on_fire: bool,
) -> "Result | int":
    """Show what fires on the active jobs, every rule of one job with what it measured, or the jobs of a tuning job.

    Exit code 0: it was looked up. 1: a rule has fired and --fail-on-fire was given. 2: it could not be looked up.

    Examples: `trainguard status`, `trainguard status my-job --nodes`, `trainguard status my-job --watch --every 30`
    """
    from trainguard.cli.commands.status.job_status import job_result, tuning_result
    from trainguard.cli.output.rendering import stdout_console
    from trainguard.cli.output.result import watch as redraw
    from trainguard.cli.services.brakes import known_brakes, with_brakes
    from trainguard.cli.services.deployment import connect
    from trainguard.cli.services.job_list import active_result

    deployed = functools.cache(lambda: connect(where))

    def shown(now: float) -> Result:
        known = deployed().stores
        if job is None:
            return active_result(known, now=now)
        # A tuning job's name is meant where no training job has it.
        tuning_job = known.bookkeeping.tuning_job(job) if known.jobs.load(job) is None else None
        if tuning_job is not None:
            return tuning_result(tuning_job, now=now)
        return job_result(known, job, nodes=nodes, now=now)

    def look() -> Result:
        now = time.time()
        return with_brakes(shown(now), known_brakes(deployed()), now, job)

    if watch and not as_json:
        return redraw(look, console=stdout_console(), every_s=every, fail_on_fire=fail_on_fire)
    return look()
