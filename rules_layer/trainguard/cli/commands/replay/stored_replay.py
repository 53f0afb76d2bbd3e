"""An old job's profile judged by today's rules, and kept as rows beside the live ones.

Nothing here can act: the path knows neither state machine, topic nor SageMaker, only the tables and the bucket. Its
item in Jobs is written first, as ``Unknown`` and ``Replaying``: it keeps the name from a second replay. Rows follow,
then the report if it is wanted, and last the item's final status. So what was interrupted says that it is not finished,
and expires like all else. The item is never active: no tick looks at it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from trainguard.adapters.stored_form import stored_job
from trainguard.cli.commands.replay.changes import Change, changes
from trainguard.cli.services.target import Place, StackJob, job_not_known, job_place
from trainguard.engine.jobs.job_registry import job_of_place
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.engine.streams.state_items import expiry
from trainguard.errors import RequestError
from trainguard.families.installed import FAMILIES
from trainguard.layout import ProfileRoot
from trainguard.local.analysis import EvaluatedProfile, evaluated_profile
from trainguard.local.places import open_place
from trainguard.local.profile import Profile, read_profile
from trainguard.local.rows import evaluation_rows
from trainguard.pricing.table import PriceTable
from trainguard.records import JobRecord, JobStatus, RuleRow
from trainguard.rules.parameters import overridden

if TYPE_CHECKING:
    from trainguard.cli.output.progress import Progress
    from trainguard.cli.services.deployment import Connection, Stores
    from trainguard.local.sources import ProfileSource

REPLAYED, REPLAYING = "Replayed", "Replaying"
"""SecondaryStatus of a replay's item, which a person sees in the console: whole, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """By what is judged: settings in place of the job's own, and a price table in place of the one that comes along."""

    settings: Mapping[str, str]
    prices: PriceTable | None


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
    """Find the profile and what the stack knows of its job.

    Raises
    ------
    ProfileSourceError, NoProfileError
        When no single profile is there.
    RequestError
        When the stack does not know the job, or it is a replay itself.
    """
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


def judge(name: str, subject: Subject, ways: Ways, progress: "Progress", *, now: float) -> Replay:
    """Judge the subject's profile as the replay ``name``; ``now`` in epoch seconds.

    Raises
    ------
    PortUnavailableError, WorkerDiedError
        As `evaluate_profile` does.
    """
    known = _known(name, subject, ways.settings)
    judged = evaluated_profile(subject.profile, known, FAMILIES.plan(known, prices=ways.prices), progress)
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
    """Raise RequestError when there is a replay of that name, be it one that was interrupted."""
    if stores.jobs.load(name) is not None:
        raise _taken(name)


def store(replay: Replay, stores: "Stores", publish_report: Callable[[], None]) -> None:
    """Write a replay so that it looks finished when it is; ``publish_report`` is called in between.

    Raises
    ------
    RequestError
        When another replay took the name meanwhile; nothing of this one is then written.
    PortUnavailableError
        When a store did not answer.
    """
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
    live = stores.jobs.load(target.name)
    if live is None:
        raise job_not_known(target.name, stores.jobs)
    return job_place(live)


def _known(name: str, subject: Subject, given: Mapping[str, str]) -> JobRecord:
    """Return the replay's item as far as it is known before: the live job's, closed, with the settings given now."""
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
