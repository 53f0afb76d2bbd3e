"""All checks in order; one that is not answered says so, and the others go on."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

from trainguard.cli.doctor import actions, bucket, job, job_case, job_statuses, network, roles, stack
from trainguard.cli.doctor.job_case import JobCase
from trainguard.cli.doctor.site import CheckLevel, CheckResult, Findings, Site, UnansweredError, fail, under_name, warn
from trainguard.cli.output.aws_advice import advised
from trainguard.cli.output.rendering import Block, Cell, Item, Line, print_json, show, stdout_console
from trainguard.cli.output.result import SCHEMA_VERSION
from trainguard.cli.version import own_version
from trainguard.core.errors import (
    CredentialsError,
    DeploymentError,
    OutputMissingError,
    PortUnavailableError,
    RegionError,
    RequestError,
    TrainGuardError,
    error_text,
)
from trainguard.engine.jobs.replay_names import JOB_NAME, replayed_job

_POLICY = "It is not checked. Ask for the policy in docs/cli.md, section Permissions."
_GONE = "Somebody has deleted it: delete the stack and deploy it again, or make it again under its name."


# In the order of an object's way through the stack.
CHECKS: tuple[tuple[str, Callable[[Site], Findings]], ...] = (
    ("credentials", stack.check_credentials),
    ("stack", stack.check_stack),
    ("version", lambda site: stack.grade_version(own_version(), site.deployment.outputs.get("Version"))),
    ("bucket", bucket.check_bucket),
    ("notifications", bucket.check_notifications),
    ("EventBridge rules", bucket.check_rules),
    ("event pattern", bucket.check_pattern),
    ("lifecycle", bucket.check_lifecycle),
    ("encryption", roles.check_encryption),
    ("roles", roles.check_roles),
    ("evaluation queue", stack.check_evaluation_queue),
    ("message age", stack.check_delay),
    ("dead letters", stack.check_dead_letters),
    ("functions", stack.check_functions),
    ("network", network.check_network),
    ("queue to function", stack.check_mappings),
    ("concurrency", stack.check_concurrency),
    ("sizing", stack.check_sizing),
    ("scheduler", stack.check_scheduler),
    ("reconciliations", stack.check_reconciliations),
    ("tables", stack.check_tables),
    ("expiry", stack.check_expiry),
    ("backups", stack.check_backups),
    ("state machines", actions.check_machines),
    ("executions", actions.check_executions),
    ("stop switch", actions.check_switch),
    ("brakes", actions.check_brakes),
    ("alert topic", lambda site: actions.check_topic(site, "AlertTopicArn", "findings", "alert_emails")),
    ("operations topic", lambda site: actions.check_topic(site, "OperationsTopicArn", "alarms", "operations_emails")),
    ("alarms", actions.check_alarms),
    ("permissions", roles.check_access),
)

JOB_CHECKS: tuple[tuple[str, Callable[[JobCase], Findings]], ...] = (
    ("training job", lambda case: job.grade_description(case.job, case.description)),
    ("profiler", job.check_profiler),
    ("settings", lambda case: job.grade_settings(case.record, case.tags)),
    ("objects", lambda case: job.grade_objects(case.profile, case.record, case.place, case.site.now)),
    ("nodes", lambda case: job.grade_nodes(case.profile.nodes, case.record.instance_count)),
    ("collector", job_statuses.check_collector),
    ("recorder", job_statuses.check_recorders),
    ("source", job.check_source),
    ("kernel traces", job_case.check_traces),
    ("evaluation", lambda case: job.grade_evaluation(case.stored, case.nodes, case.profile)),
    ("rules", lambda case: job.grade_rows(case.rows)),
    ("stop", job.check_stop),
)
_STYLES = {CheckLevel.OK: "green", CheckLevel.WARN: "yellow", CheckLevel.FAIL: "bold red"}
_LEVEL_WIDTH, _CHECK_WIDTH = 4, 18


def diagnose(site: Site, job_name: str | None) -> Iterator[CheckResult]:
    """Yield the findings of all checks of a stack and, where one is named, of a job."""
    for name, judge in CHECKS:
        yield from _answered(name, partial(judge, site))
    if job_name is not None:
        case = JobCase(site, job_name)
        for name, judge_job in JOB_CHECKS:
            yield from _answered(name, partial(judge_job, case))


def unfound(fault: TrainGuardError) -> CheckResult:
    """Return the one finding where there is no stack to examine."""
    name = "credentials" if isinstance(fault, CredentialsError | RegionError) else "stack"
    problem = (fault.what, fault.remedy) if isinstance(fault, DeploymentError) else (str(fault), "Try again.")
    return replace(fail(*problem), check=name)


def _answered(name: str, judge: Callable[[], Findings]) -> Iterator[CheckResult]:
    try:
        yield from under_name(name, judge())
    except Exception as fault:
        # A fault of one check must not hide the others' findings.
        yield replace(_failed(fault), check=name)


def _failed(fault: Exception) -> CheckResult:
    if isinstance(fault, UnansweredError):
        return _unanswered(fault)
    if isinstance(fault, OutputMissingError):
        return fail(fault.what, fault.remedy)
    if isinstance(fault, PortUnavailableError):
        problem = advised(fault)
        if isinstance(problem, DeploymentError):
            return warn(problem.what, problem.remedy)
        return warn(str(problem), "It is not checked: try again.")
    return warn(f"the check itself failed ({error_text(fault)})", "Please report this line.")


def _unanswered(fault: UnansweredError) -> CheckResult:
    if fault.is_denied:
        return warn(f"access denied to {fault.action}", _POLICY)
    if fault.is_gone:
        return fail(f"something of the stack is gone ({fault.action}: {fault.reason})", _GONE)
    return warn(f"{fault.action} gave no answer: {fault.reason}", "It is not checked: try again.")


def refuse_name(job: str | None) -> None:
    """Raise RequestError for an invalid name of a training job, or that of a replay."""
    if job is not None and not JOB_NAME.fullmatch(job):
        of = replayed_job(job)
        remedy = "Give its name as SageMaker has it." if of is None else f"It is a replay: examine {of}."
        raise RequestError(f"{job!r} is no name of a training job", remedy)


def printed(findings: Iterable[CheckResult], about: Mapping[str, object], *, as_json: bool) -> Sequence[CheckResult]:
    """Print findings, for people each when it is found; return them. ``about`` begins the document."""
    found: list[CheckResult] = []
    if not as_json:
        show(stdout_console(), _blocks(findings, found))
        return found
    found += findings
    levels = Counter(finding.level for finding in found)
    print_json(
        {
            "schema_version": SCHEMA_VERSION,
            **about,
            "healthy": levels[CheckLevel.FAIL] == 0,
            "counts": {level.value: levels[level] for level in CheckLevel},
            "findings": [asdict(finding) for finding in found],
        }
    )
    return found


def _blocks(findings: Iterable[CheckResult], found: list[CheckResult]) -> Iterator[Block]:
    """Yield each finding as it comes, added to ``found``, and how many there are of each level."""
    for finding in findings:
        found.append(finding)
        level = Cell(finding.level, _STYLES[finding.level])
        labels = ((level, _LEVEL_WIDTH), (finding.check, _CHECK_WIDTH))
        yield Item(labels, finding.found, finding.advice, finding.command)
    levels = Counter(finding.level for finding in found)
    yield Line(", ".join(f"{levels[level]} {level}" for level in CheckLevel), whole=True)
