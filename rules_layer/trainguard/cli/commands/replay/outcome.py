"""What a replay has found, for people and for machines."""

from pathlib import Path

from trainguard.cli.commands.replay.stored_replay import Change, Replay
from trainguard.cli.output.blocks import Block, Cell, Column, Grid, Heading, Line, Shown, status_cell
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import is_evaluated
from trainguard.core.links import REPORT_PAGE
from trainguard.core.records import Status
from trainguard.core.timestamps import iso_from_epoch
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.report.document import Report

_COLUMNS = (Column("rule"), Column("then"), Column("now"), Column("why", folds=True))


def replay_result(
    replay: Replay, report: Report, page: Path, files: list[str], published: tuple[str, str] | None
) -> CommandResult:
    """Return a replay's findings; ``published`` are bucket and key prefix of its report there, if any."""
    uri = None if published is None else f"s3://{published[0]}/{published[1]}{REPORT_PAGE}"
    document = {
        "schema_version": "1",
        "job": replay.item.job,
        "replay_of": replayed_job(replay.item.job),
        "healthy": report.healthy,
        "evaluated": is_evaluated(report),
        "verdict": report.verdict,
        "fired": report.fired,
        "changed": [change.rule for change in replay.changes if change.changed],
        "changes": [change.document() for change in replay.changes],
        "expires_at": iso_from_epoch(replay.item.expires_at or 0),
        "report_uri": uri,
        "page": str(page),
        "files": files,
        "notes": list(replay.notes),
    }
    verdict = report.verdict
    lines = [verdict.health, verdict.change, verdict.cost, f"Report: {page}"]
    lines += [] if uri is None else [f"Report in the bucket: {uri}"]
    return CommandResult(
        document=document,
        blocks=[Heading(replay.item.job), *(Line(line) for line in lines), *_changes(replay)],
        notes=replay.notes,
        fired=bool(report.fired),
        evaluated=is_evaluated(report),
    )


def _changes(replay: Replay) -> list[Block]:
    changed = [change for change in replay.changes if change.changed]
    if all(change.then is None for change in replay.changes):
        return [Heading("What the rules say now"), _grid(list(replay.changes))]
    if not changed:
        return [Heading("What would have changed"), Line("Nothing: every rule comes to the same as then.")]
    same = len(replay.changes) - len(changed)
    return [
        Heading("What would have changed"),
        _grid(changed),
        Line(f"{same} of {len(replay.changes)} rules come to the same as then."),
    ]


def _grid(changes: list[Change]) -> Grid:
    rows: list[list[Shown]] = []
    for change in changes:
        then = "" if change.then is None else _with_reason(change.then.status, str(change.then))
        rows.append([change.rule, then, _with_reason(change.now.status, str(change.now)), change.now.reason])
    return Grid(_COLUMNS, rows)


def _with_reason(status: str, words: str) -> Cell:
    return Cell(words, status_cell(Status(status)).style)
