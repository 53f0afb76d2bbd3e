"""SageMaker's jobs of the canary in memory, seen by the engine of the same world."""

from collections.abc import Mapping
from dataclasses import replace

from tests.support.memory import Faulty, MemoryWorld
from trainguard.core.canary_name import CANARY_MARK
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobStatus
from trainguard.engine.settings.tag_names import PROFILE_TAG
from trainguard.stack.canary_job import CanaryJobs

ARN = "arn:aws:sagemaker:eu-west-1:111122223333:training-job/"


class _CanaryJobs:
    """What SageMaker does with them: a job is in progress at once, and stopped at once."""

    def __init__(self, *, world: MemoryWorld, now: float) -> None:
        self.now = now
        self.refusal: str | None = None
        self.created: list[str] = []
        self.stopped: list[str] = []
        self._world, self._marked = world, "none"
        self._found: dict[str, tuple[TrainingJobDescription, str]] = {}

    def marked(self) -> str:
        return self._marked

    def mark(self, job: str) -> None:
        self._marked = job
        self._world.settings.put(f"{self._world.settings.path}{CANARY_MARK}", job)

    def create(self, job: str, tags: Mapping[str, str]) -> str | None:
        if self.refusal is None and job not in self.created:
            self.created.append(job)
            described = TrainingJobDescription(
                job,
                f"{ARN}{job}",
                JobStatus.IN_PROGRESS,
                "Training",
                instance_count=1,
                created_at=self.now,
                tags=tags,
                profile_uri=tags[PROFILE_TAG],
                platform="sagemaker",
            )
            self._set(described, "")
        return self.refusal

    def status(self, job: str) -> tuple[JobStatus, str] | None:
        found = self._found.get(job)
        return None if found is None else (found[0].status, found[1])

    def stop(self, job: str) -> None:
        self.stopped.append(job)
        self.become(job, JobStatus.STOPPED)

    def become(self, job: str, status: JobStatus, why: str = "") -> None:
        """Let SageMaker say something else of a job."""
        self._set(replace(self._found[job][0], status=status, ended_at=self.now), why)

    def _set(self, described: TrainingJobDescription, why: str) -> None:
        self._found[described.job] = described, why
        self._world.training_jobs.set(described)


class MemoryCanaryJobs(Faulty, _CanaryJobs, port=CanaryJobs):
    """Twin of SageMakerCanaryJobs; ``refusal`` is why SageMaker creates no job."""

    def __init__(self, world: MemoryWorld, now: float) -> None:
        super().__init__(faults=world.faults, world=world, now=now)
