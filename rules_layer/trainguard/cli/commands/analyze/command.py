"""``trainguard analyze``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trainguard.cli.options import (
    AsJson,
    DefaultsOf,
    FailOnFire,
    FrameworkExpected,
    InstanceType,
    OwnRules,
    Params,
    Prices,
    defaults_option,
    out_option,
    rule_option,
)


class Mode(StrEnum):
    """How the rules are read: as the documentation promises, or as the managed service computes."""

    DOCUMENTED = "documented"
    COMPATIBLE = "compatible"


def analyze(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder or s3://bucket/prefix that is, contains, or lies above a profiler-output or a debug-output; "
            "or a run of Weights & Biases, MLflow or Prometheus (docs/sources.md).",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, out_option("Folder for profiler-reports/<Rule>.json and debugger-reports/<Rule>.json.")],
    reading: Annotated[
        Mode, typer.Option("--reading", help="What the documentation promises, or what the managed service does.")
    ] = Mode.DOCUMENTED,
    defaults: Annotated[DefaultsOf | None, defaults_option("Defaults of parameters; each reading has its own.")] = None,
    params: Params = None,
    instance_type: InstanceType = None,
    prices: Prices = None,
    framework_expected: FrameworkExpected = False,
    rule: Annotated[str | None, rule_option("Run only this custom rule.")] = None,
    rules_package: OwnRules = None,
    fail_on_fire: FailOnFire = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate an ended job's profile with all rules, and write their reports.

    Exit code 0: the analysis ran, whatever it found. 1: a rule fired and --fail-on-fire was given. 2: it could not run.
    3: no rule could be evaluated.

    Examples: `trainguard analyze ./my-job --out report`, `trainguard analyze s3://my-profiles/my-job --out report`,
    `trainguard analyze ./my-job --out report --params stricter.json --fail-on-fire`,
    `trainguard analyze ./my-job --out report --rule my_rules.host_memory:HostMemory`
    """
    from trainguard.cli.services.own_rules import know

    know(package=rules_package)
    from trainguard.cli.commands.analyze.run import AnalyzeRequest, analyze_command

    request = AnalyzeRequest(
        source=source,
        out=out,
        reading=reading.value,
        defaults=None if defaults is None else defaults.value,
        params=params,
        instance_type=instance_type,
        prices=prices,
        framework_expected=framework_expected,
        rule=rule,
        fail_on_fire=fail_on_fire,
        as_json=as_json,
    )
    raise typer.Exit(analyze_command(request))
