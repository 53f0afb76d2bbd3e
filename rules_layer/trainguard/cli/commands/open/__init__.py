"""``trainguard open``."""

import time
from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import Job, Where, span

# Limit of Signature Version 4.
_LONGEST_S = 604_800.0


@command()
def open_report(
    job: Job,
    *,
    expires: Annotated[
        str, typer.Option("--expires", metavar="SPAN", help="For how long the link works, up to 7d.")
    ] = "1h",
    only_print: Annotated[bool, typer.Option("--print", help="Print the link, and open no browser.")] = False,
    json_report: Annotated[bool, typer.Option("--json-report", help="Link to report.json, not the page.")] = False,
    where: Where,
    as_json: bool,
) -> Result:
    """Open a job's report in the browser by a link that works without credentials; print the link elsewhere.

    Whoever has the link can read the report until it expires.

    Examples: `trainguard open my-job`, `trainguard open my-job --expires 12h --print`
    """
    expires_s = span(expires)
    if not 1.0 <= expires_s <= _LONGEST_S:
        raise typer.BadParameter(f"--expires is {expires}, and a link can work for 1s to 7d, such as 12h")
    from trainguard.cli.commands.open.link import link_result
    from trainguard.cli.output.rendering import stdout_console
    from trainguard.cli.services.deployment import connect

    name = "report.json" if json_report else "report.html"
    browses = not (only_print or as_json) and stdout_console().is_terminal
    return link_result(connect(where), job, name, expires_s=expires_s, browses=browses, now=time.time())
