"""What a job is planned for, as options of ``trainguard plan``."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from trainguard.cli.options import instance_types, option, span


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What a person asks for; None stands for the job's own. ``nodes`` and ``batch_per_gpu`` are as parsed above."""

    nodes: Annotated[
        Any,
        option(
            "--nodes",
            "N,…",
            "Numbers of nodes; else half and double of the job's, where it has several.",
            parser=_counts,
        ),
    ] = None
    instance_type: Annotated[
        list[str] | None,
        option(
            "--instance-type",
            "TYPE",
            "Plan for this type, for example ml.p5.48xlarge; may be repeated.",
            autocompletion=instance_types,
        ),
    ] = None
    batch_per_gpu: Annotated[
        Any,
        option(
            "--batch-per-gpu",
            "[OLD:]NEW",
            "Samples of a GPU in a step; OLD where the job does not say them.",
            parser=_batch,
        ),
    ] = None
    keep_global_batch: Annotated[
        bool,
        typer.Option("--keep-global-batch", help="Keep the batch of all GPUs together; else that of each GPU stays."),
    ] = False
    ran_on: Annotated[
        str | None,
        option("--ran-on", "TYPE", "What the job ran on, where it does not say it.", autocompletion=instance_types),
    ] = None
    ran_nodes: Annotated[
        int | None, typer.Option("--ran-nodes", metavar="N", min=1, help="How many nodes it had; else as it says.")
    ] = None
    trace: Annotated[
        str | None,
        option("--trace", "PLACE", "A kernel trace of the job, for its collectives; else the newest it has."),
    ] = None
    total_steps: Annotated[
        int | None, typer.Option("--total-steps", metavar="N", min=1, help="Steps that the job will take, for its end.")
    ] = None
    time_limit: Annotated[
        float | None, option("--time-limit", "SPAN", "The job is ended so long after its start: 12h, 5d.", parser=span)
    ] = None
