"""An old job's profile judged by today's rules, and kept as rows beside the live ones.

Nothing here can act: only the tables and the bucket are known. The item in Jobs is written first, as ``Unknown`` and
``Replaying``, and gets its final status last: an interrupted replay says that it is not finished, and expires. The item
is never active: the scheduler leaves it out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from trainguard.aws.dynamodb.stored_form import stored_job
from trainguard.cli.services.deployment import Place, StackJob, job_in_stack, job_place
from trainguard.core.errors import RequestError
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, JobStatus, RuleRow
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import job_of_place
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.engine.streams.session import expiry
from trainguard.local.analysis import EvaluatedProfile, evaluated_profile
from trainguard.local.engine import evaluation_rows
from trainguard.local.places import open_place
from trainguard.local.profile import Profile, read_profile
from trainguard.pricing.table import PriceTable
from trainguard.rules.parameters import overridden

if TYPE_CHECKING:
    from trainguard.cli.output.progress import Progress
    from trainguard.cli.services.deployment import Connection, Stores
    from trainguard.local.sources import ProfileSource

REPLAYED, REPLAYING = "Replayed", "Replaying"
"""SecondaryStatus of a replay's item, which a person sees in the console: whole, or not yet."""


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """A row's result in short."""

    status: str
    severity: str | None
    times_fired: int
    measured: float | None
    threshold: float | None
    worst: str | None
    reason: str

    @property
    def outcome(self) -> tuple[bool, str, str | None]:
        """Whether the rule has fired, its status and its severity."""
        return self.times_fired > 0, self.status, self.severity

    def __str__(self) -> str:
        fired = f", fired {self.times_fired} x" if self.times_fired else ""
        return f"{self.status}{f' ({self.severity})' if self.severity else ''}{fired}"


@dataclass(frozen=True, slots=True)
class Change:
    """A rule then and now; None where there is no row."""

    rule: str
    then: RuleOutcome | None
    now: RuleOutcome

    @property
    def changed(self) -> bool:
        """Whether the result differs; without a row from then it has not."""
        return self.then is not None and self.then.outcome != self.now.outcome

    def document(self) -> dict[str, Any]:
        """Return it for machines."""
        then = None if self.then is None else asdict(self.then)
        return {"rule": self.rule, "changed": self.changed, "then": then, "now": asdict(self.now)}


def changes(then: Sequence[RuleRow], now: Sequence[RuleRow]) -> list[Change]:
    """Compare the rows of a whole job, changed ones first; rows of nodes are left out."""
    before = {row.rule: _outcome_of(row) for row in then if row.node is None}
    compared = [Change(row.rule, before.get(row.rule), _outcome_of(row)) for row in now if row.node is None]
    return sorted(compared, key=lambda change: not change.changed)


def _outcome_of(row: RuleRow) -> RuleOutcome:
    return RuleOutcome(
        status=row.status.value,
        severity=None if row.finding.severity is None else row.finding.severity.value,
        times_fired=row.times_fired,
        measured=row.finding.measured,
        threshold=row.finding.threshold,
        worst=row.worst,
        reason=row.finding.reason,
    )


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

    judged: EvaluatedProfile
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
    judged = evaluated_profile(subject.profile, known, FAMILIES.plan(known, prices=prices), progress)
    evaluation = judged.evaluation
    watermark_s = max((each.watermark_s for each in evaluation.records if each.watermark_s is not None), default=None)
    expires_at = expiry(watermark_s, now)
    rows = evaluation_rows(evaluation, expires_at=expires_at)
    item = replace(evaluation.job, active=False, last_object_at=watermark_s, expires_at=expires_at)
    return Replay(
        judged=judged,
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
            "Leave --report away: the report is written on this machine all the same.",
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
        policy=msgspec.structs.replace(live.policy, evaluated=True, why="somebody asked for the replay"),
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
        return [f"The rows of job {subject.job} are gone: there is nothing to compare with."]
    if subject.live.active:
        return [f"Job {subject.job} is not closed: it is evaluated as if it had ended now."]
    return []
