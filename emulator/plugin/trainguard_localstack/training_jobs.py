"""SageMaker training jobs, in memory: a job starts when it is created, and runs until it is stopped or finished."""

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

FinalStatus = Literal["Completed", "Failed"]

_STATUS_MESSAGES: Final = {
    "Starting": "Preparing the instances for training",
    "Training": "Training image download completed. Training in progress.",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
}


class TrainingJobError(Exception):
    """SageMaker refuses a request; `code` and the message are those of AWS."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class JobKey:
    account: str
    region: str
    name: str

    @property
    def arn(self) -> str:
        return f"arn:aws:sagemaker:{self.region}:{self.account}:training-job/{self.name}"


@dataclass(slots=True)
class Job:
    """A job: the response of DescribeTrainingJob, and its tags."""

    key: JobKey
    description: dict[str, Any]
    tags: dict[str, str] = field(default_factory=dict)


class TrainingJobs:
    """All training jobs of the emulator; ``on_change`` is called in the thread that changed a job's status."""

    def __init__(self, *, now: Callable[[], datetime], on_change: Callable[[Job], None]) -> None:
        self._now = now
        self._on_change = on_change
        self._lock = threading.Lock()
        self._jobs: dict[JobKey, Job] = {}
        self._began: dict[JobKey, datetime] = {}

    def backdate(self, key: JobKey, began: datetime) -> None:
        """Let the job that is created next under this name have been created, and have begun to train, at ``began``."""
        with self._lock:
            self._began[key] = began

    def create(self, key: JobKey, request: Mapping[str, Any]) -> None:
        """Create a job, which starts at once; raises TrainingJobError ``ResourceInUse`` for a used name."""
        description = copy.deepcopy({name: value for name, value in request.items() if name != "Tags"})
        description |= {"TrainingJobArn": key.arn, "SecondaryStatusTransitions": []}
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags") or []}
        with self._lock:
            if key in self._jobs:
                raise TrainingJobError(
                    "ResourceInUse",
                    "Training job names must be unique within an AWS account and region, and a training job with "
                    f"this name already exists ({key.arn})",
                )
            began = self._began.pop(key, None)
            description["CreationTime"] = began or self._now()
            job = self._jobs[key] = Job(key, description, tags)
            changes = [self._move(job, "InProgress", "Starting")]
            description["TrainingStartTime"] = began or self._now()
            changes.append(self._move(job, "InProgress", "Training"))
        self._tell(changes)

    def describe(self, key: JobKey) -> dict[str, Any]:
        """Return the DescribeTrainingJob response; raises TrainingJobError ``ValidationException`` without the job."""
        with self._lock:
            return copy.deepcopy(self._find(key).description)

    def request_stop(self, key: JobKey) -> None:
        """Let a running job go to ``Stopping``, which `complete_stop` ends; raises TrainingJobError."""
        with self._lock:
            job = self._find(key)
            self._require_running(job)
            changes = [self._move(job, "Stopping", "Stopping")]
        self._tell(changes)

    def complete_stop(self, key: JobKey) -> None:
        """Let a job that is stopping be ``Stopped``."""
        with self._lock:
            job = self._find(key)
            job.description["TrainingEndTime"] = self._now()
            changes = [self._move(job, "Stopped", "Stopped")]
        self._tell(changes)

    def finish(self, key: JobKey, *, status: FinalStatus, reason: str | None = None) -> None:
        """End a running job; `reason` is the FailureReason of a failed one. Raises TrainingJobError."""
        with self._lock:
            job = self._find(key)
            self._require_running(job)
            job.description["TrainingEndTime"] = self._now()
            if status == "Failed":
                job.description["FailureReason"] = reason or "AlgorithmError: finished as failed"
            changes = [self._move(job, status, status)]
        self._tell(changes)

    def in_region(self, account: str, region: str) -> list[dict[str, Any]]:
        """Return the descriptions of all jobs of an account and region, in the order of their creation."""
        with self._lock:
            jobs = [job for key, job in self._jobs.items() if (key.account, key.region) == (account, region)]
            return [copy.deepcopy(job.description) for job in jobs]

    def tags(self, key: JobKey) -> dict[str, str]:
        """Return a copy of a job's tags; raises TrainingJobError without the job."""
        with self._lock:
            return dict(self._find(key).tags)

    def set_tags(self, key: JobKey, tags: Mapping[str, str]) -> dict[str, str]:
        """Add or replace tags of a job and return all that it has now."""
        with self._lock:
            job = self._find(key)
            job.tags.update(tags)
            return dict(job.tags)

    def delete_tags(self, key: JobKey, names: list[str]) -> None:
        """Remove tags from a job; those that it lacks are ignored, as on AWS."""
        with self._lock:
            job = self._find(key)
            for name in names:
                job.tags.pop(name, None)

    def _find(self, key: JobKey) -> Job:
        job = self._jobs.get(key)
        if job is None:
            raise TrainingJobError("ValidationException", "Requested resource not found.")
        return job

    @staticmethod
    def _require_running(job: Job) -> None:
        status = job.description["TrainingJobStatus"]
        if status != "InProgress":
            raise TrainingJobError(
                "ValidationException",
                f"The request was rejected because the training job is in status {status}.",
            )

    def _move(self, job: Job, status: str, secondary: str) -> Job:
        now = self._now()
        transitions = job.description["SecondaryStatusTransitions"]
        if transitions:
            transitions[-1]["EndTime"] = now
        transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": _STATUS_MESSAGES[secondary]})
        job.description |= {"TrainingJobStatus": status, "SecondaryStatus": secondary, "LastModifiedTime": now}
        return Job(job.key, copy.deepcopy(job.description), dict(job.tags))

    def _tell(self, changes: list[Job]) -> None:
        for change in changes:
            self._on_change(change)
