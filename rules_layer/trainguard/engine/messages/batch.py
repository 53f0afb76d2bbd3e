"""One batch of queue messages, from bodies to the ids of those that must be delivered again.

Messages are grouped by job and node. A node that fails takes its own messages back to the queue and no others; a
message that can never be used is counted, named and acknowledged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainguard.engine.evaluate import NodeEvaluator
from trainguard.engine.family import Families
from trainguard.engine.jobs.closing import begin_close
from trainguard.engine.jobs.job_description import with_description
from trainguard.engine.jobs.job_file import KnownJobs
from trainguard.engine.jobs.job_registry import Registrar, job_of_place
from trainguard.engine.messages.sqs_messages import JobRings, Message, Ring, sort_messages
from trainguard.engine.summary import Summariser
from trainguard.errors import PortUnavailableError, StateConflictError, TrainGuardError
from trainguard.ports import Services, Timing
from trainguard.records import JobRecord, JobStatus


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What one batch came to: ``failed`` message ids are to be delivered again, ``refused`` can never be used."""

    failed: tuple[str, ...]
    refused: tuple[str, ...]
    nodes: int


class BatchProcessor:
    """Processes batches against the services.

    Objects of another bucket than ``bucket`` are nobody's; ``shared`` is what sessions share from batch to batch.
    """

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
        self._has_time = timing.has_time
        self._evaluator = NodeEvaluator(services=services, timing=timing, families=families, shared=shared)
        self._summariser = Summariser(services=services, timing=timing, families=families)
        self._registrar = Registrar.of(services, timing.now)
        self._now = timing.now

    def process(self, messages: Iterable[Message]) -> BatchOutcome:
        """Process a batch; never raises for a message's or a node's sake."""
        jobs, refusals = sort_messages(messages, self._families)
        for refusal in refusals:
            self._journal.count(refusal.what, message_id=refusal.message_id, reason=refusal.reason)
        failed = [refusal.message_id for refusal in refusals if refusal.is_defect]
        for rings in jobs:
            try:
                failed.extend(self._process_job(rings))
            except Exception as error:
                # A defect of ours in one job; the others' messages must not come back for it.
                failed.extend(self._give_back(rings.message_ids, rings.job, None, error))
        return BatchOutcome(
            failed=tuple(failed),
            refused=tuple(refusal.message_id for refusal in refusals if not refusal.is_defect),
            nodes=sum(len(rings.nodes) for rings in jobs),
        )

    def _process_job(self, rings: JobRings) -> list[str]:
        everything = rings.message_ids
        try:
            job = self._job_of(rings)
        except TrainGuardError as error:
            return self._give_back(everything, rings.job, None, error)
        if job is None or not job.policy.evaluated:
            what, why = ("foreign_keys", _elsewhere(rings)) if job is None else ("not_evaluated", job.policy.why)
            self._journal.count(what, len(everything), job=rings.job, reason=why)
            return []
        if rings.source is None and rings.generation != job.generation:
            reason = "the task was made before SageMaker knew the job"
            self._journal.count("outdated_tasks", len(everything), job=rings.job, reason=reason)
            return []
        failed: list[str] = []
        if rings.ended or rings.told:
            try:
                job = self._follow(job, rings)
            except TrainGuardError as error:
                failed.extend(self._give_back([*rings.ended, *rings.told], rings.job, None, error))
        for ring in rings.nodes.values():
            failed.extend(self._process_node(job, ring))
        if not failed and (job.closing or any(ring.work.close for ring in rings.nodes.values())):
            try:
                self._summariser.summarise(replace(job, closing=True))
            except TrainGuardError as error:
                return self._give_back(everything, rings.job, None, error)
        return failed

    def _job_of(self, rings: JobRings) -> JobRecord | None:
        """Return the job's item; None for objects that lie elsewhere than the job's own, and for unknown tasks."""
        jobs = self._services.jobs
        if rings.source is None:
            return jobs.load(rings.job)
        bucket, root = rings.source
        if bucket != self._bucket:
            return None
        known = KnownJobs(self._services, bucket=bucket, root=root)
        if not (rings.nodes or rings.ended) and job_of_place(jobs, bucket, root) is None:
            file = known.told(rings.job)
            if file is None or file.file_fault is not None:
                return None
        told = bool(rings.ended or rings.told)
        job = replace(self._registrar, training_jobs=known).ensure(bucket=bucket, root=root, told=told)
        return job if job is not None and (job.bucket, job.prefix) == (bucket, root.prefix) else None

    def _follow(self, job: JobRecord, rings: JobRings) -> JobRecord:
        """Take in what is known of a job whose end mark or own file rang, and close it when it has ended.

        One process that ends early, a spot restart, or anybody who may write objects can leave a mark: a job that is
        said to be running is closed when that changes.
        """
        services = self._services
        known = KnownJobs(services, bucket=job.bucket, root=job.root)
        description = known.describe(job.root.job)
        if job.is_outside and description is not None and not description.is_outside:
            # SageMaker has come to know it this moment: the tick recognises it.
            return job
        described = with_description(job, description)
        said = JobStatus.UNKNOWN if description is None else description.status
        if (said.is_final and job.active) or (said is JobStatus.UNKNOWN and rings.ended):
            now = self._now()
            return begin_close(
                described, self._families, jobs=services.jobs, nodes=services.nodes, tasks=services.tasks, now=now
            )
        if described != job:
            services.jobs.update_status(described)
        return described

    def _process_node(self, job: JobRecord, ring: Ring) -> list[str]:
        node = ring.work.key.node_kind
        try:
            # The message names the folder, and the job's item says what that is called.
            work = replace(ring.work, key=replace(ring.work.key, job=job.job))
            done = self._has_time() and self._evaluator.evaluate(job, work)
        except TrainGuardError as error:
            return self._give_back(ring.message_ids, job.job, node, error)
        except Exception as error:
            # A defect of ours: the messages go back and end in the dead-letter queue, its neighbours go on.
            return self._give_back(ring.message_ids, job.job, node, error)
        if not done:
            self._journal.count("evaluations_unfinished", job=job.job, node=node)
            return list(ring.message_ids)
        return []

    def _give_back(self, message_ids: Sequence[str], job: str, node: str | None, error: Exception) -> list[str]:
        what = "evaluation_failures"
        if isinstance(error, PortUnavailableError):
            what = "port_failures"
        elif isinstance(error, StateConflictError):
            what = "state_conflicts_exhausted"
        self._journal.count(what, job=job, node=node, reason=f"{type(error).__name__}: {error}")
        return list(message_ids)


def _elsewhere(rings: JobRings) -> str:
    if rings.source is None:
        return f"a task names job {rings.job!r}, which is not known"
    bucket, root = rings.source
    return f"objects under s3://{bucket}/{root.prefix} name job {rings.job!r}, whose profile lies elsewhere"
