"""A report made by the deployed stack's own machine: started, waited for, and where it lies."""

import json
import time
from collections.abc import Callable
from typing import Any

from trainguard.adapters.aws_errors import translated
from trainguard.cli.output.blocks import Heading, Line
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.cli.output.terminal import stderr_console
from trainguard.cli.services.deployment import Connection, Where, connect
from trainguard.cli.services.target import job_not_known
from trainguard.engine.jobs.replay_names import JOB_NAME
from trainguard.errors import ReportRunFailedError, RequestError
from trainguard.links import open_command, report_links

MACHINE_OUTPUT = "ReportStateMachineArn"
_EVERY_S = 2.0
_RUNNING, _DONE = "RUNNING", "SUCCEEDED"

Pause = Callable[[float], None]


def remote_report_command(name: str, where: Where, *, as_json: bool, pause: Pause = time.sleep) -> int:
    """Have the stack make a job's report; return the exit code."""
    return print_result(lambda: _result(name, where, pause), as_json=as_json)


def _result(name: str, where: Where, pause: Pause) -> CommandResult:
    if not JOB_NAME.fullmatch(name):
        raise RequestError(f"--in-stack needs the name of a training job, not {name!r}", "Leave --in-stack away.")
    connection = connect(where)
    job = connection.stores.jobs.load(name)
    if job is None:
        raise job_not_known(name, connection.stores.jobs)
    execution = _wait(_start(name, connection), connection, pause)
    links = report_links(job=job.job, arn=job.arn, bucket=job.bucket, prefix=job.prefix)
    places = [f"Report: {links.page}", *([f"Console: {links.console}"] if links.console else [])]
    return CommandResult(
        document={
            "schema_version": "1",
            "job": name,
            "execution": execution,
            "report_uri": links.page,
            "console": links.console,
        },
        blocks=[Heading(name), *(Line(place) for place in places), Line(f"To read it: {open_command(name)}")],
    )


def _start(name: str, connection: Connection) -> str:
    machine = connection.deployment.output(MACHINE_OUTPUT)
    with translated("StepFunctions", "StartExecution"):
        started = connection.clients.stepfunctions.start_execution(
            stateMachineArn=machine, input=json.dumps({"job": name})
        )
    return started["executionArn"]


def _wait(execution: str, connection: Connection, pause: Pause) -> str:
    """Wait for an execution to end; who interrupts it leaves it running. Raises ReportRunFailedError."""
    stderr = stderr_console()
    begun = time.monotonic()
    with stderr.status("The stack makes the report …") as line:
        while (described := _describe(execution, connection))["status"] == _RUNNING:
            line.update(f"The stack makes the report … {time.monotonic() - begun:,.0f} s")
            pause(_EVERY_S)
    if described["status"] != _DONE:
        cause = described.get("cause") or described.get("error") or ""
        raise ReportRunFailedError(execution, described["status"], cause)
    return execution


def _describe(execution: str, connection: Connection) -> Any:
    with translated("StepFunctions", "DescribeExecution"):
        return connection.clients.stepfunctions.describe_execution(executionArn=execution)
