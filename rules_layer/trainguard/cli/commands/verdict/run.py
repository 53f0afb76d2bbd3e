"""``trainguard verdict``: from a job's name, or a place, to one word and its reasons."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainguard.cli.output.blocks import Block, Cell, Facts, Heading, Line, Shown
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.cli.services.deployment import Where
from trainguard.cli.services.input_files import prices_from, settings_from
from trainguard.cli.services.target import StackJob, connect_for, target_of
from trainguard.errors import RequestError
from trainguard.local.fleet import FleetSettings, evaluated_job
from trainguard.local.places import open_job
from trainguard.local.services import MlflowService, mlflow_service
from trainguard.report.job_verdict import job_verdict, verdict_of
from trainguard.report.job_verdict_document import JobVerdict, Verdict
from trainguard.report.verdict_tags import PREFIX, verdict_tags
from trainguard.run_links import mlflow_run_of
from trainguard.sources.mlflow.tags import write_tags

_STYLES = {
    Verdict.IDLE: "bold red",
    Verdict.WASTED: "bold red",
    Verdict.AT_RISK: "bold yellow",
    Verdict.HEALTHY: "green",
    Verdict.UNKNOWN: "dim",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRequest:
    """Which job, and what is known beside it."""

    source: str
    where: Where
    params: Path | None = None
    prices: Path | None = None
    instance_type: str | None = None
    write_mlflow: str | None = None


def verdict_command(request: VerdictRequest, *, as_json: bool, fail_on_fire: bool) -> int:
    """Say what a job does with what it is paid for; return the exit code."""
    return print_result(lambda: _result(request), as_json=as_json, fail_on_fire=fail_on_fire)


def _result(request: VerdictRequest) -> CommandResult:
    writing = None if request.write_mlflow is None else mlflow_service(request.write_mlflow)
    found = _found(request, time.time())
    verdict = found.verdict
    notes = [] if writing is None else [_written(writing, found)]
    return CommandResult(
        document=verdict,
        blocks=_blocks(verdict),
        notes=notes,
        fired=verdict.verdict not in {Verdict.HEALTHY, Verdict.UNKNOWN},
        final=not verdict.active,
        evaluated=verdict.verdict is not Verdict.UNKNOWN,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A verdict, and the pages of the job's run by tool."""

    verdict: JobVerdict
    run_links: Mapping[str, str]


def _written(service: MlflowService, found: _Found) -> str:
    """Write the verdict as tags; credentials go to the server that the person named, whatever the job says."""
    run = service.run or mlflow_run_of(found.run_links)
    if run is None:
        raise RequestError(
            f"job {found.verdict.job} names no run of MLflow",
            "Name it: --write-mlflow mlflow+https://host#RUN, or give the job MLFLOW_TRACKING_URI and MLFLOW_RUN_ID.",
        )
    write_tags(service.api, run, verdict_tags(found.verdict))
    return f"Written as tags {PREFIX}* of run {run} at {service.page or service.api.place}."


def _found(request: VerdictRequest, now: float) -> _Found:
    target = target_of(request.source)
    prices = prices_from(request.prices)
    if isinstance(target, StackJob):
        if request.params is not None or request.instance_type is not None:
            raise RequestError(
                f"--params and --instance-type have no meaning for job {target.name}",
                "The verdict of a job that the stack knows is that of its alerts.",
            )
        stores = connect_for(target, request.where).stores
        record = stores.jobs.load(target.name)
        verdict = job_verdict(stores.jobs, stores.rows, target.name, now=now, prices=prices)
        return _Found(verdict, {} if record is None else record.run_links)
    settings = FleetSettings(
        rule_settings=settings_from(request.params), instance_type=request.instance_type, prices=prices
    )
    judged = evaluated_job(settings, open_job(target.text))
    verdict = verdict_of(judged.job, judged.rows, now=now, prices=prices)
    return _Found(verdict, judged.job.run_links)


def _blocks(verdict: JobVerdict) -> list[Block]:
    word = verdict.verdict.value.replace("_", " ")
    facts: list[tuple[str, Shown]] = [("verdict", Cell(word, _STYLES[verdict.verdict]))]
    if verdict.memory_held_on:
        facts.append(("holds GPU memory", ", ".join(verdict.memory_held_on)))
    if verdict.since is not None:
        facts.append(("since", verdict.since))
    if verdict.certainty is not None:
        facts.append(("certainty", verdict.certainty.value))
    if verdict.lost is not None and verdict.spent is not None:
        facts.append(("lost", f"{verdict.currency} {verdict.lost:,.2f} of {verdict.spent:,.2f}"))
    facts.append(("TrainGuard", f"{verdict.would_do.value}: {verdict.would_do_why}"))
    told = (verdict.why, verdict.certainty_why, verdict.advice)
    return [Heading(verdict.job), Facts(facts), *(Line(text) for text in told if text)]
