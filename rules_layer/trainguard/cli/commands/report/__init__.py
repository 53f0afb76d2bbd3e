"""``trainguard report``."""

from pathlib import Path
from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import (
    FrameworkExpected,
    InstanceType,
    OwnRules,
    Params,
    Prices,
    Where,
    argument,
    compare_option,
    out_option,
    refuse,
    since_option,
)


@command(fails_on_fire=True, loads_rules=("rules_package",))
def report(
    source: Annotated[
        str | None,
        argument(
            "SOURCE",
            "A folder, a file or s3://bucket/prefix with runs, or the name of a training job that the stack knows; "
            "without it, all jobs of the stack.",
        ),
    ] = None,
    *,
    compare: Annotated[str | None, compare_option("Another run, as SOURCE is: shown beside it.")] = None,
    since: Annotated[float | None, since_option("Of several jobs: those of the last 30d, …")] = None,
    out: Annotated[
        Path | None,
        out_option(
            "A folder, or an .html file for the page alone; else ./<job>-report, ./fleet.html.", metavar="DIR|FILE"
        ),
    ] = None,
    params: Params = None,
    instance_type: InstanceType = None,
    prices: Prices = None,
    framework_expected: FrameworkExpected = False,
    in_stack: Annotated[bool, typer.Option("--in-stack", help="Have the stack make it, beside the profile.")] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    where: Where,
    as_json: bool,
    fail_on_fire: bool,
    rules_package: OwnRules = None,
) -> Result:
    """Make a job's report: one page that opens offline, with the verdict, time lines and what each rule saw.

    For a job's name, the verdicts are those of its alerts; a folder or S3 prefix is evaluated here. Of several runs,
    each has its report, and one page lists all.

    Examples: `trainguard report ./my-job --open`, `trainguard report s3://my-profiles/jobs/my-job --out report`,
    `trainguard report my-job`, `trainguard report my-job --in-stack`, `trainguard report --since 30d`,
    `trainguard report ./wandb --open`, `trainguard report ./run-b --compare ./run-a`
    """
    of_a_profile = {"--params": params, "--instance-type": instance_type, "--framework-expected": framework_expected}
    if source is None:
        refuse("all jobs of the stack", {**of_a_profile, "--in-stack": in_stack, "--compare": compare})
    if in_stack:
        here = {"--out": out, "--prices": prices, "--open": open_page, "--since": since}
        refuse("--in-stack", {**of_a_profile, **here, "--fail-on-fire": fail_on_fire, "--compare": compare})
        from trainguard.cli.commands.report.drawn import remote_report

        return remote_report(str(source), where)
    from trainguard.local.settings import prices_from

    if source is None:
        from trainguard.cli.commands.report.fleet import stack_fleet

        return stack_fleet(where, out, since_s=since, prices=prices_from(prices), open_page=open_page)
    from trainguard.cli.output.progress import stderr_progress
    from trainguard.cli.services.deployment import clients_for, target_of
    from trainguard.core.errors import RequestError
    from trainguard.local.runs import find_runs
    from trainguard.local.settings import given_settings

    target = target_of(source)
    if target.is_job or compare is not None:
        refuse("one job", {"--since": since})
    if target.is_job and params is not None:
        raise RequestError(
            f"--params has no meaning for job {target.text}: its verdicts are those of its alerts",
            f"Call `trainguard replay {target.text} --params {params}`.",
        )
    progress = stderr_progress(shown=not as_json)
    settings = given_settings(params, prices, instance_type, framework_expected=framework_expected)
    found = None if target.is_job else find_runs(target.text, clients_for(target, where))
    if found is not None and len(found.runs) > 1 and compare is None:
        from trainguard.cli.commands.report.fleet import fleet_of_runs

        # Only a forked process has a package's rules: other workers would not help.
        alone = rules_package is not None
        return fleet_of_runs(
            target.text, found, settings, out, progress, since_s=since, alone=alone, open_page=open_page
        )
    refuse("one job", {"--since": since})
    from trainguard.cli.commands.report.drawn import drawn_report

    other = None if compare is None else target_of(compare)
    return drawn_report(target, found, where, settings, out, progress, compare=other, open_page=open_page)
