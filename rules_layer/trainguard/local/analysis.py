"""A profile evaluated on this machine, with its time lines."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol

from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.training.keys import scalar_names
from trainguard.formats.runs.run import CUT
from trainguard.kernels.captures.keys import KERNELS
from trainguard.local.engine import Evaluation, evaluate_profile
from trainguard.local.kernels import evaluate_kernels
from trainguard.local.pool import WorkerPool, workers_for
from trainguard.local.profile import Profile
from trainguard.local.timelines import NodeDigests, digest_profile, profile_axis
from trainguard.local.training import digest_training, evaluate_training
from trainguard.report.job.build import BuiltReport, build_report
from trainguard.report.job.coverage import CUT_FILES, UNREAD_PARTS
from trainguard.report.timeline.digest import NodeDigest
from trainguard.report.timeline.series import TimeAxis


class Progress(Protocol):
    """Shows how far an evaluation is."""

    def of_objects(self, objects: int, size: int) -> AbstractContextManager[None]:
        """Begin with so many objects of ``size`` bytes in all."""
        ...

    def applied(self, size: int, watermark_s: float | None, /) -> None:
        """Take note of an object of ``size`` bytes; its stream is evaluated up to ``watermark_s``, epoch seconds."""
        ...


def report_of(done: Evaluation) -> BuiltReport:
    """Build the report of a job, of scope ``full`` where there are time lines."""
    built = build_report(done.job, done.records, now=time.time(), plan=done.plan, digests=done.digests)
    built = built.without_kernel_files()
    return built if done.shown is None else built.with_training(done.shown)


def evaluated_profile(
    profile: Profile, job: JobRecord, plan: RulePlan, progress: Progress | None, *, timelines: bool = True
) -> Evaluation:
    """Evaluate a profile by all rules and put it over time, in one pass; raises as `evaluate_profile` does."""
    known = replace(job, instance_count=job.instance_count or profile.instances)
    plan = replace(plan, by_event_time=True)
    shown = nullcontext() if progress is None else progress.of_objects(profile.objects, profile.size)
    with _pool(profile) as pool, shown:
        digests = NodeDigests(_axis(profile, known)) if timelines and profile.nodes else None
        done = evaluate_profile(known, plan, profile, pool, progress and progress.applied, digests=digests)
    *streams, own = done.records
    done = replace(done, digests=() if digests is None else tuple(digests.in_order()))
    if profile.kernels is not None and plan.rules_of(KERNELS):
        record, notes = evaluate_kernels(done.job, plan, profile.kernels)
        streams.append(record)
        done = replace(done, kernel_notes=notes)
    if profile.training is not None:
        records, of_rules, notes = evaluate_training(done.job, plan, FAMILIES, profile.training)
        streams += records
        done = replace(done, streams=of_rules, training_notes=notes)
        if timelines:
            names = scalar_names(plan)
            done = replace(done, shown=digest_training(profile.training, job.job, records, of_rules, names))
    # What could not be read counts at the first stream; a cut end of a file is no more.
    cut = profile.unread.get(CUT, 0)
    unread = {UNREAD_PARTS: sum(profile.unread.values()) - cut, CUT_FILES: cut}
    first, *others = (*streams, own)
    if profile.unread:
        first = replace(first, counters={**first.counters, **{name: many for name, many in unread.items() if many}})
    return replace(done, records=(first, *others))


def digest(profile: Profile, job: JobRecord, progress: Progress) -> Sequence[NodeDigest]:
    """Put a profile over time without evaluating it; raises as `digest_profile` does."""
    with _pool(profile) as pool, progress.of_objects(profile.objects, profile.size):
        return tuple(digest_profile(profile, pool, progress.applied, axis=_axis(profile, job)))


def _pool(profile: Profile) -> WorkerPool:
    return WorkerPool(workers_for(sum(len(node.minutes) for node in profile.nodes.values())))


def _axis(profile: Profile, job: JobRecord) -> TimeAxis:
    return profile_axis(profile, started_at=job.started_at, ended_at=job.ended_at)
