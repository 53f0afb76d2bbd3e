"""A job's verdict for the command and for MLflow."""

from collections.abc import Mapping, Sequence

import msgspec

from trainguard.aws.source_services import HttpJson
from trainguard.cli.output.rendering import Block, Cell, Facts, Heading, Line, Shown
from trainguard.cli.output.result import CommandResult
from trainguard.core.errors import RequestError
from trainguard.core.layout import mlflow_run_of
from trainguard.formats.runs.mlflow.server import write_tags
from trainguard.report.agents.verdict import AgentVerdict
from trainguard.report.verdict_document import PREFIX, JobVerdict, Verdict, verdict_tags

_STYLES = {
    Verdict.IDLE: "bold red",
    Verdict.WASTED: "bold red",
    Verdict.AT_RISK: "bold yellow",
    Verdict.HEALTHY: "green",
    Verdict.UNKNOWN: "dim",
}


def verdict_result(verdict: JobVerdict, notes: Sequence[str]) -> CommandResult:
    return CommandResult(
        document=verdict,
        blocks=_blocks(verdict),
        notes=notes,
        fired=verdict.verdict not in {Verdict.HEALTHY, Verdict.UNKNOWN},
        evaluated=verdict.verdict is not Verdict.UNKNOWN,
    )


def agent_result(verdict: AgentVerdict) -> CommandResult:
    """Return the same document with and without ``--json``."""
    return CommandResult(
        document=verdict,
        blocks=[Line(msgspec.json.encode(verdict).decode(), whole=True)],
        fired=verdict.verdict not in {Verdict.HEALTHY, Verdict.UNKNOWN},
        evaluated=verdict.verdict is not Verdict.UNKNOWN,
    )


def written(service: tuple[HttpJson, str, str], verdict: JobVerdict, links: Mapping[str, str]) -> str:
    """Write the verdict as tags; credentials go to the server that the person named, whatever the job says."""
    api, page, named = service
    run = named or mlflow_run_of(links)
    if run is None:
        raise RequestError(
            f"job {verdict.job} names no run of MLflow",
            "Name it: --write-mlflow mlflow+https://host#RUN, or give the job MLFLOW_TRACKING_URI and MLFLOW_RUN_ID.",
        )
    write_tags(api, run, verdict_tags(verdict))
    return f"Written as tags {PREFIX}* of run {run} at {page or api.place}."


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
    details = (verdict.why, verdict.certainty_why, verdict.advice)
    return [Heading(verdict.job), Facts(facts), *(Line(text) for text in details if text)]
