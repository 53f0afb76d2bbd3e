"""``trainguard stragglers``."""

from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import InstanceType, Prices, argument


@command(fails_on_fire=True)
def stragglers(
    folder: Annotated[
        str,
        argument(
            "FOLDER",
            "A table of operations as Parquet, CSV or JSON lines, a folder of such, as one of each rank, or "
            "s3://bucket/prefix.",
        ),
    ],
    instance_type: InstanceType = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, max=100_000, help="Nodes of the job.")] = 1,
    job_hours: Annotated[
        float | None,
        typer.Option("--job-hours", metavar="H", min=0.01, max=8_760, help="Its length; else costs are an hour's."),
    ] = None,
    prices: Prices = None,
) -> Result:
    """Say what stragglers cost a parallel job: which rank, stage or kind of operation, and why.

    Replays each step from what every operation waits for, as recorded and with all work even. A table has a row for
    each operation: rank, step, optype, start_ts and duration in seconds, and for pipelines dp_rank, stage, mb_id.

    Exit code 0: it was judged. 1: a cause is named, and --fail-on-fire was given. 2: nothing could be replayed.

    Examples: `trainguard stragglers trace.parquet`, `trainguard stragglers ./tables --json`,
    `trainguard stragglers trace.csv --instance-type ml.p4d.24xlarge --nodes 8 --job-hours 200`
    """
    from trainguard.cli.commands.stragglers.shown import straggler_result
    from trainguard.local.settings import prices_from
    from trainguard.local.stragglers import judge_stragglers, price_of
    from trainguard.pricing.table import packaged_prices

    price = None
    if instance_type is not None:
        price = price_of(instance_type, nodes, job_hours, prices_from(prices) or packaged_prices())
    return straggler_result(folder, judge_stragglers(folder, price), instance_type)
