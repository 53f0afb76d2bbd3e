"""An old job's profile judged by today's rules, kept as rows beside the live ones, and what would have changed.

Nothing here can act: only the tables and the bucket are known. The item in Jobs is written first, as ``Unknown`` and
``Replaying``, and gets its final status last: an interrupted replay says that it is not finished, and expires. The item
is never active: the scheduler leaves it out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.dynamodb.stored_form import stored_job
from trainguard.cli.output.rendering import Block, Cell, Line, Shown, TerminalColumn, heading, status_cell, table
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import is_evaluated, row_fields
from trainguard.cli.services.deployment import Target, job_in_stack, job_place
from trainguard.core.errors import RequestError
from trainguard.core.finding import Severity
from trainguard.core.layout import REPORT_PAGE, ProfileRoot
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status
from trainguard.core.timestamps import iso_from_epoch
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import job_of_place
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.engine.streams.session import expiry
from trainguard.local.analysis import evaluated_profile
from trainguard.local.engine import ProfileEvaluation, evaluation_rows
from trainguard.local.places import open_place
from trainguard.local.profile import Profile, read_profile
from trainguard.pricing.table import PriceTable
from trainguard.report.document import Report
from trainguard.rules.parameters import overridden

if TYPE_CHECKING:
    from trainguard.cli.output.progress import ProgressBar
    from trainguard.cli.services.deployment import Deployment, Stores
    from trainguard.local.sources import ProfileSource

# SecondaryStatus of a replay's item, which a person sees in the console: whole, or not yet.
REPLAYED, REPLAYING = "Replayed", "Replaying"

_OF_ROW = ("status", "severity", "times_fired", "measured", "threshold", "worst", "reason")

# Whether a rule's result differs, its row then, None where there is none, and its row now.
Change = tuple[bool, RuleRow | None, RuleRow]

# A replay that was judged and is not stored yet: its item and its rows.
JudgedReplay = tuple[JobRecord, Sequence[RuleRow]]


def _result(row: RuleRow) -> tuple[bool, Status, Severity | None]:
    return row.times_fired > 0, row.status, row.finding.severity


def changes(then: Sequence[RuleRow], now: Sequence[RuleRow]) -> list[Change]:
    """Compare the rows of a whole job, changed ones first; rows of nodes are left out."""
    before = {row.rule: row for row in then if row.node is None}
    pairs = [(before.get(row.rule), row) for row in now if row.node is None]
    compared = [(old is not None and _result(old) != _result(row), old, row) for old, row in pairs]
    return sorted(compared, key=lambda change: not change[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is replayed: the profile, and the live job's item and rows where the stack has them."""

    profile: Profile
    job: str
    live: JobRecord | None
    rows: Sequence[RuleRow]


def find_subject(target: Target, deployment: "Deployment") -> Subject:
    """Find profile and records of a job; raises ProfileSourceError, NoProfileError, RequestError."""
    stores, place = deployment.stores, target.text
    if target.is_job:
        if (original := replayed_job(target.text)) is not None:
            raise RequestError(f"{target.text} is a replay itself", f"Replay {original} instead.")
        place = job_place(job_in_stack(target.text, stores.jobs))
    profile = read_profile(open_place(place, deployment.clients))
    if target.is_job:
        job, live = target.text, stores.jobs.load(target.text)
    else:
        bucket, prefix = _lies_in(profile.source)
        live = job_of_place(stores.jobs, bucket, ProfileRoot(prefix, profile.root.job))
        job = profile.root.job if live is None else live.job
    return Subject(profile=profile, job=job, live=live, rows=stores.rows.of_job(job))


def judge(
    name: str,
    subject: Subject,
    progress: "ProgressBar",
    *,
    settings: Mapping[str, str],
    prices: PriceTable | None,
    now: float,
) -> tuple[ProfileEvaluation, JudgedReplay]:
    """Judge the profile as the replay ``name`` with other ``settings``; raises as `evaluate_profile` does."""
    known = _known(name, subject, settings)
    evaluation = evaluated_profile(subject.profile, known, FAMILIES.plan(known, prices=prices), progress)
    watermark_s = max((each.watermark_s for each in evaluation.records if each.watermark_s is not None), default=None)
    expires_at = expiry(watermark_s, now)
    item = replace(evaluation.job, active=False, last_object_at=watermark_s, expires_at=expires_at)
    return evaluation, (item, evaluation_rows(evaluation, expires_at=expires_at))


def taken(name: str) -> RequestError:
    """Return the error of a name that a replay has already, also an interrupted one."""
    return RequestError(f"there is a replay {name} already", "Give this one another name by --as.")


def store(replay: JudgedReplay, stores: "Stores", publish_report: Callable[[], None]) -> None:
    """Write a replay that looks finished when it is; raises RequestError, before a write, when its name was taken."""
    item, rows = replay
    claim = stored_job(replace(item, status=JobStatus.UNKNOWN, secondary_status=REPLAYING))
    if stores.jobs.register(claim) != claim:
        raise taken(claim.job)
    stores.rows.publish(rows)
    publish_report()
    stores.jobs.update_status(item)


def bucket_place(name: str, subject: Subject) -> tuple[str, str]:
    """Return the bucket and key prefix of a replay's report; raises RequestError when the profile is in no bucket."""
    bucket, prefix = _lies_in(subject.profile.source)
    if not bucket:
        raise RequestError(
            f"the profile lies in {subject.profile.source.place}, which is no job's folder in a bucket",
            "Leave out --report: the report is written on this machine anyway.",
        )
    return bucket, ProfileRoot.of_job(prefix, name).report


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


def replay_result(
    replay: JudgedReplay,
    subject: Subject,
    report: Report,
    page: Path,
    files: Sequence[str],
    published: tuple[str, str] | None,
) -> CommandResult:
    """Return a replay's findings; ``published`` are bucket and key prefix of its report there, if any."""
    item, rows = replay
    compared, notes = changes(subject.rows, rows), _notes(subject)
    uri = None if published is None else f"s3://{published[0]}/{published[1]}{REPORT_PAGE}"
    document = {
        "job": item.job,
        "replay_of": replayed_job(item.job),
        "healthy": report.healthy,
        "evaluated": is_evaluated(report),
        "verdict": report.verdict,
        "fired": report.fired,
        "changed": [now.rule for changed, _, now in compared if changed],
        "changes": [
            {
                "rule": now.rule,
                "changed": changed,
                "then": None if then is None else row_fields(then, _OF_ROW),
                "now": row_fields(now, _OF_ROW),
            }
            for changed, then, now in compared
        ],
        "expires_at": iso_from_epoch(item.expires_at or 0),
        "report_uri": uri,
        "page": str(page),
        "files": files,
        "notes": notes,
    }
    verdict = report.verdict
    lines = [verdict.health, verdict.change, verdict.cost, f"Report: {page}"]
    lines += [] if uri is None else [f"Report in the bucket: {uri}"]
    return CommandResult(
        document=document,
        blocks=[heading(item.job), *(Line(line) for line in lines), *_changes(compared)],
        notes=notes,
        fired=bool(report.fired),
        evaluated=is_evaluated(report),
    )


def _changes(compared: list[Change]) -> list[Block]:
    changed = [change for change in compared if change[0]]
    if all(then is None for _, then, _ in compared):
        return [heading("What the rules say now"), table(compared, _CELLS)]
    if not changed:
        return [heading("What would have changed"), Line("Nothing: every rule gives the same result as then.")]
    return [
        heading("What would have changed"),
        table(changed, _CELLS),
        Line(f"{len(compared) - len(changed)} of {len(compared)} rules give the same result as then."),
    ]


def _in_short(row: RuleRow) -> Cell:
    severity = f" ({row.finding.severity})" if row.finding.severity else ""
    fired = f", fired {row.times_fired} x" if row.times_fired else ""
    return Cell(f"{row.status}{severity}{fired}", status_cell(row.status).style)


_CELLS: Mapping[TerminalColumn, Callable[[Change], Shown]] = {
    TerminalColumn("rule"): lambda change: change[2].rule,
    TerminalColumn("then"): lambda change: "" if change[1] is None else _in_short(change[1]),
    TerminalColumn("now"): lambda change: _in_short(change[2]),
    TerminalColumn("why", folds=True): lambda change: change[2].finding.reason,
}
