"""A job's verdict for the command and for MLflow."""

from collections.abc import Mapping, Sequence

import msgspec

from trainguard.aws.source_services import HttpJson
from trainguard.cli.output.rendering import Block, Cell, Line, Shown, TerminalFacts, heading
from trainguard.cli.output.result import CommandResult
from trainguard.core.errors import RequestError
from trainguard.core.layout import mlflow_run_of
from trainguard.formats.runs.mlflow.server import write_tags
from trainguard.report.agents.verdict import AgentVerdict
from trainguard.report.verdict_document import PREFIX, JobVerdict, VerdictWord, verdict_tags

_STYLES = {
    VerdictWord.IDLE: "bold red",
    VerdictWord.WASTED: "bold red",
    VerdictWord.AT_RISK: "bold yellow",
    VerdictWord.HEALTHY: "green",
    VerdictWord.UNKNOWN: "dim",
}


def verdict_result(verdict: JobVerdict | AgentVerdict, notes: Sequence[str] = ()) -> CommandResult:
    """Return the verdict for people; for an agent it is the same document with and without ``--json``."""
    for_agents = Line(msgspec.json.encode(verdict).decode(), whole=True)
    return CommandResult(
        document=verdict,
        blocks=_blocks(verdict) if isinstance(verdict, JobVerdict) else [for_agents],
        notes=notes,
        fired=verdict.verdict not in {VerdictWord.HEALTHY, VerdictWord.UNKNOWN},
        evaluated=verdict.verdict is not VerdictWord.UNKNOWN,
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
    lost = ""
    if verdict.lost is not None and verdict.spent is not None:
        lost = f"{verdict.currency} {verdict.lost:,.2f} of {verdict.spent:,.2f}"
    facts: list[tuple[str, Shown | None]] = [
        ("verdict", Cell(verdict.verdict.value.replace("_", " "), _STYLES[verdict.verdict])),
        ("holds GPU memory", ", ".join(verdict.memory_held_on)),
        ("since", verdict.since),
        ("certainty", verdict.certainty and verdict.certainty.value),
        ("lost", lost),
        ("TrainGuard", f"{verdict.would_do.value}: {verdict.would_do_why}"),
    ]
    details = (verdict.why, verdict.certainty_why, verdict.advice)
    shown = TerminalFacts([(name, value) for name, value in facts if value])
    return [heading(verdict.job), shown, *(Line(text) for text in details if text)]
