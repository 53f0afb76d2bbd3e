"""``trainguard plan``."""

import re
from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import Prices, Where, argument, instance_types, option, refuse, span

_Source = Annotated[
    str,
    argument(
        "SOURCE", "A folder, a file or s3://bucket/prefix with one run, or the name of a job that the stack knows."
    ),
]
_Nodes = Annotated[
    str, option("--nodes", "N,…", "Numbers of nodes; else half and double of the job's, where it has several.")
]
_Types = Annotated[
    list[str] | None,
    option(
        "--instance-type",
        "TYPE",
        "Plan for this type, for example ml.p5.48xlarge; may be repeated.",
        autocompletion=instance_types,
    ),
]
_RanOn = Annotated[
    str | None,
    option("--ran-on", "TYPE", "What the job ran on, where it does not say it.", autocompletion=instance_types),
]
_RanNodes = Annotated[
    int | None, typer.Option("--ran-nodes", metavar="N", min=1, help="How many nodes it had; else as it says.")
]
_Batch = Annotated[
    str, option("--batch-per-gpu", "[OLD:]NEW", "Samples of a GPU in a step; OLD where the job does not say them.")
]
_Keep = Annotated[
    bool,
    typer.Option("--keep-global-batch", help="Keep the batch of all GPUs together; else that of each GPU stays."),
]
_Trace = Annotated[
    str | None, option("--trace", "PLACE", "A kernel trace of the job, for its collectives; else the newest it has.")
]
_Total = Annotated[
    int | None, typer.Option("--total-steps", metavar="N", min=1, help="Steps that the job will take, for its end.")
]
_Limit = Annotated[
    float | None, option("--time-limit", "SPAN", "The job is ended so long after its start: 12h, 5d.", parser=span)
]


@command()
def plan(
    source: _Source,
    *,
    nodes: _Nodes = "",
    instance_type: _Types = None,
    batch_per_gpu: _Batch = "",
    keep_global_batch: _Keep = False,
    ran_on: _RanOn = None,
    ran_nodes: _RanNodes = None,
    trace: _Trace = None,
    total_steps: _Total = None,
    time_limit: _Limit = None,
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
    from trainguard.cli.commands.plan.planned import Asked, planned
    from trainguard.cli.output.progress import stderr_progress

    refuse("--keep-global-batch", {"--batch-per-gpu": keep_global_batch and batch_per_gpu})
    if time_limit is not None and time_limit <= 0.0:
        raise typer.BadParameter("expected a span above 0, such as 12h", param_hint="--time-limit")
    asked = Asked(
        nodes=_counts(nodes),
        types=tuple(instance_type or ()),
        batch=_batch(batch_per_gpu),
        keeps_global_batch=keep_global_batch,
        ran_on=ran_on,
        ran_nodes=ran_nodes,
        trace=trace,
        total_steps=total_steps,
        limit_s=time_limit,
    )
    return planned(source, asked, where, prices, stderr_progress(shown=not as_json))


def _counts(written: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(?:[1-9]\d{0,4}(?:,[1-9]\d{0,4}){0,31})?", written):
        raise typer.BadParameter(f"{written!r} is no list of numbers such as 2,4,8", param_hint="--nodes")
    return tuple(dict.fromkeys(int(each) for each in written.split(",") if each))


def _batch(written: str) -> tuple[int | None, int] | None:
    """Return the batch of a GPU as it was, None for what the job says, and as it is to be."""
    if not re.fullmatch(r"(?:(?:[1-9]\d{0,8}:)?[1-9]\d{0,8})?", written):
        raise typer.BadParameter(f"{written!r} is no batch such as 16, or 8:16", param_hint="--batch-per-gpu")
    before, _, after = written.rpartition(":")
    return (int(before) if before else None, int(after)) if written else None
