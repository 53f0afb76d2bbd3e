"""``trainguard gate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainguard.cli.command import command
from trainguard.cli.options import argument, option, refuse

if TYPE_CHECKING:
    from trainguard.cli.output.result import CommandResult

_TO_STDOUT = "-"


@command()
def gate(
    candidate: Annotated[
        list[str],
        argument(
            "CANDIDATE",
            "Its run: a table with step and step_time_s or throughput (CSV, TSV, JSON, JSON lines, Parquet), kernel "
            "traces, or what analyze takes. Further runs of it make it surer.",
        ),
    ],
    *,
    baseline: Annotated[
        list[str] | None,
        option("--baseline", "RUN", "A run to compare with, or a pattern such as 'runs/*.csv'; repeat it."),
    ] = None,
    config: Annotated[
        Path | None,
        option("--config", "FILE", "TOML with the settings; else [tool.trainguard.gate] of ./pyproject.toml."),
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        option("--tolerance", "PART", "Smallest change that must not pass: 2% (of speeds), or memory=5%; repeat it."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        option("--metric", "NAME", "Compare this alone: step_time, throughput, memory, loss, goodput; repeat it."),
    ] = None,
    loss_step: Annotated[
        int | None, typer.Option("--loss-step", metavar="STEP", min=0, help="Compare losses there; else at the end.")
    ] = None,
    junit: Annotated[Path | None, option("--junit", "FILE", "Write a JUnit report.")] = None,
    markdown: Annotated[
        Path | None, option("--markdown", "FILE", "Write a summary for a pull request; - prints it alone.")
    ] = None,
    as_json: bool,
) -> "CommandResult | int":
    """Say whether a run is slower or worse than runs of a baseline: pass, regression or inconclusive.

    Steps are compared with the same steps, and the change with the noise between the runs. An inconclusive answer says
    how many more runs it takes. A regression names what takes longer, where ledgers or kernel traces are known.

    Exit code 0: pass. 1: regression. 2: a run or setting could not be used. 3: inconclusive.

    Examples: `trainguard gate --baseline a.csv --baseline b.csv candidate.csv`,
    `trainguard gate --baseline 'main/*.jsonl' new.jsonl --json`,
    `trainguard gate --baseline ./runs/1 --baseline ./runs/2 ./runs/3 --tolerance 3% --tolerance loss=2%`,
    `trainguard gate --config gate.toml candidate.csv --junit gate.xml --markdown gate.md`
    """
    from trainguard.cli.commands.gate.outcome import gated, written
    from trainguard.local.gate_settings import settings_of

    alone = markdown is not None and str(markdown) == _TO_STDOUT
    if alone:
        refuse("--markdown -", {"--json": as_json})
    verdict = gated(
        candidate,
        settings_of(config),
        baselines=baseline or (),
        tolerances=tolerance or (),
        metrics=metric or (),
        loss_step=loss_step,
    )
    return written(verdict, junit=junit, markdown=markdown, alone=alone)
