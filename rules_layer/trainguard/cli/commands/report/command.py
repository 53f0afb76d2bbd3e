"""``trainguard report``."""

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
    refuse,
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
_Fleet = Annotated[bool, typer.Option("--fleet", help="One page over all jobs: of the stack, or below a folder.")]
_Since = Annotated[float | None, since_option("With --fleet: jobs of the last 30d, …")]
_Out = Annotated[
    Path | None,
    out_option("A folder, or an .html file for the page alone; else ./<job>-report, ./fleet.html.", metavar="DIR|FILE"),
]


def report(
    source: _Source = None,
    *,
    fleet: _Fleet = False,
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
    `trainguard report my-job`, `trainguard report my-job --in-stack`, `trainguard report --fleet --since 30d`,
    `trainguard report ./wandb --fleet --open`
    """
    from trainguard.cli.services.own_rules import know

    know(package=rules_package)
    from trainguard.cli.services.deployment import Where

    where = Where(stack=stack, region=region, profile=profile)
    if source is None and not fleet:
        raise typer.BadParameter("give a SOURCE, or --fleet for all jobs")
    of_a_profile = {"--params": params, "--instance-type": instance_type, "--framework-expected": framework_expected}
    if source is None:
        refuse("--fleet", {**of_a_profile, "--in-stack": in_stack})
        told = {"open_page": open_page, "as_json": as_json, "fail_on_fire": fail_on_fire}
        raise typer.Exit(_of_fleet(where, since, out, prices, **told))
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
    if fleet:
        refuse("--fleet", {"--in-stack": in_stack})
        from trainguard.cli.commands.report.folder_fleet import FolderRequest, folder_fleet_command

        of_folder = FolderRequest(source, request, since_s=since, own_rules=rules_package is not None)
        raise typer.Exit(folder_fleet_command(of_folder, as_json=as_json, fail_on_fire=fail_on_fire))
    refuse("a SOURCE", {"--since": since})
    if in_stack:
        here = {"--out": out, "--prices": prices, "--open": open_page, "--fail-on-fire": fail_on_fire}
        refuse("--in-stack", {**of_a_profile, **here})
        from trainguard.cli.commands.report.remote_report import remote_report_command

        raise typer.Exit(remote_report_command(source, where, as_json=as_json))
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
