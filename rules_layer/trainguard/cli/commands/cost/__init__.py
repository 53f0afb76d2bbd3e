"""``trainguard cost``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import option, refuse, region_option
from trainguard.core.evaluation_interval import EVALUATION_EVERY_S, LONGEST_EVALUATION_S, SHORTEST_EVALUATION_S


@command()
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
        Literal["eventbridge", "queue"],
        typer.Option(
            "--profile-notifications", help="profile_notifications, of an existing bucket.", show_default=True
        ),
    ] = "eventbridge",
    retention_days: Annotated[
        int, typer.Option("--retention-days", metavar="DAYS", min=1, max=3_650, help="profile_retention_days.")
    ] = 30,
    profiler: Annotated[
        Literal["collector", "sagemaker"],
        typer.Option("--profiler", help="Who writes the profile: the collector compresses it.", show_default=True),
    ] = "collector",
    traces_gb: Annotated[
        float,
        typer.Option("--traces-gb", metavar="GB", min=0, max=100_000, help="Kernel traces an hour, as gzip."),
    ] = 0.0,
    vpc_zones: Annotated[
        int, typer.Option("--vpc-zones", metavar="N", min=0, max=6, help="Zones with interface endpoints.")
    ] = 0,
    customer_key: Annotated[bool, typer.Option("--customer-key", help="kms_key_arn is set.")] = False,
    data_events: Annotated[bool, typer.Option("--data-events", help="CloudTrail logs each request.")] = False,
    webhook: Annotated[
        bool, typer.Option("--webhook", help="webhook_secret is set: each alert is posted, too.")
    ] = False,
    ops_items: Annotated[
        float, typer.Option("--ops-items", metavar="N", min=0, max=10_000, help="OpsItems a month, one a broken GPU.")
    ] = 0.0,
    canary_job: Annotated[bool, typer.Option("--canary-job", help="canary_image is set.")] = False,
    region: Annotated[str, region_option("Whose prices to take; needs no network.", show_default=True)] = "us-east-1",
    unit_prices: Annotated[
        Path | None, option("--unit-prices", "FILE", "Unit prices instead of the packaged ones.")
    ] = None,
) -> Result:
    """Estimate what TrainGuard costs for a job of some size: an hour, the job, a month, and when idle.

    Examples: `trainguard cost --nodes 128 --hours 24`, `trainguard cost --framework --interval-ms 1000 --json`
    """
    if not existing_bucket:
        refuse("the stack's own bucket", {"--profile-notifications": profile_notifications == "queue"})
    from trainguard.aws.endpoints import INTERFACE_SERVICES
    from trainguard.cli.commands.cost.estimates import cost_result
    from trainguard.running_costs.workload import Workload

    workload = Workload(
        nodes=nodes,
        hours=hours,
        gpus=gpus,
        interval_ms=interval_ms,
        framework=framework,
        saved_steps=saved_steps,
        evaluation_every_s=float(evaluation_every_s),
        existing_bucket=existing_bucket,
        profile_notifications=profile_notifications,
        retention_days=retention_days,
        profiler=profiler,
        traces_gb=traces_gb,
        endpoints=vpc_zones * len(INTERFACE_SERVICES),
        customer_key=customer_key,
        data_events=data_events,
        webhook=webhook,
        ops_items=ops_items,
        canary_job=canary_job,
    )
    return cost_result(workload, region, unit_prices)
