"""``trainguard report``."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainguard.cli.options import (
    DEFAULT_STACK,
    AsJson,
    FailOnFire,
    FrameworkExpected,
    InstanceType,
    OwnRules,
    Params,
    Prices,
    Profile,
    Region,
    Stack,
    out_option,
    since_option,
)

if TYPE_CHECKING:
    from trainguard.cli.services.deployment import Where

_Source = Annotated[
    str | None,
    typer.Argument(
        metavar="SOURCE",
        help="A folder, s3://bucket/prefix, or the name of a training job that the stack knows.",
        show_default=False,
    ),
]
_Since = Annotated[float | None, since_option("With --fleet: jobs of the last 30d, …")]
_Out = Annotated[
    Path | None,
    out_option("A folder, or an .html file for the page alone; else ./<job>-report, ./fleet.html.", metavar="DIR|FILE"),
]


def report(
    source: _Source = None,
    *,
    fleet: Annotated[bool, typer.Option("--fleet", help="One page over all jobs of the stack.")] = False,
    since: _Since = None,
    out: _Out = None,
    params: Params = None,
    instance_type: InstanceType = None,
    prices: Prices = None,
    framework_expected: FrameworkExpected = False,
    rules_package: OwnRules = None,
    in_stack: Annotated[bool, typer.Option("--in-stack", help="Have the stack make it, beside the profile.")] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    fail_on_fire: FailOnFire = False,
    as_json: AsJson = False,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
) -> None:
    """Make a job's report: one page that opens offline, with the verdict, time lines and what each rule saw.

    For a job's name, the verdicts are those of its alerts; a folder or S3 prefix is evaluated here.

    Examples: `trainguard report ./my-job --open`, `trainguard report s3://my-profiles/jobs/my-job --out report`,
    `trainguard report my-job`, `trainguard report my-job --in-stack`, `trainguard report --fleet --since 30d`
    """
    from trainguard.cli.services.own_rules import know

    know(package=rules_package)
    from trainguard.cli.services.deployment import Where

    where = Where(stack=stack, region=region, profile=profile)
    if fleet == (source is not None):
        raise typer.BadParameter("give a SOURCE, or --fleet for all jobs, and not both")
    of_a_profile = {"--params": params, "--instance-type": instance_type, "--framework-expected": framework_expected}
    if source is None:
        _refuse("--fleet", {**of_a_profile, "--in-stack": in_stack})
        told = {"open_page": open_page, "as_json": as_json, "fail_on_fire": fail_on_fire}
        raise typer.Exit(_of_fleet(where, since, out, prices, **told))
    _refuse("a SOURCE", {"--since": since})
    if in_stack:
        here = {"--out": out, "--prices": prices, "--open": open_page, "--fail-on-fire": fail_on_fire}
        _refuse("--in-stack", {**of_a_profile, **here})
        from trainguard.cli.commands.report.remote_report import remote_report_command

        raise typer.Exit(remote_report_command(source, where, as_json=as_json))
    from trainguard.cli.commands.report.run import ReportRequest, report_command

    request = ReportRequest(
        source=source,
        where=where,
        out=out,
        params=params,
        prices=prices,
        instance_type=instance_type,
        framework_expected=framework_expected,
        open_page=open_page,
    )
    raise typer.Exit(report_command(request, as_json=as_json, fail_on_fire=fail_on_fire))


def _of_fleet(
    where: "Where",
    since_s: float | None,
    out: Path | None,
    prices: Path | None,
    *,
    open_page: bool,
    as_json: bool,
    fail_on_fire: bool,
) -> int:
    from trainguard.cli.commands.report.fleet import FleetRequest, fleet_command

    asked = FleetRequest(where=where, since_s=since_s, out=out, prices=prices, open_page=open_page)
    return fleet_command(asked, as_json=as_json, fail_on_fire=fail_on_fire)


def _refuse(mode: str, options: Mapping[str, object]) -> None:
    """Refuse those options that are given: what would be left aside in silence was meant to have an effect."""
    given = [name for name, value in options.items() if value]
    if given:
        verb = "has" if len(given) == 1 else "have"
        raise typer.BadParameter(f"{', '.join(given)} {verb} no meaning with {mode}")
