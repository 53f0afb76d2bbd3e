"""An old job's profile judged by today's rules, kept as rows beside the live ones, and what would have changed.

Nothing here can act: only the tables and the bucket are known. The item in Jobs is written first, as ``Unknown`` and
``Replaying``, and gets its final status last: an interrupted replay says that it is not finished, and expires. The item
is never active: the scheduler leaves it out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trainguard.aws.dynamodb.stored_form import stored_job
from trainguard.cli.output.blocks import Block, Cell, Column, Grid, Heading, Line, Shown, status_cell
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import is_evaluated, row_fields
from trainguard.cli.services.deployment import Place, StackJob, job_in_stack, job_place
from trainguard.core.errors import RequestError
from trainguard.core.finding import Severity
from trainguard.core.layout import ProfileRoot
from trainguard.core.links import REPORT_PAGE
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status
from trainguard.core.timestamps import iso_from_epoch
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import job_of_place
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.engine.streams.session import expiry
from trainguard.local.analysis import evaluated_profile
from trainguard.local.engine import Evaluation, evaluation_rows
from trainguard.local.places import open_place
from trainguard.local.profile import Profile, read_profile
from trainguard.pricing.table import PriceTable
from trainguard.report.document import Report
from trainguard.rules.parameters import overridden

if TYPE_CHECKING:
    from trainguard.cli.output.progress import Progress
    from trainguard.cli.services.deployment import Connection, Stores
    from trainguard.local.sources import ProfileSource

REPLAYED, REPLAYING = "Replayed", "Replaying"
"""SecondaryStatus of a replay's item, which a person sees in the console: whole, or not yet."""


_OF_ROW = ("status", "severity", "times_fired", "measured", "threshold", "worst", "reason")


@dataclass(frozen=True, slots=True)
class Change:
    """A rule's row then and now; None where there is no row."""

    then: RuleRow | None
    now: RuleRow

    @property
    def changed(self) -> bool:
        """Whether status, severity or having fired differ; without a row from then they do not."""
        return self.then is not None and _result(self.then) != _result(self.now)

    def document(self) -> dict[str, Any]:
        then = None if self.then is None else row_fields(self.then, _OF_ROW)
        return {"rule": self.now.rule, "changed": self.changed, "then": then, "now": row_fields(self.now, _OF_ROW)}


def _result(row: RuleRow) -> tuple[bool, Status, Severity | None]:
    return row.times_fired > 0, row.status, row.finding.severity


def changes(then: Sequence[RuleRow], now: Sequence[RuleRow]) -> list[Change]:
    """Compare the rows of a whole job, changed ones first; rows of nodes are left out."""
    before = {row.rule: row for row in then if row.node is None}
    compared = [Change(before.get(row.rule), row) for row in now if row.node is None]
    return sorted(compared, key=lambda change: not change.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is replayed: the profile, and the live job's item and rows where the stack has them."""

    profile: Profile
    job: str
    live: JobRecord | None
    rows: Sequence[RuleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A replay that was judged and is not stored yet."""

    judged: Evaluation
    item: JobRecord
    rows: Sequence[RuleRow]
    changes: Sequence[Change]
    notes: Sequence[str]


def find_subject(target: Place | StackJob, connection: "Connection") -> Subject:
    """Find profile and records of a job; raises ProfileSourceError, NoProfileError, RequestError."""
    stores = connection.stores
    place = target if isinstance(target, Place) else _place_of(target, stores)
    profile = read_profile(open_place(place.text, connection.clients))
    if isinstance(target, StackJob):
        job, live = target.name, stores.jobs.load(target.name)
    else:
        bucket, prefix = _lies_in(profile.source)
        live = job_of_place(stores.jobs, bucket, ProfileRoot(prefix, profile.root.job))
        job = profile.root.job if live is None else live.job
    return Subject(profile=profile, job=job, live=live, rows=stores.rows.of_job(job))


def judge(
    name: str,
    subject: Subject,
    progress: "Progress",
    *,
    settings: Mapping[str, str],
    prices: PriceTable | None,
    now: float,
) -> Replay:
    """Judge the profile as the replay ``name`` with other ``settings``; raises as `evaluate_profile` does."""
    known = _known(name, subject, settings)
    evaluation = evaluated_profile(subject.profile, known, FAMILIES.plan(known, prices=prices), progress)
    watermark_s = max((each.watermark_s for each in evaluation.records if each.watermark_s is not None), default=None)
    expires_at = expiry(watermark_s, now)
    rows = evaluation_rows(evaluation, expires_at=expires_at)
    item = replace(evaluation.job, active=False, last_object_at=watermark_s, expires_at=expires_at)
    return Replay(
        judged=evaluation,
        item=item,
        rows=rows,
        changes=changes(subject.rows, rows),
        notes=_notes(subject),
    )


def refuse_taken(name: str, stores: "Stores") -> None:
    """Raise RequestError when there is a replay of that name, also an interrupted one."""
    if stores.jobs.load(name) is not None:
        raise _taken(name)


def store(replay: Replay, stores: "Stores", publish_report: Callable[[], None]) -> None:
    """Write a replay that looks finished when it is; raises RequestError, before a write, when its name was taken."""
    claim = stored_job(replace(replay.item, status=JobStatus.UNKNOWN, secondary_status=REPLAYING))
    if stores.jobs.register(claim) != claim:
        raise _taken(claim.job)
    stores.rows.publish(replay.rows)
    publish_report()
    stores.jobs.update_status(replay.item)


def _taken(name: str) -> RequestError:
    return RequestError(f"there is a replay {name} already", "Give this one another name by --as.")


def bucket_place(name: str, subject: Subject) -> tuple[str, str]:
    """Return the bucket and key prefix of a replay's report; raises RequestError when the profile is in no bucket."""
    bucket, prefix = _lies_in(subject.profile.source)
    if not bucket:
        raise RequestError(
            f"the profile lies in {subject.profile.source.place}, which is no job's folder in a bucket",
            "Leave out --report: the report is written on this machine anyway.",
        )
    return bucket, ProfileRoot.of_job(prefix, name).report


def _place_of(target: StackJob, stores: "Stores") -> Place:
    if replayed_job(target.name) is not None:
        raise RequestError(f"{target.name} is a replay itself", f"Replay {replayed_job(target.name)} instead.")
    return job_place(job_in_stack(target.name, stores.jobs))


def _known(name: str, subject: Subject, given: Mapping[str, str]) -> JobRecord:
    bucket, prefix = _lies_in(subject.profile.source)
    live = subject.live or JobRecord(job=subject.job, arn=f"unknown:{subject.job}", bucket=bucket, prefix=prefix)
    return replace(
        live,
        job=name,
        bucket=bucket,
        prefix=prefix,
        status=live.status if live.status.is_final else JobStatus.COMPLETED,
        secondary_status=REPLAYED,
        rule_settings=overridden(live.rule_settings, given),
        stop_allowed=False,
        episodes={},
        active=False,
        closing=False,
        tuning_job=None,
        policy=msgspec.structs.replace(live.policy, evaluated=True, why="the replay was requested"),
        setting_sources={**live.setting_sources, **dict.fromkeys(given, "settings of the replay")},
    )


def _lies_in(source: "ProfileSource") -> tuple[str, str]:
    """Return the bucket and the prefix above the job's name; empty ones of what lies elsewhere."""
    scheme, _, place = source.place.partition("://")
    bucket, _, path = place.partition("/")
    folder, _, last = path.rpartition(f"{source.job}/")
    return (bucket, folder) if scheme == "s3" and last == "profiler-output" else ("", "")


def _notes(subject: Subject) -> list[str]:
    if subject.live is None:
        return [f"The stack does not know job {subject.job}: there is nothing to compare with."]
    if not subject.rows:
        return [f"The rows of job {subject.job} have expired: there is nothing to compare with."]
    if subject.live.active:
        return [f"Job {subject.job} is not closed: it is evaluated as if it had ended now."]
    return []


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
