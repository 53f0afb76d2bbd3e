"""All checks in order; one that is not answered says so, and the others go on."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from trainguard.cli.doctor import (
    access,
    actions,
    bucket,
    encryption,
    events,
    functions,
    job,
    job_collector,
    job_profile,
    job_recorder,
    job_source,
    job_traces,
    notifications,
    operation,
    queues,
    roles,
    sizing,
    stack,
    tables,
)
from trainguard.cli.doctor.asking import UnansweredError, Why
from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.job_case import JobCase
from trainguard.cli.doctor.site import Site
from trainguard.cli.output.aws_advice import advised
from trainguard.errors import DeploymentError, OutputMissingError, PortUnavailableError

_POLICY = "It is not checked. Ask for the policy in docs/cli.md, section Permissions."
_GONE = "Somebody has deleted it: delete the stack and deploy it again, or make it again under its name."

CHECKS: tuple[tuple[Check, Callable[[Site], Iterator[CheckResult]]], ...] = (
    (stack.CREDENTIALS, stack.check_credentials),
    (stack.STACK, stack.check_stack),
    (stack.VERSION, stack.check_version),
    (bucket.BUCKET, bucket.check_bucket),
    (notifications.NOTIFICATIONS, notifications.check_notifications),
    (events.RULES, events.check_rules),
    (events.PATTERN, events.check_pattern),
    (bucket.LIFECYCLE, bucket.check_lifecycle),
    (encryption.ENCRYPTION, encryption.check_encryption),
    (roles.ROLES, roles.check_roles),
    (queues.EVALUATION_QUEUE, queues.check_evaluation_queue),
    (queues.DELAY, queues.check_delay),
    (queues.DEAD_LETTERS, queues.check_dead_letters),
    (functions.FUNCTIONS, functions.check_functions),
    (functions.QUEUE_MAPPING, functions.check_queue_mapping),
    (functions.CONCURRENCY, functions.check_concurrency),
    (sizing.SIZING, sizing.check_sizing),
    (functions.TICK, functions.check_tick),
    (functions.LOOKS, functions.check_looks),
    (tables.TABLES, tables.check_tables),
    (tables.EXPIRY, tables.check_expiry),
    (tables.BACKUPS, tables.check_backups),
    (operation.MACHINES, operation.check_machines),
    (operation.EXECUTIONS, operation.check_executions),
    (actions.SWITCH, actions.check_switch),
    (actions.ALERTS.findings, actions.check_alerts),
    (actions.OPERATIONS.findings, actions.check_operations),
    (operation.ALARMS, operation.check_alarms),
    (access.ACCESS, access.check_access),
)
"""What is checked of a stack, in the order of an object's way through it."""

JOB_CHECKS: tuple[tuple[Check, Callable[[JobCase], Iterator[CheckResult]]], ...] = (
    (job.TRAINING_JOB, job.check_training_job),
    (job.PROFILER, job.check_profiler),
    (job.SETTINGS, job.check_settings),
    (job_profile.OBJECTS, job_profile.check_objects),
    (job_profile.NODES, job_profile.check_nodes),
    (job_collector.COLLECTOR, job_collector.check_collector),
    (job_recorder.RECORDER, job_recorder.check_recorder),
    (job_source.SOURCE, job_source.check_source),
    (job_traces.TRACES, job_traces.check_traces),
    (job_profile.EVALUATION, job_profile.check_evaluation),
    (job_profile.RULES, job_profile.check_rows),
    (job.STOP, job.check_stop),
)
"""What is checked of one job."""


def diagnose(site: Site, job_name: str | None) -> Iterator[CheckResult]:
    """Yield the findings of all checks of a stack and, where one is named, of a job."""
    checks: Sequence[tuple[Check, Callable[[], Iterator[CheckResult]]]]
    checks = [(findings, partial(check, site)) for findings, check in CHECKS]
    if job_name is not None:
        case = JobCase(site, job_name)
        checks = [*checks, *((findings, partial(check, case)) for findings, check in JOB_CHECKS)]
    for findings, check in checks:
        yield from _answered(findings, check)


def _answered(findings: Check, check: Callable[[], Iterator[CheckResult]]) -> Iterator[CheckResult]:
    try:
        yield from check()
    except UnansweredError as fault:
        yield _unanswered(findings, fault)
    except OutputMissingError as fault:
        yield findings.fail(fault.what, fault.remedy)
    except PortUnavailableError as fault:
        said = advised(fault)
        if isinstance(said, DeploymentError):
            yield findings.warn(said.what, said.remedy)
        else:
            yield findings.warn(str(said), "It is not checked: try again.")
    except Exception as fault:
        # Whatever is wrong with one check, the others are what a person called the doctor for.
        yield findings.warn(f"the check itself failed ({type(fault).__name__}: {fault})", "Please report this line.")


def _unanswered(findings: Check, fault: UnansweredError) -> CheckResult:
    if fault.why is Why.DENIED:
        return findings.warn(f"access denied to {fault.action}", _POLICY)
    if fault.why is Why.GONE:
        return findings.fail(f"something of the stack is gone ({fault.action}: {fault.reason})", _GONE)
    return findings.warn(f"{fault.action} gave no answer: {fault.reason}", "It is not checked: try again.")
