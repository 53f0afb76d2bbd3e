"""Evaluates each active job every minute although no object comes, each in its own invocation.

The scheduler asks for reconciliations; each is of one job: its summary, episodes that end, silent nodes, and an end of
which no event came.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from zlib import crc32

from trainguard.core.errors import PortUnavailableError, StateDamagedError, error_text
from trainguard.core.ports import Journal, ReconcileRequest, ReconcileRequests, Services, StreamTask, Timing
from trainguard.core.records import FIRST_FAMILY, JobRecord, StreamKey, StreamRecord
from trainguard.core.stores import Jobs
from trainguard.engine.diagnosis.case import Assessment
from trainguard.engine.family import Families
from trainguard.engine.jobs.job_description import is_anothers, with_description
from trainguard.engine.jobs.job_registry import JobRegistry, KnownJobs, recount
from trainguard.engine.jobs.lifecycle import (
    are_all_silent,
    clear_stale_state,
    close_task,
    pause,
    request_close,
    resume,
)
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.engine.streams.session import STREAM_SILENT_S
from trainguard.engine.summary import Summariser, missing_streams

SCHEDULE_S = 60.0

# A job is evaluated in every so many runs of the scheduler, and in each one while a rule is near a change.
SLOW_POLL_EVERY = 3

# Runs between two questions to SageMaker about a job that is long silent, or was met without SageMaker.
STALE_EVERY = 2 * SLOW_POLL_EVERY

# Jobs with a turn in one run: SageMaker answers a few calls a second, for the whole account.
MOST_STALE = 100

# Requests that are sent between two questions for the time that is left.
WAVE = 20


class Scheduler:
    """Asks that active jobs are reconciled: each time at those that are polled fast, at a third of the others."""

    def __init__(self, *, jobs: Jobs, requests: ReconcileRequests, timing: Timing, journal: Journal) -> None:
        self._jobs = jobs
        self._requests = requests
        self._timing = timing
        self._journal = journal

    def run(self) -> tuple[int, dict[str, str]]:
        """Send the due requests, invented names last; one that is not accepted waits for the job's next turn.

        Return the number of active jobs, and why no request was taken for some of them.
        """
        failed: dict[str, str] = {}
        polled_fast, polled_slowly = self._jobs.polled_fast(), self._jobs.polled_slowly()
        requests = self._due(sorted(polled_fast), sorted(polled_slowly))
        for start in range(0, len(requests), WAVE):
            if not self._timing.has_time():
                reason = f"no time for job {requests[start].job} and those after it"
                self._journal.count("scheduler_unfinished", reason=reason)
                break
            failed.update(self._requests.send(requests[start : start + WAVE]))
        for name, reason in failed.items():
            self._journal.count("reconcile_failures", job=name, reason=reason)
        jobs = len(polled_fast) + len(polled_slowly)
        if jobs:
            self._journal.count("active_jobs", jobs)
        return jobs, failed

    def _due(self, polled_fast: Sequence[str], polled_slowly: Sequence[str]) -> list[ReconcileRequest]:
        """Return the requests; SageMaker is asked in a multiple of the turns of slowly polled jobs."""
        now = self._timing.now()
        names = sorted({*polled_fast, *(name for name in polled_slowly if is_turn(name, now, SLOW_POLL_EVERY))})
        first = int(now // SCHEDULE_S) % max(len(names), 1)
        shares = ceil((len(polled_fast) + len(polled_slowly)) / MOST_STALE)
        every = STALE_EVERY if shares <= STALE_EVERY else SLOW_POLL_EVERY * ceil(shares / SLOW_POLL_EVERY)
        turned = [*names[first:], *names[:first]]
        # Anybody may invent a place's name, with an at sign: SageMaker's jobs come first.
        return [ReconcileRequest(name, now, every) for name in sorted(turned, key=lambda name: "@" in name)]


def is_turn(job: str, at: float, every: int) -> bool:
    """Whether the run at ``at``, epoch seconds, is the job's turn: one of ``every``, spread over jobs."""
    return (int(at // SCHEDULE_S) + crc32(job.encode())) % every == 0


# A job whose every node is silent for this long may have ended without an event that says so.
DESCRIBE_AFTER_S = 600.0

# A silent job that SageMaker does not know has ended after this; see `reopening`.
ABANDONED_S = 86_400.0

# After this a job is asked about less often: it may wait for its instances, or write nothing.
LONG_SILENT_S = 1_200.0

# A job whose watermark moved by less keeps its LastObjectAt.
TOUCH_S = 60.0


@dataclass(frozen=True, slots=True)
class ReconcileOutcome:
    """Number of tasks that a reconciliation sent, and its failure."""

    tasks: int = 0
    failed: str | None = None


class Reconciler:
    """Reconciles jobs, one at a time.

    A request has its scheduled time, whenever it is processed. Two may overlap: the job's own item is written only as
    it was read; an execution of a name starts once; rows, episodes, watermark and status move forward only; tasks are
    safe to repeat.
    """

    def __init__(self, *, services: Services, timing: Timing, families: Families) -> None:
        self._services = services
        self._families = families
        self._timing = timing

    def attempt(self, request: ReconcileRequest) -> ReconcileOutcome:
        """Reconcile a job; a failure says why, and the next scheduler run repeats it."""
        timing = replace(self._timing, now=lambda: request.at)
        try:
            with _no_collections():
                return ReconcileOutcome(_Reconciliation(request, self._services, timing, self._families).make())
        except Exception as error:
            return ReconcileOutcome(failed=error_text(error))

    def send(self, requests: Sequence[ReconcileRequest]) -> Mapping[str, str]:
        """Reconcile every job in this process; return, by job, why one failed."""
        outcomes = {request.job: self.attempt(request) for request in requests}
        return {job: outcome.failed for job, outcome in outcomes.items() if outcome.failed is not None}


class _Reconciliation:
    def __init__(self, request: ReconcileRequest, services: Services, timing: Timing, families: Families) -> None:
        self._request = request
        self._now = request.at
        self._services = services
        self._families = families
        self._summariser = Summariser(services=services, timing=timing, families=families)
        self._registry = JobRegistry(services, families, timing.now)
        # As described when a rule was about to fire, where that says that the job has ended.
        self._ended: JobRecord | None = None

    def make(self) -> int:
        job = self._services.jobs.load(self._request.job)
        if job is None or not job.active:
            return 0
        if job.generation:
            clear_stale_state(job, self._services, self._families, now=self._now)
        if not job.policy.evaluated:
            return 0
        self._poll(job)
        brake = self._services.brakes().on_evaluation(job.job, job.arn, job.canary, self._now)
        if brake is not None:
            pause(job, brake, self._services)
            return 0
        return self._evaluated(job)

    def _evaluated(self, job: JobRecord) -> int:
        if job.braked is not None:
            resumed = resume(job, self._services, self._now)
            self._services.tasks.send(resumed)
            if resumed:
                # Nodes that are judged at different times would look as if some had fallen silent.
                return len(resumed)
        try:
            assessment, finished = self._summariser.summarise(job, lambda: self._described(job))
        except StateDamagedError as fault:
            self._services.tasks.send([self._rebuild(job, fault)])
            raise
        streams = assessment.case.streams
        recount(job, streams, self._services.jobs)
        watermark_s = streams.watermark_s
        if watermark_s is not None and (job.last_object_at is None or watermark_s - job.last_object_at >= TOUCH_S):
            self._services.jobs.touch(job.job, watermark_s)
        if finished:
            return 0
        for rule, episode in assessment.ended.items():
            self._services.jobs.raise_episode(job.job, rule, episode, generation=job.generation)
        polled_fast = self._is_polled_fast(job, assessment)
        if polled_fast != job.polled_fast:
            self._services.jobs.set_fast_polling(job.job, polled_fast=polled_fast)
        tasks = self._tasks_for_silent(job, streams)
        self._services.tasks.send(tasks)
        return len(tasks) + self._reconcile(job, streams)

    def _described(self, job: JobRecord) -> JobRecord:
        """Return the job as it is described now: it may have ended without an event that says so."""
        description = KnownJobs(self._services, bucket=job.bucket, root=job.root).describe(job.root.job)
        if job.is_outside and description is not None and not description.is_outside:
            return job  # SageMaker lists it since this moment, see `_reconcile`
        is_gone = description is None and not job.is_outside
        described = replace(job, closing=True) if is_gone else with_description(job, description)
        if described.closing and not job.closing:
            self._ended = described
        return described

    def _rebuild(self, job: JobRecord, fault: StateDamagedError) -> StreamTask:
        """Return a task for the stream of a damaged item: whoever opens it for a task computes it again from S3."""
        key = StreamKey.parse(job.job, fault.item.removeprefix(f"{job.job}/"))
        if job.closing:
            return close_task(job, key)
        return StreamTask(key.job, key.node, key.stream, "flush", self._now - STREAM_SILENT_S, job.generation)

    def _poll(self, job: JobRecord) -> None:
        """Have the job's source polled; one that is not asked for now is asked for by the next run."""
        if not job.policy.source:
            return
        if self._services.polls is None:
            self._services.journal.count("sources_not_polled", job=job.job, reason="the stack reads no sources of jobs")
            return
        try:
            self._services.polls.ask(job.job, self._now)
        except PortUnavailableError as fault:
            self._services.journal.count("sources_not_polled", job=job.job, reason=str(fault))

    def _tasks_for_silent(self, job: JobRecord, streams: JobStreams) -> Sequence[StreamTask]:
        """Return tasks for silent nodes: to close, or to apply what waits."""
        if job.closing and missing_streams(job, streams, self._families):
            request_close(job, self._registry)
        silent = [
            key
            for key, record in streams.records.items()
            if self._is_due(job, self._silent_for(streams, key), _silent_after_s(job, record))
        ]
        stale = streams.due_for_listing(self._now)
        if job.closing:
            return [close_task(job, key) for key in silent if not streams.records[key].closed]
        return [
            StreamTask(key.job, key.node, key.stream, "flush", self._now - STREAM_SILENT_S, job.generation)
            for key in silent
            if streams.records[key].pending or key in stale or self._may_have_dropped(streams, key)
        ]

    @staticmethod
    def _is_due(job: JobRecord, silent_s: float, after_s: float) -> bool:
        """Whether a stream is silent just now, or for another five minutes: a failing task is not sent each minute."""
        looks_every_s = SCHEDULE_S if job.polled_fast else SLOW_POLL_EVERY * SCHEDULE_S
        return silent_s >= after_s and (silent_s - after_s) % STREAM_SILENT_S < looks_every_s

    def _may_have_dropped(self, streams: JobStreams, key: StreamKey) -> bool:
        """Whether messages of a silent node may have been dropped, whose objects nothing else would find."""
        is_open = not streams.records[key].closed
        return key.stream == "system" and is_open and self._silent_for(streams, key) < LONG_SILENT_S

    def _is_polled_fast(self, job: JobRecord, assessment: Assessment) -> bool:
        """Whether to evaluate the job each minute: something is near a change, waits, or falls silent."""
        streams = assessment.case.streams
        if job.closing or job.evaluation_every_s <= SCHEDULE_S or job.policy.source:
            return True
        if streams.records and min(self._silent_for(streams, key) for key in streams.records) >= LONG_SILENT_S:
            return False
        others = any(key.family != FIRST_FAMILY and not record.closed for key, record in streams.records.items())
        waits = any(record.pending for record in streams.records.values())
        return others or waits or assessment.near_threshold or self._falls_silent(job, streams)

    def _falls_silent(self, job: JobRecord, streams: JobStreams) -> bool:
        if not streams.records:
            return self._silent_for(streams, streams.job_item.key) < LONG_SILENT_S
        return any(
            _silent_after_s(job, record) - 2.0 * SCHEDULE_S <= self._silent_for(streams, key) < LONG_SILENT_S
            for key, record in streams.records.items()
            if not record.closed
        )

    def _silent_for(self, streams: JobStreams, key: StreamKey) -> float:
        watched = streams.state.watched.get(key.node_kind)
        return 0.0 if watched is None else self._now - watched.since

    def _reconcile(self, job: JobRecord, streams: JobStreams) -> int:
        """Ask about a job that has gone silent: the event of its end may be lost.

        A job outside SageMaker has ended when all its collectors are silent for ten minutes, and without collectors
        when it writes nothing for a day. One that SageMaker lists by now is registered again, or closed when its
        profile belongs elsewhere.
        """
        if self._ended is not None:
            request_close(self._ended, self._registry)
            return 1
        silence = min(self._silent_for(streams, key) for key in streams.records or [streams.job_item.key])
        if job.closing or (streams.records and silence < DESCRIBE_AFTER_S and not job.is_outside):
            return 0
        if (job.is_outside or silence >= LONG_SILENT_S) and not is_turn(
            self._request.job, self._now, self._request.stale_every
        ):
            return 0
        root = job.root
        description = KnownJobs(self._services, bucket=job.bucket, root=root).describe(root.job)
        if is_anothers(job, description):
            request_close(job, self._registry)
            return 1
        known = self._registry.adopt(job, description)
        described = with_description(known, description)
        outside = description is None or description.is_outside
        has_ended = described.status.is_final and described.policy.evaluated
        is_over = has_ended or (outside and silence >= ABANDONED_S)
        if not is_over and outside and silence >= DESCRIBE_AFTER_S:
            # Each node that a collector watched has ended or died: none is left to end the job.
            is_over = are_all_silent(self._services.objects, job.bucket, root, self._now)
        if is_over:
            request_close(described if has_ended else replace(described, left_at=self._now), self._registry)
            return 1
        if described != known:
            self._services.jobs.update_status(described)
        return 0


@contextmanager
def _no_collections() -> Iterator[None]:
    """Stop Python's search for cycles: it would take a sixth of the time of a job of 4,000 nodes."""
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()


def _silent_after_s(job: JobRecord, record: StreamRecord) -> float:
    """Return after how many seconds an item is silent: later where minutes wait to be evaluated."""
    may_wait = record.key.stream == "system" and not record.pending
    return STREAM_SILENT_S + (job.evaluation_every_s - SCHEDULE_S if may_wait else 0.0)


def scheduler_at_once(*, services: Services, timing: Timing, families: Families) -> Scheduler:
    """Return a scheduler that evaluates every active job itself, one after the other."""
    requests = Reconciler(services=services, timing=timing, families=families)
    return Scheduler(jobs=services.jobs, requests=requests, timing=timing, journal=services.journal)
