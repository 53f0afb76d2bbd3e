"""``trainguard replay``: from a person's request to rows in the tables, a report, and what would have changed."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainguard.adapters.timestamps import iso_from_epoch
from trainguard.cli.commands.replay.changes import Change
from trainguard.cli.commands.replay.stored_replay import (
    Replay,
    Ways,
    bucket_place,
    find_subject,
    judge,
    refuse_taken,
    store,
)
from trainguard.cli.output.blocks import Block, Cell, Column, Grid, Heading, Line, Shown, status_cell
from trainguard.cli.output.output_path import output_path
from trainguard.cli.output.progress import stderr_progress
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.cli.services.deployment import Where
from trainguard.cli.services.evaluated import has_verdict
from trainguard.cli.services.input_files import prices_from, settings_from
from trainguard.cli.services.target import connect_for, target_of
from trainguard.engine.jobs.replay_names import replay_label, replay_name, replayed_job
from trainguard.links import REPORT_PAGE
from trainguard.records import Status
from trainguard.report.build import BuiltReport, build_report
from trainguard.report.document import Report
from trainguard.report.write import put_files

_COLUMNS = (Column("rule"), Column("then"), Column("now"), Column("why", folds=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What is to be replayed and how; ``label`` None stands for the time, ``publish`` for a report in the bucket."""

    source: str
    params: Path | None = None
    prices: Path | None = None
    label: str | None = None
    out: Path | None = None
    publish: bool = False
    where: Where


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredReplay:
    """A replay that is stored, and where its report lies."""

    replay: Replay
    built: BuiltReport
    page: Path
    files: list[str]
    uri: str | None


def replay_command(request: ReplayRequest, *, as_json: bool, fail_on_fire: bool) -> int:
    """Replay a job; return the exit code."""
    return print_result(lambda: _result(_run(request, as_json=as_json)), as_json=as_json, fail_on_fire=fail_on_fire)


def _run(request: ReplayRequest, *, as_json: bool) -> _StoredReplay:
    ways = Ways(settings=settings_from(request.params), prices=prices_from(request.prices))
    label = replay_label(time.time()) if request.label is None else request.label
    target = target_of(request.source)
    connection = connect_for(target, request.where)
    subject = find_subject(target, connection)
    name = replay_name(subject.job, label)
    refuse_taken(name, connection.stores)
    published = bucket_place(name, subject) if request.publish else None
    place = output_path(request.out, name)
    place.prepare()
    replay = judge(name, subject, ways, stderr_progress(shown=not as_json), now=time.time())
    built = _built(replay)
    files = place.write(built)

    def publish() -> None:
        if published is not None:
            put_files(connection.stores.objects, *published, files)

    store(replay, connection.stores, publish)
    uri = None if published is None else f"s3://{published[0]}/{published[1]}{REPORT_PAGE}"
    return _StoredReplay(replay=replay, built=built, page=place.shown, files=place.names(files), uri=uri)


def _built(replay: Replay) -> BuiltReport:
    judged = replay.judged
    evaluation = judged.evaluation
    return build_report(
        evaluation.job, evaluation.records, now=time.time(), plan=evaluation.plan, digests=judged.digests
    )


def _result(outcome: _StoredReplay) -> CommandResult:
    replay, report = outcome.replay, outcome.built.report
    return CommandResult(
        document=_document(outcome),
        blocks=[*_verdict(outcome), *_changes(replay)],
        notes=replay.notes,
        fired=bool(report.fired),
        evaluated=_evaluated(report),
    )


def _evaluated(report: Report) -> bool:
    return has_verdict((rule.rule, rule.status, rule.times_fired) for rule in report.rules)


def _document(outcome: _StoredReplay) -> dict[str, Any]:
    replay, report = outcome.replay, outcome.built.report
    return {
        "schema_version": "1",
        "job": replay.item.job,
        "replay_of": replayed_job(replay.item.job),
        "healthy": report.healthy,
        "evaluated": _evaluated(report),
        "verdict": report.verdict,
        "fired": report.fired,
        "changed": [change.rule for change in replay.changes if change.changed],
        "changes": [change.document() for change in replay.changes],
        "expires_at": iso_from_epoch(replay.item.expires_at or 0),
        "report_uri": outcome.uri,
        "page": str(outcome.page),
        "files": outcome.files,
        "notes": list(replay.notes),
    }


def _verdict(outcome: _StoredReplay) -> list[Block]:
    verdict = outcome.built.report.verdict
    lines: list[Block] = [Heading(outcome.replay.item.job)]
    lines += [Line(sentence) for sentence in (verdict.health, verdict.change, verdict.cost)]
    lines.append(Line(f"Report: {outcome.page}"))
    if outcome.uri is not None:
        lines.append(Line(f"Report in the bucket: {outcome.uri}"))
    return lines


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
        then = "" if change.then is None else _said(change.then.status, str(change.then))
        rows.append([change.rule, then, _said(change.now.status, str(change.now)), change.now.reason])
    return Grid(_COLUMNS, rows)


def _said(status: str, words: str) -> Cell:
    return Cell(words, status_cell(Status(status)).style)
