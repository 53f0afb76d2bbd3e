"""Common options: a type of its parameter for one meaning, a function where a command explains it in its own words."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

DEFAULT_STACK = "TrainGuard"


DefaultsOf = Literal["documented", "shipped"]


def span(written: str) -> float:
    """Read a span of time such as ``90m`` or ``7d`` as seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
    number, unit = written.strip()[:-1], written.strip()[-1:].lower()
    if unit not in units or not number.replace(".", "", 1).isdecimal():
        raise typer.BadParameter(f"{written!r} is no span of time, expected for example 90s, 30m, 12h, 7d or 2w")
    return float(number) * units[unit]


def instance_types(begun: str) -> list[str]:
    """Return the instance types of the packaged price table that begin so, for the shell's completion."""
    from trainguard.pricing.table import packaged_prices

    return sorted(name for name in packaged_prices().instances if name.startswith(begun.lower()))


def rule_names(begun: str) -> list[str]:
    """Return the rules whose names begin so, in any case, for the shell's completion: with a / behind the family."""
    from trainguard.rules import family_rules
    from trainguard.rules.profiler_report import PROFILER_REPORT
    from trainguard.rules.registry import RULE_NAMES

    names = (*RULE_NAMES, PROFILER_REPORT, *family_rules.names())
    spelled = names if "/" in begun else tuple(map(family_rules.bare, names))
    return [name for name in spelled if name.lower().startswith(begun.lower())]


def rule_option(meaning: str) -> Any:
    """Return ``--rule``, a custom rule; ``meaning`` is its help."""
    return typer.Option("--rule", metavar="MODULE:CLASS", help=meaning, show_default=False)


def region_option(meaning: str, *, show_default: bool = False) -> Any:
    """Return ``--region``; ``meaning`` is its help."""
    return typer.Option("--region", metavar="REGION", help=meaning, show_default=show_default)


def compare_option(meaning: str) -> Any:
    """Return ``--compare``, what stands beside it; ``meaning`` is its help."""
    return typer.Option("--compare", metavar="OTHER", help=meaning, show_default=False)


def job_option(meaning: str) -> Any:
    """Return ``--job``, the name of a training job; ``meaning`` is its help."""
    return typer.Option("--job", metavar="JOB", help=meaning, show_default=False)


def status_option(meaning: str, *, metavar: str | None = None) -> Any:
    """Return ``--status``, by which jobs or profiles are chosen; ``meaning`` is its help."""
    return typer.Option("--status", metavar=metavar, help=meaning, case_sensitive=False, show_default=False)


def out_option(meaning: str, *, metavar: str = "DIR") -> Any:
    """Return ``--out``, where a command writes; ``meaning`` is its help."""
    return typer.Option("--out", metavar=metavar, help=meaning, show_default=False)


def refuse(mode: str, options: Mapping[str, object]) -> None:
    """Refuse those options that are given: they would have no effect."""
    given = [name for name, value in options.items() if value]
    if given:
        verb = "has" if len(given) == 1 else "have"
        raise typer.BadParameter(f"{', '.join(given)} {verb} no meaning with {mode}")


def defaults_option(meaning: str) -> Any:
    """Return ``--defaults``, whose defaults parameters have; ``meaning`` is its help."""
    return typer.Option("--defaults", help=meaning, show_default=False)


def since_option(meaning: str) -> Any:
    """Return ``--since``, a span of time up to now, in seconds; ``meaning`` is its help."""
    return typer.Option("--since", metavar="SPAN", parser=span, help=meaning, show_default=False)


Job = Annotated[
    str, typer.Argument(metavar="JOB", help="The training job's name, as SageMaker has it.", show_default=False)
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="The credentials' profile; else the usual.", show_default=False),
]
Params = Annotated[
    Path | None,
    typer.Option(
        "--params",
        metavar="FILE",
        help='JSON: {"<Rule>": {"patience": 100}} or {"<Rule>_patience": 100}.',
        show_default=False,
    ),
]
InstanceType = Annotated[
    str | None,
    typer.Option(
        "--instance-type",
        metavar="TYPE",
        help="For example ml.g5.12xlarge: says what findings cost.",
        autocompletion=instance_types,
        show_default=False,
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="A price table instead of the packaged one.", show_default=False),
]
FrameworkExpected = Annotated[
    bool, typer.Option("--framework-expected", help="The job should have written framework metrics.")
]
OwnRule = Annotated[str | None, rule_option("Load this custom rule too.")]
OwnRules = Annotated[
    Path | None,
    typer.Option(
        "--rules-package",
        metavar="DIR",
        envvar="TRAINGUARD_RULES_PACKAGE",
        help="Load custom rules too: the package that was deployed.",
        show_default=False,
    ),
]
FailOnFire = Annotated[bool, typer.Option("--fail-on-fire", help="Exit with 1 when a rule has fired.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
Stack = Annotated[
    str,
    typer.Option("--stack", metavar="NAME", envvar="TRAINGUARD_STACK", help="The deployed CloudFormation stack."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A stack; region and profile None stand for this machine's configuration."""

    stack: Stack = DEFAULT_STACK
    region: Annotated[str | None, region_option("Its Region; else that of the credentials.")] = None
    profile: Profile = None
