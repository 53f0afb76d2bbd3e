"""Options: those of several commands are here, each once."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
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


def until(written: str) -> float:
    """Read a time to come, such as ``2h`` from now or ``2026-12-01T08:00Z``, as epoch seconds."""
    from trainguard.core.timestamps import epoch_from_iso, iso_time

    try:
        moment = epoch_from_iso(written) if "T" in written else time.time() + span(written)
        iso_time(moment)
    except (ValueError, OverflowError, typer.BadParameter) as fault:
        expected = "expected for example 2h, 7d, or 2026-12-01T08:00Z"
        raise typer.BadParameter(f"{written!r} is no time to come, {expected}") from fault
    return moment


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


def argument(metavar: str, meaning: str, **more: Any) -> Any:
    """Return an argument whose default its help need not show."""
    return typer.Argument(metavar=metavar, help=meaning, show_default=False, **more)


def option(name: str, metavar: str | None, meaning: str, *, show_default: bool = False, **more: Any) -> Any:
    """Return an option whose default its help need not show."""
    return typer.Option(name, metavar=metavar, help=meaning, show_default=show_default, **more)


# Options that commands explain in their own words.
rule_option = partial(option, "--rule")
all_option = partial(option, "--all", None)
region_option = partial(option, "--region", "REGION")
compare_option = partial(option, "--compare", "OTHER")
job_option = partial(option, "--job", "JOB")
defaults_option = partial(option, "--defaults", None)
since_option = partial(option, "--since", "SPAN", parser=span)


def status_option(meaning: str, *, metavar: str | None = None) -> Any:
    return option("--status", metavar, meaning, case_sensitive=False)


def out_option(meaning: str, *, metavar: str = "DIR") -> Any:
    return option("--out", metavar, meaning)


def refuse(mode: str, options: Mapping[str, object]) -> None:
    """Refuse those options that are given: they would have no effect."""
    given = [name for name, value in options.items() if value]
    if given:
        verb = "has" if len(given) == 1 else "have"
        raise typer.BadParameter(f"{', '.join(given)} {verb} no meaning with {mode}")


Job = Annotated[str, argument("JOB", "The training job's name, as SageMaker has it.")]
Profile = Annotated[str | None, option("--profile", "NAME", "The credentials' profile; else the usual.")]
Params = Annotated[
    Path | None, option("--params", "FILE", 'JSON: {"<Rule>": {"patience": 100}} or {"<Rule>_patience": 100}.')
]
InstanceType = Annotated[
    str | None,
    option(
        "--instance-type", "TYPE", "For example ml.g5.12xlarge: says what findings cost.", autocompletion=instance_types
    ),
]
Prices = Annotated[Path | None, option("--prices", "FILE", "A price table instead of the packaged one.")]
FrameworkExpected = Annotated[
    bool, typer.Option("--framework-expected", help="The job should have written framework metrics.")
]
OwnRule = Annotated[str | None, rule_option("MODULE:CLASS", "Load this custom rule too.")]
OwnRules = Annotated[
    Path | None,
    option(
        "--rules-package",
        "DIR",
        "Load custom rules too: the package that was deployed.",
        envvar="TRAINGUARD_RULES_PACKAGE",
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
