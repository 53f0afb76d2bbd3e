"""A job's report made on this machine: of the rules' stored state, or of its profile judged again."""

import json
import time
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainguard.aws.aws_errors import translated
from trainguard.cli.options import Where
from trainguard.cli.output.files import output_path, prepare, write_report
from trainguard.cli.output.progress import ProgressBar
from trainguard.cli.output.rendering import Line, heading, stderr_console
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import is_evaluated
from trainguard.cli.services.deployment import Target, connect, job_in_stack
from trainguard.cli.services.job_reports import drawn_job
from trainguard.cli.services.names import unpriced
from trainguard.core.errors import ReportRunFailedError, RequestError
from trainguard.core.layout import open_command, report_links
from trainguard.engine.jobs.replay_names import JOB_NAME
from trainguard.local.runs import FoundRuns
from trainguard.local.settings import GivenSettings
from trainguard.planning.text import said_finish
from trainguard.report.comparison import change_words
from trainguard.report.document import Report

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

MACHINE_OUTPUT = "ReportStateMachineArn"
_EVERY_S = 2.0
_RUNNING, _DONE = "RUNNING", "SUCCEEDED"


def drawn_report(
    target: Target,
    found: FoundRuns | None,
    where: Where,
    settings: GivenSettings,
    out: Path | None,
    progress: ProgressBar,
    *,
    compare: Target | None = None,
    open_page: bool,
) -> CommandResult:
    """Make a job's report here, beside that of ``compare``; ``found`` is what was found at a place.

    Raises ProfileSourceError, NoProfileError, RequestError.
    """
    if out is not None:
        prepare(output_path(out, "")[0])
    drawn = drawn_job(target, found, where, settings, progress)
    if compare is not None:
        other = drawn_job(compare, None, where, settings, progress)
        drawn = replace(drawn, built=drawn.built.compared_with(other.built.report), notes=[*drawn.notes, *other.notes])
    folder, only = output_path(out, drawn.folder or drawn.job)
    if out is None:
        prepare(folder)
    _, page, written = write_report(folder, only, drawn.built)
    notes = [*drawn.notes, *unpriced(settings.instance_type, settings.prices)]
    if open_page and not webbrowser.open(page.resolve().as_uri()):
        notes.append("No browser could be opened.")
    report = drawn.built.report
    verdict = report.verdict
    document = {
        "job": drawn.job,
        "source": drawn.source,
        "made_from": drawn.made_from,
        "scope": report.scope,
        "final": report.final,
        "healthy": report.healthy,
        "evaluated": is_evaluated(report),
        "verdict": verdict,
        "fired": report.fired,
        "finish": report.finish,
        "comparison": report.comparison,
        "page": str(page),
        "files": written,
        "notes": notes,
    }
    finish = "" if report.finish is None else said_finish(report.finish)
    lines = (verdict.health, verdict.change, verdict.cost, finish, *_compared(report), f"Report: {page}")
    return CommandResult(
        document=document,
        blocks=[heading(drawn.job), *(Line(text) for text in lines if text)],
        notes=notes,
        fired=bool(report.fired),
        evaluated=is_evaluated(report),
    )


def _compared(report: Report) -> list[str]:
    """Say in a sentence for each part what is most unlike in the other run."""
    held = report.comparison
    if held is None:
        return []
    shown = [*held.totals[:2], *held.ledger[:2], *held.steps[1:2], *held.loss[:1]]
    words = ((each.what, change_words(each, report.cost.currency)) for each in shown)
    differences = "; ".join(f"{what} {here}, there {there} ({by})" for what, (here, there, by) in words)
    return [f"Compared with {held.job}: {differences}."]


def remote_report(name: str, where: Where) -> CommandResult:
    if not JOB_NAME.fullmatch(name):
        raise RequestError(f"--in-stack needs the name of a training job, not {name!r}", "Leave out --in-stack.")
    deployment = connect(where)
    job = job_in_stack(name, deployment.stores.jobs)
    machine, client = deployment.output(MACHINE_OUTPUT), deployment.clients.stepfunctions
    with translated("StepFunctions", "StartExecution"):
        started = client.start_execution(stateMachineArn=machine, input=json.dumps({"job": name}))
    execution = started["executionArn"]
    _wait(execution, client)
    links = report_links(job=job.job, arn=job.arn, bucket=job.bucket, prefix=job.prefix)
    places = [f"Report: {links.page}", *([f"Console: {links.console}"] if links.console else [])]
    return CommandResult(
        document={"job": name, "execution": execution, "report_uri": links.page, "console": links.console},
        blocks=[heading(name), *(Line(place) for place in places), Line(f"To read it: {open_command(name)}")],
    )


def _wait(execution: str, client: "SFNClient") -> None:
    """Wait for an execution to end; an interrupt leaves it running. Raises ReportRunFailedError."""

    def described() -> Any:
        with translated("StepFunctions", "DescribeExecution"):
            return client.describe_execution(executionArn=execution)

    begun = time.monotonic()
    with stderr_console().status("The stack makes the report …") as line:
        while (found := described())["status"] == _RUNNING:
            line.update(f"The stack makes the report … {time.monotonic() - begun:,.0f} s")
            time.sleep(_EVERY_S)
    if found["status"] != _DONE:
        raise ReportRunFailedError(execution, found["status"], found.get("cause") or found.get("error") or "")
