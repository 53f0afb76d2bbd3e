"""What ``trainguard status`` says of a hyperparameter tuning job: its training jobs, the worst first."""

import msgspec

from trainguard.cli.output.blocks import Block, Cell, Column, Facts, Grid, Heading, Shown, severity_cell
from trainguard.cli.output.result import SCHEMA_VERSION, CommandResult
from trainguard.cli.output.rows import iso
from trainguard.finding import Severity
from trainguard.records import MOST_TUNED_JOBS, JobStatus, TunedJob, TuningJobRecord


class TunedJobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the tuning job; ``findings`` counts the rules that have fired, ``finding`` is the most severe."""

    job: str
    status: JobStatus
    finished: bool
    findings: int
    finding: str | None
    severity: Severity | None


class TuningDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A tuning job, its jobs with the worst first; ``more`` says that there are jobs that are not named."""

    schema_version: str = SCHEMA_VERSION
    generated_at: str
    tuning_job: str
    seen: int
    finished: int
    with_findings: int
    more: bool
    jobs: list[TunedJobLine]


def tuning_result(record: TuningJobRecord, *, now: float) -> CommandResult:
    """Return the jobs of a tuning job with what was found on each."""
    document = TuningDocument(
        generated_at=str(iso(now)),
        tuning_job=record.name,
        seen=len(record.jobs),
        finished=record.finished,
        with_findings=record.with_findings,
        more=record.more,
        jobs=[_line(name, job) for name, job in record.worst_first],
    )
    blocks: list[Block] = [Heading(record.name), Facts(_facts(document))]
    if document.jobs:
        blocks += [Heading("Jobs"), Grid(_COLUMNS, [_row(line) for line in document.jobs])]
    notes = []
    if record.more:
        notes.append(f"Only {MOST_TUNED_JOBS:,} jobs are here: `trainguard jobs --tuning {record.name}` has all.")
    return CommandResult(document=document, blocks=blocks, notes=notes, fired=document.with_findings > 0)


_COLUMNS = (
    Column("job", folds=True),
    Column("status"),
    Column("evaluated", drops=1),
    Column("severity"),
    Column("finding", folds=True),
)


def _line(name: str, job: TunedJob) -> TunedJobLine:
    return TunedJobLine(
        job=name,
        status=job.status,
        finished=job.finished,
        findings=job.findings,
        finding=job.rule,
        severity=job.severity,
    )


def _facts(document: TuningDocument) -> list[tuple[str, Shown]]:
    more = " and more" if document.more else ""
    facts: list[tuple[str, Shown]] = [
        ("jobs", f"{document.seen:,}{more}, {document.finished:,} of them evaluated to their end"),
        ("with findings", f"{document.with_findings:,}"),
    ]
    worst = document.jobs[0] if document.jobs else None
    if worst is not None and worst.finding is not None:
        facts.append(("worst", Cell(f"{worst.finding} ({worst.severity}) on {worst.job}")))
    return facts


def _row(line: TunedJobLine) -> list[Shown]:
    others = f" and {line.findings - 1} more" if line.findings > 1 else ""
    return [
        line.job,
        line.status.value,
        "to its end" if line.finished else "still",
        severity_cell(line.severity),
        f"{line.finding}{others}" if line.finding is not None else "no finding",
    ]
