"""Options that several commands have, said once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder or s3://bucket/prefix that is, contains, or lies above a profiler-output.",
        show_default=False,
    ),
]
Params = Annotated[
    Path | None,
    typer.Option(
        "--params",
        metavar="FILE",
        help='JSON: {"LowGPUUtilization": {"patience": 100}} or {"LowGPUUtilization_patience": 100}.',
        show_default=False,
    ),
]
InstanceType = Annotated[
    str | None,
    typer.Option(
        "--instance-type",
        metavar="TYPE",
        help="For example ml.g5.12xlarge: says what findings cost.",
        show_default=False,
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option(
        "--prices", metavar="FILE", help="A price table in place of the one that comes along.", show_default=False
    ),
]
FrameworkExpected = Annotated[
    bool, typer.Option("--framework-expected", help="The job should have written framework metrics.")
]
OwnRule = Annotated[
    str | None,
    typer.Option("--rule", metavar="MODULE:CLASS", help="Know this rule of your own too.", show_default=False),
]
OwnRules = Annotated[
    Path | None,
    typer.Option(
        "--rules-package",
        metavar="DIR",
        envvar="TRAINGUARD_RULES_PACKAGE",
        help="Know your own rules too: the package that was deployed.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
Stack = Annotated[str, typer.Option("--stack", envvar="TRAINGUARD_STACK", help="The deployed CloudFormation stack.")]
Region = Annotated[
    str | None,
    typer.Option("--region", metavar="REGION", help="Its Region; else that of the credentials.", show_default=False),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="The credentials' profile; else the usual.", show_default=False),
]

DEFAULT_STACK = "TrainGuard"


class Reading(StrEnum):
    """How the rules are read: as the documentation promises, or as the managed service computes."""

    DOCUMENTED = "documented"
    COMPATIBLE = "compatible"


class DefaultsOf(StrEnum):
    """Whose defaults parameters have that are not given."""

    DOCUMENTED = "documented"
    SHIPPED = "shipped"


def span(written: str) -> float:
    """Read a span of time such as ``90m`` or ``7d`` as seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
    number, unit = written.strip()[:-1], written.strip()[-1:].lower()
    if unit not in units or not number.replace(".", "", 1).isdecimal():
        raise typer.BadParameter(f"{written!r} is no span of time, expected for example 90s, 30m, 12h, 7d or 2w")
    return float(number) * units[unit]


Job = Annotated[
    str, typer.Argument(metavar="JOB", help="The training job's name, as SageMaker has it.", show_default=False)
]


class StatusOf(StrEnum):
    """The statuses of `trainguard.records.JobStatus`, which takes time to import."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    COMPLETED = "Completed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
