"""What a replay has found, for people and for machines."""

from pathlib import Path

from trainguard.cli.commands.replay.stored_replay import Change, Replay
from trainguard.cli.output.blocks import Block, Cell, Column, Grid, Heading, Line, Shown, status_cell
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import is_evaluated
from trainguard.core.links import REPORT_PAGE
from trainguard.core.records import RuleRow
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
        "job": replay.item.job,
        "replay_of": replayed_job(replay.item.job),
        "healthy": report.healthy,
        "evaluated": is_evaluated(report),
        "verdict": report.verdict,
        "fired": report.fired,
        "changed": [change.now.rule for change in replay.changes if change.changed],
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
        return [Heading("What would have changed"), Line("Nothing: every rule gives the same result as then.")]
    same = len(replay.changes) - len(changed)
    return [
        Heading("What would have changed"),
        _grid(changed),
        Line(f"{same} of {len(replay.changes)} rules give the same result as then."),
    ]


def _grid(changes: list[Change]) -> Grid:
    rows: list[list[Shown]] = []
    for change in changes:
        then = "" if change.then is None else _in_short(change.then)
        rows.append([change.now.rule, then, _in_short(change.now), change.now.finding.reason])
    return Grid(_COLUMNS, rows)


def _in_short(row: RuleRow) -> Cell:
    severity = f" ({row.finding.severity})" if row.finding.severity else ""
    fired = f", fired {row.times_fired} x" if row.times_fired else ""
    return Cell(f"{row.status}{severity}{fired}", status_cell(row.status).style)
