"""A profile evaluated on this machine, with its time lines: on the rules' read and parse, or in a pass of their own."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Protocol

from trainguard.core.records import JobRecord
from trainguard.engine.diagnosis.case import NOT_JUDGED_DEVICES
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import Unreadable, readable
from trainguard.engine.training.stream import scalar_names
from trainguard.formats.profile.assemble import SAMPLING_INTERVALS_S, estimate_interval_s
from trainguard.formats.profile.keys import MINUTE_S, SystemKey
from trainguard.formats.profile.system import MINUTE_AFTER_S, MINUTE_BEFORE_S
from trainguard.formats.runs.run import CUT
from trainguard.kernels.captures.keys import KERNELS
from trainguard.local.engine import Planned, ProfileEvaluation, Watcher, by_stream, evaluate_profile, schedule
from trainguard.local.kernels import evaluate_kernels
from trainguard.local.pool import SMALLEST_BYTES, BodiesAhead, SamplesAhead, WorkerPool, workers_for
from trainguard.local.profile import Profile, node_source
from trainguard.local.training import digest_training, evaluate_training
from trainguard.local.training_files import declared
from trainguard.report.job.build import BuiltReport, build_report
from trainguard.report.job.coverage import CUT_FILES, UNREAD_PARTS
from trainguard.report.timeline.digest import NodeDigest, NodeDigests, read_framework
from trainguard.report.timeline.series import TimeAxis, axis_for, job_span

_MICROSECONDS = 1_000_000
# How long before its end the first framework object of a job without system metrics is taken to begin.
_FIRST_OBJECT_S = 10 * MINUTE_S

# The first object of a node may hold a few seconds.
_LOOKED_AT = 2


def digest_profile(
    profile: Profile, pool: WorkerPool, watch: Watcher | None = None, *, axis: TimeAxis
) -> list[NodeDigest]:
    """Digest a profile without judging it; unreadable objects are left out: the rules' pass counts and names them.

    Raises PortUnavailableError; WorkerDiedError.
    """
    digests = NodeDigests(axis)
    minutes, framework = by_stream(schedule(profile))
    samples = SamplesAhead(profile, minutes, pool)
    bodies = BodiesAhead(profile.source, [profile.files[key] for key, _ in framework])
    sources = {node: node_source(profile, node, bodies.read) for node in profile.nodes}
    objects: list[Planned] = [*minutes, *framework]
    for key, named in objects:
        parsed = (
            samples.take(key)
            if isinstance(named, SystemKey)
            else readable(key, partial(read_framework, sources[named.node], key, named))
        )
        if not isinstance(parsed, Unreadable):
            digests.add(named.node, parsed)
        if watch is not None:
            watch(profile.size_of(key), named.named_at)
    return digests.in_order()


def profile_axis(profile: Profile, job: JobRecord) -> TimeAxis:
    """Return the axis of a job's profile, whose objects' names tell the time of its data.

    How many GPUs a node has, and how often they are sampled, is taken from the first objects of three nodes.
    """
    minutes = [key.minute for node in profile.nodes.values() for key in node.minutes.values()]
    ends = [key.end_us / _MICROSECONDS for node in profile.nodes.values() for key in node.framework.values()]
    firsts = [minute - MINUTE_BEFORE_S for minute in minutes] or [end - _FIRST_OBJECT_S for end in ends]
    span = job_span(job, firsts, [*(minute + MINUTE_AFTER_S for minute in minutes), *ends])
    nodes = len(profile.nodes)
    gpus, interval_s = _sampling(profile)
    return axis_for(*span, gpus * nodes, nodes, interval_s=interval_s)


def _sampling(profile: Profile) -> tuple[int, float]:
    names = list(profile.nodes)
    order = [
        (key, parsed)
        for name in sorted({names[0], names[len(names) // 2], names[-1]})
        for key, parsed in list(profile.nodes[name].minutes.items())[:_LOOKED_AT]
    ]
    ahead = SamplesAhead(profile, order, WorkerPool(0))
    taken = [ahead.take(key) for key, _ in order]
    read = [samples for samples in taken if not isinstance(samples, Unreadable) and samples.table]
    gpus = [sum(series.kind == "gpu" for series in samples.table) for samples in read]
    estimates = (estimate_interval_s(samples, None, None) for samples in read)
    known = [interval_s for interval_s in estimates if interval_s is not None]
    return max(gpus, default=0), median(known) if known else SAMPLING_INTERVALS_S[-1 if read else 0]


class Progress(Protocol):
    """Shows how far an evaluation is."""

    def of_objects(self, objects: int, size: int) -> AbstractContextManager[None]:
        """Begin with so many objects of ``size`` bytes in all."""
        ...

    def applied(self, size: int, watermark_s: float | None, /) -> None:
        """Take note of an object of ``size`` bytes; its stream is evaluated up to ``watermark_s``, epoch seconds."""
        ...


def report_of(done: ProfileEvaluation) -> BuiltReport:
    """Build the report of a job, of scope ``full`` where there are time lines or its training."""
    built = build_report(done.job, done.records, now=time.time(), plan=done.plan, digests=done.digests)
    built = built.without_kernel_files()
    return built if done.shown is None else built.with_training(done.shown)


def evaluated_profile(
    profile: Profile,
    job: JobRecord,
    plan: RulePlan,
    progress: Progress | None,
    *,
    timelines: bool = True,
    training: bool = True,
) -> ProfileEvaluation:
    """Evaluate a profile by all rules, and read what else a report shows: ``timelines``, series of the ``training``.

    Raises as `evaluate_profile` does.
    """
    known = replace(
        job,
        instance_count=job.instance_count or profile.instances,
        total_steps=job.total_steps or declared(profile.training)[0],
    )
    plan = replace(plan, by_event_time=True)
    shown = nullcontext() if progress is None else progress.of_objects(profile.objects, profile.size)
    watch = None if progress is None else progress.applied
    with _pool(profile) as pool, shown:
        digests = NodeDigests(profile_axis(profile, known)) if timelines and profile.nodes else None
        hang = None if profile.hang is None else profile.hang(_last_minute(profile) + MINUTE_S)
        done = evaluate_profile(known, plan, profile, pool, watch, digests=digests, hang=hang)
    *streams, own = done.records
    done = replace(done, digests=() if digests is None else tuple(digests.in_order()))
    if profile.kernels is not None and plan.rules_of(KERNELS):
        record, notes = evaluate_kernels(done.job, plan, profile.kernels)
        streams.append(record)
        done = replace(done, notes=(*done.notes, *notes))
    if profile.training is not None:
        records, of_rules, notes = evaluate_training(done.job, plan, FAMILIES, profile.training)
        streams += records
        done = replace(done, streams=of_rules, notes=(*done.notes, *notes))
        if training:
            names = scalar_names(plan)
            done = replace(done, shown=digest_training(profile.training, job.job, records, of_rules, names))
    # What could not be read counts at the first stream; a cut end of a file is no more.
    cut = profile.unread.get(CUT, 0)
    unread = {
        UNREAD_PARTS: sum(profile.unread.values()) - cut,
        CUT_FILES: cut,
        NOT_JUDGED_DEVICES: profile.not_judged,
    }
    first, *others = (*streams, own)
    if any(unread.values()):
        first = replace(first, counters={**first.counters, **{name: many for name, many in unread.items() if many}})
    return replace(done, records=(first, *others))


def _last_minute(profile: Profile) -> float:
    """Return the newest minute with samples, epoch seconds; 0 without any."""
    return max((float(key.minute) for node in profile.nodes.values() for key in node.minutes.values()), default=0.0)


def digest(profile: Profile, job: JobRecord, progress: Progress) -> Sequence[NodeDigest]:
    """Put a profile over time without evaluating it; raises as `digest_profile` does."""
    with _pool(profile) as pool, progress.of_objects(profile.objects, profile.size):
        return tuple(digest_profile(profile, pool, progress.applied, axis=profile_axis(profile, job)))


def _pool(profile: Profile) -> WorkerPool:
    sizes = [profile.size_of(key) for node in profile.nodes.values() for key in node.minutes]
    return WorkerPool(workers_for(len(sizes)) if sum(sizes) >= SMALLEST_BYTES else 0)
