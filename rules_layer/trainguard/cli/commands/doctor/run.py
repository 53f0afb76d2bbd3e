"""``trainguard doctor``: from a person's request to lines or one JSON document, and an exit code."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from trainguard.cli.doctor.check import CheckResult, Level
from trainguard.cli.doctor.diagnosis import diagnose
from trainguard.cli.doctor.site import Site
from trainguard.cli.doctor.stack import CREDENTIALS, STACK
from trainguard.cli.output.blocks import Block, Cell, Item, Line
from trainguard.cli.output.faults import print_fault
from trainguard.cli.output.rendering import print_json, show
from trainguard.cli.output.result import RAN, REFUSED, SCHEMA_VERSION
from trainguard.cli.output.terminal import stdout_console
from trainguard.cli.services.deployment import Deployment, find_deployment
from trainguard.engine.jobs.replay_names import JOB_NAME, replayed_job
from trainguard.errors import CredentialsError, DeploymentError, RegionError, RequestError, TrainGuardError

FAILED = 1
_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}
_LEVEL_WIDTH, _CHECK_WIDTH = 4, 18


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest:
    """What was asked for on the command line."""

    stack: str
    region: str | None = None
    profile: str | None = None
    job: str | None = None
    bucket: str | None = None
    as_json: bool = False


def doctor_command(request: DoctorRequest, *, now: Callable[[], float] = time.time) -> int:
    """Examine a deployment; return 0 when nothing failed, 1 when something did, 2 when it could not be examined."""
    if request.job is not None and not JOB_NAME.fullmatch(request.job):
        of = replayed_job(request.job)
        remedy = "Give its name as SageMaker has it." if of is None else f"It is a replay: examine {of}."
        print_fault(RequestError(f"{request.job!r} is no name of a training job", remedy))
        return REFUSED
    try:
        deployment, clients = find_deployment(request.stack, request.region, request.profile)
    except TrainGuardError as fault:
        _print(request, [_unfound(fault)], None)
        return REFUSED
    site = Site(deployment, clients, now=now(), profile=request.profile, bucket=request.bucket)
    found = _print(request, diagnose(site, request.job), deployment)
    return FAILED if any(finding.level is Level.FAIL for finding in found) else RAN


def _print(
    request: DoctorRequest, findings: Iterable[CheckResult], deployment: Deployment | None
) -> Sequence[CheckResult]:
    """Print findings, for people each when it is found; return them."""
    found: list[CheckResult] = []
    if request.as_json:
        found += findings
        print_json(_document(request, found, deployment))
    else:
        show(stdout_console(), _blocks(findings, found))
    return found


def _blocks(findings: Iterable[CheckResult], found: list[CheckResult]) -> Iterator[Block]:
    """Yield each finding as it comes, which is then added to ``found``, and how many there are of each level."""
    for finding in findings:
        found.append(finding)
        level = Cell(finding.level, _STYLES[finding.level])
        labels = ((level, _LEVEL_WIDTH), (finding.check, _CHECK_WIDTH))
        yield Item(labels, finding.found, finding.advice, finding.command)
    levels = Counter(finding.level for finding in found)
    yield Line(", ".join(f"{levels[level]} {level}" for level in Level), whole=True)


def _unfound(fault: TrainGuardError) -> CheckResult:
    """Return the one finding where there is no stack to examine."""
    findings = CREDENTIALS if isinstance(fault, CredentialsError | RegionError) else STACK
    if isinstance(fault, DeploymentError):
        return findings.fail(fault.what, fault.remedy)
    return findings.fail(str(fault), "Try again.")


def _document(request: DoctorRequest, found: Sequence[CheckResult], deployment: Deployment | None) -> dict[str, object]:
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
