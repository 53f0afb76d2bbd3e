"""``trainguard doctor``: from a person's request to lines or one JSON document, and an exit code."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainguard.cli.doctor.diagnosis import diagnose
from trainguard.cli.doctor.finding import Finding, Level
from trainguard.cli.doctor.site import Site
from trainguard.cli.doctor.stack import CREDENTIALS, STACK
from trainguard.cli.output.rendering import RAN, REFUSED, SCHEMA_VERSION, complain, print_json
from trainguard.cli.output.terminal import print_tabbed, stdout_console
from trainguard.cli.services.deployment import Deployment, find_deployment
from trainguard.engine.replays import JOB_NAME, replayed_job
from trainguard.errors import CredentialsError, DeploymentError, RegionError, RequestError, TrainGuardError
from trainguard.plain_text import one_line

FAILED = 1
_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}
_CHECK_WIDTH = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for on the command line."""

    stack: str
    region: str | None = None
    profile: str | None = None
    job: str | None = None
    bucket: str | None = None
    as_json: bool = False


def doctor_command(request: Request, *, now: Callable[[], float] = time.time) -> int:
    """Examine a deployment; return 0 when nothing failed, 1 when something did, 2 when it could not be examined."""
    console = stdout_console()
    if request.job is not None and not JOB_NAME.fullmatch(request.job):
        of = replayed_job(request.job)
        remedy = "Give its name as SageMaker has it." if of is None else f"It is a replay: examine {of}."
        complain(RequestError(f"{request.job!r} is no name of a training job", remedy))
        return REFUSED
    try:
        deployment, clients = find_deployment(request.stack, request.region, request.profile)
    except TrainGuardError as fault:
        _give(request, console, [_unfound(fault)], None)
        return REFUSED
    site = Site(deployment, clients, now=now(), profile=request.profile, bucket=request.bucket)
    found = _give(request, console, diagnose(site, request.job), deployment)
    return FAILED if any(finding.level is Level.FAIL for finding in found) else RAN


def _give(
    request: Request, console: Console, findings: Iterable[Finding], deployment: Deployment | None
) -> Sequence[Finding]:
    if request.as_json:
        found = list(findings)
        print_json(_document(request, found, deployment))
        return found
    found = []
    for finding in findings:
        found.append(finding)
        _show(console, finding)
    console.print(_summary(found), soft_wrap=True)
    return found


def _unfound(fault: TrainGuardError) -> Finding:
    """Return the one finding where there is no stack to examine."""
    findings = CREDENTIALS if isinstance(fault, CredentialsError | RegionError) else STACK
    if isinstance(fault, DeploymentError):
        return findings.fail(fault.what, fault.remedy)
    return findings.fail(str(fault), "Try again.")


def _document(request: Request, found: Sequence[Finding], deployment: Deployment | None) -> dict[str, object]:
    levels = Counter(finding.level for finding in found)
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": request.stack,
        "region": request.region if deployment is None else deployment.region,
        "account": None if deployment is None else deployment.account,
        "job": request.job,
        "bucket": request.bucket,
        "examined": deployment is not None,
        "healthy": levels[Level.FAIL] == 0,
        "counts": {level.value: levels[level] for level in Level},
        "findings": [asdict(finding) for finding in found],
    }


def _summary(found: Sequence[Finding]) -> Text:
    levels = Counter(finding.level for finding in found)
    return Text(", ".join(f"{levels[level]} {level}" for level in Level))


def _show(console: Console, finding: Finding) -> None:
    """Print a finding: laid out on a terminal, one line with tabs elsewhere."""
    said = [finding.level, finding.check, finding.found, finding.advice, finding.command]
    if not console.is_terminal:
        print_tabbed(console, [one_line(each) for each in said if each])
        return
    line = Table.grid(padding=(0, 1))
    line.add_column(width=4)
    line.add_column(width=_CHECK_WIDTH)
    line.add_column(overflow="fold")
    line.add_row(Text(finding.level, style=_STYLES[finding.level]), Text(finding.check), Text(one_line(finding.found)))
    if finding.advice is not None:
        line.add_row("", "", Text(one_line(finding.advice), style="italic"))
    console.print(line)
    if finding.command is not None:
        # On lines of its own and never folded, so that it can be copied.
        console.print(Text(f"    {one_line(finding.command)}", style="bold"), soft_wrap=True)
