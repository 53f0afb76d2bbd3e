"""What ``trainguard`` accepts. Everything that takes time to import is imported when a command runs."""

import os
import sys
import traceback
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_OWN_FAULT = 70
"""As ``sysexits.h`` has it for faults of the program; Python's own 1 would say that a rule has fired."""

app = typer.Typer(
    name="trainguard",
    help="Rules, reports and safe stops for training jobs, from the profiles that they write.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_SOURCE = typer.Argument(
    metavar="SOURCE",
    help="A folder or s3://bucket/prefix that is, contains, or lies above a profiler-output.",
    show_default=False,
)
_PARAMS = typer.Option(
    "--params",
    metavar="FILE",
    help='JSON: {"LowGPUUtilization": {"patience": 100}} or {"LowGPUUtilization_patience": 100}.',
    show_default=False,
)


class Reading(StrEnum):
    """How the rules are read: as the documentation promises, or as the managed service computes."""

    DOCUMENTED = "documented"
    COMPATIBLE = "compatible"


class DefaultsOf(StrEnum):
    """Whose defaults parameters have that are not given."""

    DOCUMENTED = "documented"
    SHIPPED = "shipped"


@app.callback()
def trainguard() -> None:
    """Rules, reports and safe stops for training jobs, from the profiles that they write."""


@app.command()
def analyze(  # noqa: PLR0913 -- an option is a parameter here
    source: Annotated[str, _SOURCE],
    *,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="Folder for profiler-reports/<Rule>.json.", show_default=False),
    ],
    reading: Annotated[
        Reading, typer.Option("--reading", help="What the documentation promises, or what the managed service does.")
    ] = Reading.DOCUMENTED,
    defaults: Annotated[
        DefaultsOf | None,
        typer.Option("--defaults", help="Defaults of parameters; each reading has its own.", show_default=False),
    ] = None,
    params: Annotated[Path | None, _PARAMS] = None,
    instance_type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="For example ml.g5.12xlarge: says what findings cost.", show_default=False),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A price table in place of the one that comes along.", show_default=False),
    ] = None,
    framework_expected: Annotated[
        bool, typer.Option("--framework-expected", help="The job should have written framework metrics.")
    ] = False,
    fail_on_fire: Annotated[bool, typer.Option("--fail-on-fire", help="Exit with 1 when a rule fired.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """Judge the profile of a job that has ended by all rules, and write their reports.

    Exit code 0: the analysis ran, whatever it found. 1: a rule fired and --fail-on-fire was given. 2: it could not run.
    """
    from trainguard.cli.analyze import Request, analyze_command

    request = Request(
        source=source,
        out=out,
        reading=reading.value,
        defaults=None if defaults is None else defaults.value,
        params=params,
        instance_type=instance_type,
        prices=prices,
        framework_expected=framework_expected,
        fail_on_fire=fail_on_fire,
        as_json=as_json,
    )
    raise typer.Exit(analyze_command(request))


def run() -> None:
    """Run the command line of this process."""
    # Nothing here multiplies matrices: a pool of threads for it would only cost start-up time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except Exception:
        traceback.print_exc()
        sys.exit(_OWN_FAULT)
