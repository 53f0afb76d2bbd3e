"""``trainguard plan``."""

from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.commands.plan.request import PlanRequest
from trainguard.cli.options import Prices, Where, argument, refuse


@command()
def plan(
    source: Annotated[
        str,
        argument(
            "SOURCE", "A folder, a file or s3://bucket/prefix with one run, or the name of a job that the stack knows."
        ),
    ],
    *,
    asked: PlanRequest,
    prices: Prices = None,
    where: Where,
    as_json: bool,
) -> Result:
    """Forecast time and cost of a job at another size, instance type or batch, and when it ends.

    From its ledger and kernel trace: what each bucket of its time would be there, with intervals of 80 % by how jobs of
    MLPerf Training scale, and what the forecast takes for granted. What is missing for an answer is said.

    Exit code 0: something was planned. 2: the job could not be read. 3: nothing could be planned.

    Examples: `trainguard plan ./my-run --nodes 2,4`, `trainguard plan my-job --instance-type ml.p5.48xlarge --nodes 1`,
    `trainguard plan ./my-run --nodes 2 --keep-global-batch --ran-on ml.g5.48xlarge`,
    `trainguard plan ./my-run --batch-per-gpu 8:16 --json`,
    `trainguard plan ./my-run --total-steps 20000 --time-limit 24h`
    """
    from trainguard.cli.commands.plan.planned import planned
    from trainguard.cli.output.progress import stderr_progress

    refuse("--keep-global-batch", {"--batch-per-gpu": asked.keep_global_batch and asked.batch_per_gpu})
    if asked.time_limit is not None and asked.time_limit <= 0.0:
        raise typer.BadParameter("expected a span above 0, such as 12h", param_hint="--time-limit")
    return planned(source, asked, where, prices, stderr_progress(shown=not as_json))
