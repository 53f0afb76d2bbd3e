"""``trainguard cost``."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from trainguard.cli.options import AsJson, refuse, region_option
from trainguard.evaluation_interval import EVALUATION_EVERY_S, LONGEST_EVALUATION_S, SHORTEST_EVALUATION_S


class Announcement(Enum):
    """How an existing bucket announces objects."""

    EVENTBRIDGE = "eventbridge"
    QUEUE = "queue"


def cost(
    *,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, max=100_000, help="Nodes of the job.")] = 1,
    hours: Annotated[float, typer.Option("--hours", metavar="H", min=0.01, max=8_760, help="Its length.")] = 24.0,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", min=0, max=64, help="GPUs of a node.")] = 8,
    interval_ms: Annotated[
        int, typer.Option("--interval-ms", metavar="MS", min=100, max=60_000, help="ProfilingIntervalInMilliseconds.")
    ] = 500,
    framework: Annotated[bool, typer.Option("--framework", help="The job writes framework metrics, too.")] = False,
    saved_steps: Annotated[
        float, typer.Option("--saved-steps", metavar="N", min=0, max=36_000, help="Steps an hour with saved tensors.")
    ] = 0.0,
    evaluation_every_s: Annotated[
        int,
        typer.Option(
            "--evaluation-every-s",
            metavar="S",
            min=int(SHORTEST_EVALUATION_S),
            max=int(LONGEST_EVALUATION_S),
            help="evaluation_every_s.",
        ),
    ] = int(EVALUATION_EVERY_S),
    existing_bucket: Annotated[
        bool, typer.Option("--existing-bucket", help="The profile lies in a bucket of your own, not in the stack's.")
    ] = False,
    profile_notifications: Annotated[
        Announcement,
        typer.Option(
            "--profile-notifications", help="profile_notifications, of an existing bucket.", show_default=True
        ),
    ] = Announcement.EVENTBRIDGE,
    retention_days: Annotated[
        int, typer.Option("--retention-days", metavar="DAYS", min=1, max=3_650, help="profile_retention_days.")
    ] = 30,
    region: Annotated[
        str, region_option("Whose prices to take; no network is asked.", show_default=True)
    ] = "us-east-1",
    unit_prices: Annotated[
        Path | None,
        typer.Option(
            "--unit-prices", metavar="FILE", help="Unit prices in place of those that come along.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate what TrainGuard costs for a job of some size: an hour, the job, a month, and when idle.

    Examples: `trainguard cost --nodes 128 --hours 24`, `trainguard cost --framework --interval-ms 1000 --json`
    """
    from trainguard.cli.commands.cost.run import CostRequest, cost_command
    from trainguard.running_costs.workload import Workload

    if not existing_bucket:
        refuse("the stack's own bucket", {"--profile-notifications": profile_notifications is Announcement.QUEUE})
    workload = Workload(
        nodes=nodes,
        hours=hours,
        gpus=gpus,
        interval_ms=interval_ms,
        framework=framework,
        saved_steps=saved_steps,
        evaluation_every_s=float(evaluation_every_s),
        existing_bucket=existing_bucket,
        profile_notifications="queue" if profile_notifications is Announcement.QUEUE else "eventbridge",
        retention_days=retention_days,
    )
    request = CostRequest(workload=workload, region=region, unit_prices=unit_prices, as_json=as_json)
    raise typer.Exit(cost_command(request))
