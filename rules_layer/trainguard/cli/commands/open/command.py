"""``trainguard open``."""

from typing import Annotated

import typer

from trainguard.cli.options import DEFAULT_STACK, AsJson, Job, Profile, Region, Stack, span

_LONGEST_S = 604_800.0
"""Signature Version 4 knows no link that works for longer."""


def open_report(
    job: Job,
    *,
    expires: Annotated[
        str, typer.Option("--expires", metavar="SPAN", help="For how long the link works, up to 7d.")
    ] = "1h",
    only_print: Annotated[bool, typer.Option("--print", help="Print the link, and open no browser.")] = False,
    json_report: Annotated[bool, typer.Option("--json-report", help="Link to report.json, not the page.")] = False,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Open a job's report in the browser by a link that works without credentials; print the link elsewhere.

    Whoever has the link can read the report until it expires.

    Examples: `trainguard open my-job`, `trainguard open my-job --expires 12h --print`
    """
    from trainguard.cli.commands.open.run import OpenRequest, open_command
    from trainguard.cli.services.deployment import Where

    request = OpenRequest(
        where=Where(stack=stack, region=region, profile=profile),
        job=job,
        expires_s=_lasts(expires),
        only_print=only_print,
        as_report=json_report,
        as_json=as_json,
    )
    raise typer.Exit(open_command(request))


def _lasts(written: str) -> float:
    seconds = span(written)
    if not 1.0 <= seconds <= _LONGEST_S:
        raise typer.BadParameter(f"--expires is {written}, and a link can work for 1s to 7d, such as 12h")
    return seconds
