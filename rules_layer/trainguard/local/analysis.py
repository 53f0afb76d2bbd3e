"""A profile evaluated on this machine, with its time lines."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from trainguard.core.records import JobRecord, NodeRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.training.keys import scalar_names
from trainguard.formats.runs.run import CUT
from trainguard.kernels.captures.keys import KERNELS
from trainguard.local.engine import Evaluation, evaluate_profile
from trainguard.local.kernels import EvaluatedKernels, evaluate_kernels
from trainguard.local.pool import WorkerPool, workers_for
from trainguard.local.profile import Profile
from trainguard.local.timelines import TimelineListener, digest_profile, profile_axis
from trainguard.local.training import EvaluatedTraining, digest_training, evaluate_training
from trainguard.report.job.build import BuiltReport, build_report
from trainguard.report.job.coverage import CUT_FILES, UNREAD_PARTS
from trainguard.report.timeline.digest import NodeDigest
from trainguard.report.timeline.series import TimeAxis
from trainguard.report.training.digest import TrainingDigest


class Progress(Protocol):
    """Shows how far an evaluation is."""

    def of_objects(self, objects: int, size: int) -> AbstractContextManager[None]:
        """Begin with so many objects of ``size`` bytes in all."""
        ...

    def applied(self, size: int, watermark_s: float | None, /) -> None:
        """Take note of an object of ``size`` bytes; its stream is evaluated up to ``watermark_s``, epoch seconds."""
        ...


class NoProgress:
    """Shows nothing."""

    def of_objects(self, objects: int, size: int) -> AbstractContextManager[None]:
        """Begin."""
        del objects, size
        return nullcontext()

    def applied(self, size: int, watermark_s: float | None, /) -> None:
        """Take note of nothing."""
        del size, watermark_s


@dataclass(frozen=True, slots=True)
class EvaluatedProfile:
    """A job that was evaluated: time lines by node, training and kernel traces as far as there are any."""

    evaluation: Evaluation
    digests: tuple[NodeDigest, ...]
    training: EvaluatedTraining | None = None
    shown: TrainingDigest | None = None
    kernels: EvaluatedKernels | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What people have to know beside the verdicts, a sentence each."""
        return tuple(note for part in (self.training, self.kernels) if part is not None for note in part.notes)

    def report(self) -> BuiltReport:
        """Build the report, of scope ``full`` where there are time lines."""
        done = self.evaluation
        built = build_report(done.job, done.records, now=time.time(), plan=done.plan, digests=self.digests)
        built = built.without_kernel_files()
        return built if self.shown is None else built.with_training(self.shown)


def evaluated_profile(
    profile: Profile, job: JobRecord, plan: RulePlan, progress: Progress, *, timelines: bool = True
) -> EvaluatedProfile:
    """Evaluate a profile by all rules and put it over time, in one pass; raises as `evaluate_profile` does."""
    known = replace(job, instance_count=job.instance_count or profile.instances)
    plan = replace(plan, by_event_time=True)
    with _pool(profile) as pool, progress.of_objects(profile.objects, profile.size):
        tap = TimelineListener(_axis(profile, known)) if timelines and profile.nodes else None
        evaluation = evaluate_profile(known, plan, profile, pool, progress.applied, tap=tap)
    digests = () if tap is None else tuple(tap.digests)
    kernels = _kernels(evaluation.job, plan, profile)
    evaluation = evaluation if kernels is None else _with_records(evaluation, kernels.record)
    if profile.training is None:
        return EvaluatedProfile(_with_unread(evaluation, profile), digests, kernels=kernels)
    training = evaluate_training(evaluation.job, plan, FAMILIES, profile.training)
    evaluation = _with_unread(_with_records(evaluation, *training.records), profile)
    shown = digest_training(profile.training, job.job, training, scalar_names(plan)) if timelines else None
    return EvaluatedProfile(evaluation, digests, training, shown, kernels)


def _kernels(job: JobRecord, plan: RulePlan, profile: Profile) -> EvaluatedKernels | None:
    wanted = profile.kernels is not None and plan.rules_of(KERNELS)
    return evaluate_kernels(job, plan, profile.kernels) if wanted and profile.kernels is not None else None


def _with_records(evaluation: Evaluation, *records: NodeRecord) -> Evaluation:
    *streams, own = evaluation.records
    return replace(evaluation, records=(*streams, *records, own))


def _with_unread(evaluation: Evaluation, profile: Profile) -> Evaluation:
    """Count what could not be read at the first stream; a cut end of a file is no more."""
    cut = profile.unread.get(CUT, 0)
    unread = {UNREAD_PARTS: sum(profile.unread.values()) - cut, CUT_FILES: cut}
    if not profile.unread:
        return evaluation
    first, *others = evaluation.records
    counted = {**first.counters, **{name: amount for name, amount in unread.items() if amount}}
    return replace(evaluation, records=(replace(first, counters=counted), *others))


def digest(profile: Profile, job: JobRecord, progress: Progress) -> Sequence[NodeDigest]:
    """Put a profile over time without evaluating it; raises as `digest_profile` does."""
    with _pool(profile) as pool, progress.of_objects(profile.objects, profile.size):
        return tuple(digest_profile(profile, pool, progress.applied, axis=_axis(profile, job)))


def _pool(profile: Profile) -> WorkerPool:
    return WorkerPool(workers_for(sum(len(node.minutes) for node in profile.nodes.values())))


def _axis(profile: Profile, job: JobRecord) -> TimeAxis:
    return profile_axis(profile, started_at=job.started_at, ended_at=job.ended_at)
