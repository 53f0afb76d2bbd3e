"""What happens every minute although no object rings: summaries, episodes that end, silent nodes, lost events."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from zlib import crc32

from trainguard.engine.family import Families
from trainguard.engine.jobs.closing import begin_close, close_task
from trainguard.engine.jobs.job_description import is_anothers, with_description
from trainguard.engine.jobs.job_file import KnownJobs
from trainguard.engine.jobs.job_registry import JobRegistry
from trainguard.engine.jobs.stale_state import clear_stale_state
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.engine.summary import Summariser, missing_streams
from trainguard.ports import NodeTask, Services, Timing
from trainguard.records import JobRecord, StreamKey

SILENT_S = 300.0
"""A node that waits this long on S3's clock waits for an object that does not come."""

TICK_S = 60.0

DESCRIBE_AFTER_S = 600.0
"""A job whose every node is silent for this long may have ended without an event that says so."""

ABANDONED_S = 86_400.0
"""A job that SageMaker does not know, and that writes nothing for this long, has ended."""


LONG_SILENT_S = 1_200.0
"""After this long a job is asked about in fewer ticks: it may wait for its instances, or write nothing."""

DOUBTED_EVERY = 5
"""In every so many ticks SageMaker is asked about a job that has long been silent, or that was met without it."""

MOST_DOUBTED = 100
"""So many of the active jobs have their turn in one tick, and the turns come more rarely when there are many jobs.

SageMaker answers a few calls in a second, and one account's share is for all who ask.
"""

TOUCH_S = 60.0
"""A job whose watermark moved by less has no news for its LastObjectAt."""


@dataclass(frozen=True, slots=True)
class TickOutcome:
    """What one tick did: jobs looked at, jobs that failed (with the reason), tasks sent."""

    jobs: int
    failed: dict[str, str]
    tasks: int


class Tick:
    """Looks after every active job."""

    def __init__(self, *, services: Services, timing: Timing, families: Families) -> None:
        self._services = services
        self._families = families
        self._timing = timing
        self._summariser = Summariser(services=services, timing=timing, families=families)
        self._registry = JobRegistry.of(services, timing.now)

    def run(self) -> TickOutcome:
        """Look after every active job; one that fails is counted and left to the next tick.

        Each tick begins with another job, so that none is always the one for which there is no time.
        """
        failed: dict[str, str] = {}
        tasks = 0
        names = self._services.jobs.active()
        first = int(self._timing.now() // TICK_S) % max(len(names), 1)
        names = [*names[first:], *names[:first]]
        every = max(DOUBTED_EVERY, ceil(len(names) / MOST_DOUBTED))
        for name in names:
            if not self._timing.has_time():
                self._services.journal.count("ticks_unfinished", reason=f"no time for job {name} and those after it")
                break
            try:
                tasks += self._look_after(name, every)
            except Exception as error:
                # Whatever is wrong with one job, the others must be looked after.
                failed[name] = f"{type(error).__name__}: {error}"
                self._services.journal.count("tick_failures", job=name, reason=failed[name])
        if names:
            self._services.journal.count("active_jobs", len(names))
        return TickOutcome(len(names), failed, tasks)

    def _look_after(self, name: str, doubted_every: int) -> int:
        job = self._services.jobs.load(name)
        if job is None or not job.active:
            return 0
        if job.generation:
            clear_stale_state(job, self._services, self._families, now=self._timing.now())
        if not job.policy.evaluated:
            return 0
        summary = self._summariser.summarise(job)
        self._touch(job, summary.streams.watermark_s)
        if summary.finished:
            return 0
        for rule, episode in summary.assessment.ended.items():
            self._services.jobs.raise_episode(job.job, rule, episode, generation=job.generation)
        tasks = self._wake(job, summary.streams)
        self._services.tasks.send(tasks)
        return len(tasks) + self._reconcile(job, summary.streams, doubted_every)

    def _touch(self, job: JobRecord, watermark_s: float | None) -> None:
        """Let the job's item say how far its profile goes, at most once a minute of it."""
        if watermark_s is not None and (job.last_object_at is None or watermark_s - job.last_object_at >= TOUCH_S):
            self._services.jobs.touch(job.job, watermark_s)

    def _wake(self, job: JobRecord, streams: JobStreams) -> Sequence[NodeTask]:
        """Return tasks for nodes that have been silent: to close, or to apply what waits."""
        now = self._timing.now()
        if job.closing and missing_streams(job, streams, self._families):
            self._begin_close(job)
        silent = [key for key in streams.records if _is_due(self._silent_for(streams, key, now))]
        if job.closing:
            return [close_task(job, key) for key in silent if not streams.records[key].closed]
        return [
            NodeTask(key.job, key.node, key.stream, "flush", now - SILENT_S, job.generation)
            for key in silent
            if streams.records[key].pending
        ]

    def _silent_for(self, streams: JobStreams, key: StreamKey, now: float) -> float:
        watched = streams.state.watched.get(key.node_kind)
        return 0.0 if watched is None else now - watched.since

    def _reconcile(self, job: JobRecord, streams: JobStreams, doubted_every: int) -> int:
        """Ask about a job that has gone silent: the event that says that it ended may be lost.

        A job outside SageMaker that never says that it has ended has ended when it writes nothing for a day. One that
        SageMaker has come to know meanwhile is registered anew, or closed when its profile belongs elsewhere.
        """
        now = self._timing.now()
        silence = min(self._silent_for(streams, key, now) for key in streams.records or [streams.own.key])
        if job.closing or (streams.records and silence < DESCRIBE_AFTER_S and not job.is_outside):
            return 0
        if (job.is_outside or silence >= LONG_SILENT_S) and not _is_turn(job.job, now, doubted_every):
            return 0
        root = job.root
        description = KnownJobs(self._services, bucket=job.bucket, root=root).describe(root.job)
        if is_anothers(job, description):
            self._begin_close(job)
            return 1
        known = self._registry.recognise(job, description)
        described = with_description(known, description)
        outside = description is None or description.is_outside
        abandoned = outside and silence >= ABANDONED_S
        if (described.status.is_final and described.policy.evaluated) or abandoned:
            self._begin_close(described)
            return 1
        if described != known:
            self._services.jobs.update_status(described)
        return 0

    def _begin_close(self, job: JobRecord) -> None:
        services = self._services
        now = self._timing.now()
        begin_close(job, self._families, jobs=services.jobs, nodes=services.nodes, tasks=services.tasks, now=now)


def _is_turn(job: str, now: float, every: int) -> bool:
    """Whether this tick asks about the job: each tick about other ones."""
    return (int(now // TICK_S) + crc32(job.encode())) % every == 0


def _is_due(silent_s: float) -> bool:
    """Whether a node has been silent for five minutes, or for another five: a failing task is not sent each minute."""
    return silent_s >= SILENT_S and silent_s % SILENT_S < TICK_S
