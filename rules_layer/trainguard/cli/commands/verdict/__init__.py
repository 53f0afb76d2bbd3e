"""``trainguard verdict``."""

import time
from typing import Annotated, Literal

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import InstanceType, Params, Prices, Where, argument, option, refuse


@command(fails_on_fire=True)
def verdict(
    source: Annotated[
        str, argument("SOURCE", "The name of a training job that the stack knows, or a place as of trainguard report.")
    ],
    *,
    params: Params = None,
    instance_type: InstanceType = None,
    prices: Prices = None,
    write_mlflow: Annotated[
        str | None,
        option(
            "--write-mlflow",
            "PLACE",
            "Also write the verdict as tags of a run: mlflow+https://host#RUN; without #RUN of the job's own run.",
        ),
    ] = None,
    reader: Annotated[
        Literal["people", "agent"],
        typer.Option("--for", help="For an agent: the JSON of `trainguard mcp`, in a kilobyte."),
    ] = "people",
    where: Where,
) -> Result:
    """Say in one word whether a job is idle, wasted, at risk or healthy, since when, and what is done about it.

    For other programs: whatever is unknown or cannot be reached counts as active. Exit code 0: it was looked up.
    1: idle, wasted or at risk, and --fail-on-fire was given. 2: it could not be looked up. 3: unknown.

    Examples: `trainguard verdict my-job --json`, `trainguard verdict ./my-job`,
    `trainguard verdict 'mlflow.db#my run' --fail-on-fire`,
    `trainguard verdict my-job --write-mlflow mlflow+https://mlflow.example.com`,
    `trainguard verdict ./my-job --for agent`
    """
    if reader == "agent":
        refuse("--for agent", {"--write-mlflow": write_mlflow})
        from trainguard.cli.commands.verdict.shown import verdict_result
        from trainguard.cli.services.readings import read
        from trainguard.local.settings import given_settings

        given = given_settings(params, prices, instance_type)
        return verdict_result(read(source, where, given, timelines=False).verdict)
    from trainguard.cli.commands.verdict.shown import verdict_result, written
    from trainguard.cli.services.deployment import connect_for, target_of
    from trainguard.cli.services.names import unpriced
    from trainguard.core.errors import RequestError
    from trainguard.local.fleet import evaluated
    from trainguard.local.runs import open_job
    from trainguard.local.services import mlflow_service
    from trainguard.local.settings import given_settings, prices_from
    from trainguard.report.job_verdict import job_verdict, verdict_of

    writing = None if write_mlflow is None else mlflow_service(write_mlflow)
    target, table, now = target_of(source), prices_from(prices), time.time()
    if target.is_job:
        if params is not None or instance_type is not None:
            raise RequestError(
                f"--params and --instance-type have no meaning for job {target.text}",
                "The verdict of a job that the stack knows is that of its alerts.",
            )
        stores = connect_for(target, where).stores
        job = stores.jobs.load(target.text)
        outcome = job_verdict(stores.jobs, stores.rows, target.text, now=now, prices=table)
    else:
        judged, _ = evaluated(given_settings(params, prices, instance_type), open_job(target.text))
        job = judged.job
        outcome = verdict_of(job, judged.rows, now=now, prices=table)
    links = {} if job is None else job.run_links
    notes = unpriced(instance_type, table)
    if writing is not None:
        notes.append(written(writing, outcome, links))
    return verdict_result(outcome, notes)
