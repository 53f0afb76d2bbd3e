"""A batch of queue messages, processed, each node by itself: load, apply, one conditional write, rows and fires.

A node that fails returns its own messages alone; failing half-way is safe.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from trainguard.core.errors import (
    PortUnavailableError,
    StateConflictError,
    TooManyNamesError,
    TrainGuardError,
    error_text,
)
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import Services, Timing
from trainguard.core.records import JobRecord, JobStatus, StreamRecord
from trainguard.engine.family import Families, ObjectSource
from trainguard.engine.jobs.job_description import profile_place, with_description
from trainguard.engine.jobs.job_registry import JobFolderIndex, JobRegistry, KnownJobs, check_stream, job_of_place
from trainguard.engine.jobs.lifecycle import open_streams, reopen, request_close
from trainguard.engine.messages import JobMessages, Message, StreamWork, sort_messages
from trainguard.engine.outbox import drain, enqueue, rule_row, unit_context
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.rule_runner import gone_rules
from trainguard.engine.streams.session import DELIVERY_COUNTERS, AnyStream, Applied, Session, expiry, item_of, opened
from trainguard.engine.summary import ATTEMPTS, Summariser
from trainguard.engine.verdicts.verdict import Fire, final


class BatchOutcome(NamedTuple):
    """The batch's result: ``failed`` message ids are delivered again, ``refused`` can never be used."""

    failed: tuple[str, ...]
    refused: tuple[str, ...]
    nodes: int


class BatchProcessor:
    def __init__(
        self,
        *,
        services: Services,
        timing: Timing,
        bucket: str,
        families: Families,
        shared: Mapping[str, object] | None = None,
    ) -> None:
        self._services = services
        self._families = families
        self._bucket = bucket
        self._journal = services.journal
        self._has_time, self._now = timing.has_time, timing.now
        self._evaluator = StreamEvaluator(services=services, timing=timing, families=families, shared=shared)
        self._summariser = Summariser(services=services, timing=timing, families=families)
        self._registry = JobRegistry(services, families, timing.now)

    def process(self, messages: Iterable[Message]) -> BatchOutcome:
        """Process a batch; never raises for a message's or a node's sake."""
        places = JobFolderIndex(self._services.jobs, self._bucket)
        jobs, refusals = sort_messages(messages, self._families, places.root_above)
        for refusal in refusals:
            self._journal.count(refusal.what, message_id=refusal.message_id, reason=refusal.reason)
        failed = [refusal.message_id for refusal in refusals if refusal.is_delivered_again]
        for job_messages in jobs:
            try:
                failed.extend(self._process_job(job_messages))
            except Exception as error:
                # A defect of TrainGuard in one job must not bring back the others' messages.
                failed.extend(self._give_back(job_messages.message_ids, job_messages.job, None, error))
        return BatchOutcome(
            failed=tuple(dict.fromkeys(failed)),
            refused=tuple(refusal.message_id for refusal in refusals if not refusal.is_delivered_again),
            nodes=sum(len(job_messages.nodes) for job_messages in jobs),
        )

    def _process_job(self, job_messages: JobMessages) -> list[str]:
        everything = job_messages.message_ids
        try:
            job = self._job_of(job_messages)
        except TooManyNamesError as error:
            self._journal.count("jobs_refused", len(everything), job=job_messages.job, reason=str(error))
            return []
        except TrainGuardError as error:
            return self._give_back(everything, job_messages.job, None, error)
        if job is None:
            self._journal.count("foreign_keys", len(everything), job=job_messages.job, reason=_elsewhere(job_messages))
            return []
        if (left := _left(job, job_messages)) is not None:
            what, why = left
            self._journal.count(what, len(everything), job=job_messages.job, reason=why)
            return []
        return self._evaluate_job(job, job_messages)

    def _evaluate_job(self, job: JobRecord, job_messages: JobMessages) -> list[str]:
        everything = job_messages.message_ids
        failed: list[str] = []
        if job_messages.ended or job_messages.job_files:
            try:
                job = self._follow(job, job_messages)
            except TrainGuardError as error:
                announced = [*job_messages.ended, *job_messages.job_files]
                failed = self._give_back(announced, job_messages.job, None, error)
        brake = self._services.brakes().on_evaluation(job.job, job.arn, job.canary, self._now())
        if brake is not None:
            self._journal.count("not_evaluated", len(everything), job=job.job, reason=brake.words)
            return failed
        for work in job_messages.nodes.values():
            failed.extend(self._process_node(job, work))
        if not failed and (job.closing or any(work.close for work in job_messages.nodes.values())):
            try:
                self._summariser.summarise(replace(job, closing=True))
            except TrainGuardError as error:
                return self._give_back(everything, job_messages.job, None, error)
        return failed

    def _job_of(self, job_messages: JobMessages) -> JobRecord | None:
        """Return the job's item, open again if it goes on; None for objects elsewhere and for unknown tasks."""
        jobs = self._services.jobs
        if job_messages.source is None:
            return jobs.load(job_messages.job)
        bucket, root = job_messages.source
        if bucket != self._bucket:
            return None
        known = KnownJobs(self._services, bucket=bucket, root=root)
        if not (job_messages.nodes or job_messages.ended) and job_of_place(jobs, bucket, root) is None:
            file = known.job_file_description(job_messages.job)
            if file is None or file.file_fault is not None:
                return None
        announced = bool(job_messages.ended or job_messages.job_files)
        job = self._registry.ensure(
            self._services.bookkeeping, bucket=bucket, root=root, known_jobs=known, announced=announced
        )
        if job is None or (job.bucket, job.prefix) != (bucket, root.prefix):
            return None
        return reopen(job, jobs=jobs, nodes=self._services.nodes) if job.goes_on(job_messages.written_at) else job

    def _follow(self, job: JobRecord, job_messages: JobMessages) -> JobRecord:
        """Update a job whose end mark or own file was announced; close it once its status is final."""
        services = self._services
        known = KnownJobs(services, bucket=job.bucket, root=job.root)
        description = known.describe(job.root.job)
        if job.is_outside and description is not None and not description.is_outside:
            # SageMaker lists it by now: the scheduler recognises it.
            return job
        described = with_description(job, description)
        if described.active and not job.active:
            open_streams(job, services.nodes)
        status = JobStatus.UNKNOWN if description is None else description.status
        if (status.is_final and described.active) or (status is JobStatus.UNKNOWN and job_messages.ended):
            return request_close(described, self._registry)
        if described != job:
            services.jobs.update_status(described)
        return described

    def _process_node(self, job: JobRecord, work: StreamWork) -> list[str]:
        node = work.key.node_kind
        try:
            # The message names the folder, the job's item the job.
            named = replace(work, key=replace(work.key, job=job.job))
            done = self._has_time() and self._evaluator.evaluate(job, named)
        except TooManyNamesError as error:
            self._journal.count("streams_refused", job=job.job, node=node, reason=str(error))
            return []
        except Exception as error:
            # After a defect of TrainGuard these messages end in the dead-letter queue, the others go on.
            return self._give_back(work.message_ids, job.job, node, error)
        if not done:
            self._journal.count("evaluations_unfinished", job=job.job, node=node)
            return list(work.message_ids)
        return []

    def _give_back(self, message_ids: Sequence[str], job: str, node: str | None, error: Exception) -> list[str]:
        what = "evaluation_failures"
        if isinstance(error, PortUnavailableError):
            what = "port_failures"
        elif isinstance(error, StateConflictError):
            what = "state_conflicts_exhausted"
        self._journal.count(what, job=job, node=node, reason=error_text(error))
        return list(message_ids)


def _left(job: JobRecord, job_messages: JobMessages) -> tuple[str, str] | None:
    """Return as what and why the messages of a known job are counted and left; None where they are processed."""
    if not job.policy.evaluated:
        return "not_evaluated", job.policy.why
    if job_messages.source is None and job_messages.generation != job.generation:
        return "outdated_tasks", "the task was made before SageMaker knew the job"
    return None


def _elsewhere(job_messages: JobMessages) -> str:
    if job_messages.source is None:
        return f"a task names job {job_messages.job!r}, which is not known"
    bucket, root = job_messages.source
    return f"objects under s3://{bucket}/{root.prefix} name job {job_messages.job!r}, whose profile lies elsewhere"


OBJECTS_PER_WRITE = 120

# A slower object is named in the log.
SLOW_OBJECT_S = 2.0

# A profile further behind was copied or is replayed: its age says nothing about how timely verdicts are.
LIVE_S = 6 * 3_600.0


class StreamEvaluator:
    def __init__(
        self, *, services: Services, timing: Timing, families: Families, shared: Mapping[str, object] | None = None
    ) -> None:
        self._families = families
        self._shared = families.share(services.objects) if shared is None else shared
        self._services = services
        self._nodes, self._journal = services.nodes, services.journal
        self._timing = timing

    def evaluate(self, job: JobRecord, work: StreamWork) -> bool:
        """Bring the node up to date; False when time ran out. Raises StateConflictError, TooManyNamesError."""
        for attempt in range(1, ATTEMPTS):
            try:
                return self._attempt(job, work)
            except StateConflictError:
                self._journal.count("state_conflicts", job=job.job, node=work.key.node_kind)
                self._timing.pause(attempt)
        return self._attempt(job, work)

    def _attempt(self, job: JobRecord, work: StreamWork) -> bool:
        plan = replace(self._families.plan(job), detailed=False)
        record = item_of(job, work.key, self._nodes)
        check_stream(job, record, self._services.jobs)
        record = drain(record, job, self._services)
        closing = work.close or job.closing
        family = self._families.of(work.key)
        objects, shared = self._services.objects, self._shared.get(family.name)
        source = ObjectSource(objects, job.bucket, job.root, family.object_cap_bytes, shared, self._place_of)
        session = opened(record, lambda record: family.open_session(record, source, plan), self._journal)
        is_first_delivery = not (closing or work.repeated or work.modified_before is not None)
        every_s, in_turn = job.evaluation_every_s, job.is_evaluated_in_turn
        if is_first_delivery and session.defers(
            work.messages, every_s=every_s, now=self._timing.now(), in_turn=in_turn
        ):
            return True
        session.announce(work.messages)
        ready = session.apply(drain=closing, modified_before=work.modified_before)
        while True:
            fires, exhausted = self._apply_some(session, ready, job)
            self._settle(session, fires, job=job, plan=plan, closed=closing and exhausted, repeated=work.repeated)
            if exhausted or not self._timing.has_time():
                return exhausted

    def _place_of(self, name: str) -> tuple[str, ProfileRoot] | None:
        description = self._services.training_jobs.describe(name)
        return None if description is None else profile_place(description)

    def _apply_some(self, session: Session[Any], ready: Iterator[Applied], job: JobRecord) -> tuple[list[Fire], bool]:
        fires: list[Fire] = []
        begun = self._timing.now()
        for count, applied in enumerate(ready, 1):
            ended = self._timing.now()
            if ended - begun >= SLOW_OBJECT_S:
                self._journal.count("slow_objects", job=job.job, key=applied.key, seconds=round(ended - begun, 3))
            begun = ended
            fires.extend(applied.fires)
            self._journal.count("objects_applied", job=job.job, node=session.record.key.node_kind)
            if applied.fault is not None:
                for name, amount in applied.tally.items():
                    self._journal.count(name, amount, job=job.job, key=applied.key, reason=applied.fault)
            if count == OBJECTS_PER_WRITE or not self._timing.has_time():
                return fires, False
        return fires, True

    def _settle(
        self, session: Session[Any], fires: list[Fire], *, job: JobRecord, plan: RulePlan, closed: bool, repeated: bool
    ) -> None:
        last = session.stream.finished() if closed else session.stream
        if closed:
            fires = [*fires, *last.finish()]
        before, has_changes = session.record, session.has_changes
        record = enqueue(session.to_record(closed=closed or before.closed), fires, job=job, plan=plan)
        if closed:
            record = replace(record, expires_at=expiry(last.state.watermark_s, self._timing.now()))
        if has_changes or record.unsent or _moved(record, before):
            record = self._nodes.save(record)
        if session.near_threshold and not job.polled_fast:
            self._services.jobs.set_fast_polling(job.job, polled_fast=True)
        for name, payload in session.requests:
            self._services.captures.start(name, payload)
        session.record = drain(record, job, self._services)
        self._report(before, record, closed=closed)
        for fault in session.stream.raised:
            self._journal.count("rule_errors", job=job.job, node=record.key.node_kind, reason=fault)
        self._publish(last, record, job=job, plan=plan, closed=closed, repeated=repeated)

    def _report(self, before: StreamRecord, record: StreamRecord, *, closed: bool) -> None:
        for name in ("gaps", *DELIVERY_COUNTERS):
            amount = record.counters.get(name, 0) - before.counters.get(name, 0)
            if amount:
                self._journal.count(name, amount, job=record.key.job, node=record.key.node_kind)
        if not closed and record.watermark_s is not None and record.watermark_s != before.watermark_s:
            lag = self._timing.now() - record.watermark_s
            if lag <= LIVE_S:
                self._journal.measure("evaluation_lag_seconds", max(lag, 0.0))

    def _publish(
        self, last: AnyStream, record: StreamRecord, *, job: JobRecord, plan: RulePlan, closed: bool, repeated: bool
    ) -> None:
        context = unit_context(job, plan, record, last, record.expires_at)
        wanted = None if closed or repeated else last.due
        verdicts = last.verdicts(closed=closed, of=wanted)
        if closed:
            verdicts = [final(verdict, last.state.watermark_s) for verdict in verdicts]
            verdicts.extend(gone_rules([last.state.stored_rules], plan))
        self._services.rows.publish([rule_row(context, verdict) for verdict in verdicts])
        last.due.clear()


def _moved(record: StreamRecord, before: StreamRecord) -> bool:
    return (record.state, record.closed, record.cursors) != (before.state, before.closed, before.cursors)
