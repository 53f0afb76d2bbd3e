"""A whole profile judged on this machine, for the commands that make reports and replays of it."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainguard.adapters.clients import Clients
from trainguard.cli.output.progress import Progress
from trainguard.engine.plan import RulePlan
from trainguard.local.bucket import open_bucket
from trainguard.local.engine import Evaluation, evaluate_profile
from trainguard.local.pool import WorkerPool, workers_for
from trainguard.local.profile import Profile
from trainguard.local.sources import ProfileSource, open_folder
from trainguard.local.timelines import TimelineListener, digest_profile, profile_axis
from trainguard.records import JobRecord
from trainguard.timeline.digest import NodeDigest
from trainguard.timeline.series import TimeAxis

if TYPE_CHECKING:
    from trainguard.cli.services.target import Place


@dataclass(frozen=True, slots=True)
class EvaluatedProfile:
    """A profile that was judged: the evaluation, and its time lines by node."""

    evaluation: Evaluation
    digests: tuple[NodeDigest, ...]


def open_place(place: "Place", clients: Clients | None = None) -> ProfileSource:
    """Find the profile at a place; raises ProfileSourceError."""
    return open_bucket(place.text, clients) if place.in_s3 else open_folder(place.text)


def evaluated_profile(profile: Profile, job: JobRecord, plan: RulePlan, progress: Progress) -> EvaluatedProfile:
    """Judge a profile by all rules and put it over time, in one pass.

    Raises
    ------
    PortUnavailableError, WorkerDiedError
        As `evaluate_profile` does.
    """
    known = replace(job, instance_count=job.instance_count or profile.instances)
    with _pool(profile) as pool, progress.of_objects(profile.objects, profile.size):
        tap = TimelineListener(_axis(profile, known))
        evaluation = evaluate_profile(known, plan, profile, pool, progress.applied, tap=tap)
    return EvaluatedProfile(evaluation, tuple(tap.digests))


def digest(profile: Profile, job: JobRecord, progress: Progress) -> tuple[NodeDigest, ...]:
    """Put a profile over time without judging it; raises as `digest_profile` does."""
    with _pool(profile) as pool, progress.of_objects(profile.objects, profile.size):
        return tuple(digest_profile(profile, pool, progress.applied, axis=_axis(profile, job)))


def _pool(profile: Profile) -> WorkerPool:
    """Return as many parsing processes as a profile is worth."""
    return WorkerPool(workers_for(sum(len(node.minutes) for node in profile.nodes.values())))


def _axis(profile: Profile, job: JobRecord) -> TimeAxis:
    return profile_axis(profile, started_at=job.started_at, ended_at=job.ended_at)
