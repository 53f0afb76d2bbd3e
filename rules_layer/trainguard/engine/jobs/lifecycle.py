"""What a training job's change of state leads to.

The event is a message here too: the job is described, and the description says what is. So events that come twice,
late or out of order do no harm, and a final status is never undone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from trainguard.engine.family import Families
from trainguard.engine.jobs.closing import begin_close
from trainguard.engine.jobs.job_description import is_another, lies_elsewhere, profile_place, with_description
from trainguard.engine.jobs.job_registry import JobRegistry
from trainguard.ports import Journal, TaskQueue, TrainingJobDescription, TrainingJobs
from trainguard.records import JobRecord
from trainguard.stores import Jobs, NodeStates


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Follows training jobs whose profile lies in ``bucket``."""

    jobs: Jobs
    nodes: NodeStates
    tasks: TaskQueue
    training_jobs: TrainingJobs
    journal: Journal
    bucket: str
    registry: JobRegistry
    families: Families

    def follow(self, job: str) -> JobRecord | None:
        """Bring the job's item up to date, and close its streams when it has ended; None for a job that is not ours."""
        description = self.training_jobs.describe(job)
        if description is None:
            self.journal.count("unknown_jobs", job=job, reason="SageMaker does not know it")
            return None
        known = self._known(description)
        if known is None:
            self.journal.count("jobs_elsewhere", job=job, reason=f"its profile is not in bucket {self.bucket}")
            return None
        if is_another(known, description):
            reason = "SageMaker gave the name to a later job, which is not followed"
            self.journal.count("names_given_again", job=job, reason=reason)
        current = with_description(known, description)
        if current.status.is_final and current.active:
            return self._close(current)
        if current != known:
            self.jobs.update_status(current)
        return current

    def _known(self, description: TrainingJobDescription) -> JobRecord | None:
        """Return the job's item; None for a job whose profile is not in the bucket.

        What was met under the name of such a job before SageMaker knew it is none of its, and is closed.
        """
        stored = self.jobs.load(description.job)
        if stored is None:
            place = profile_place(description)
            if place is None or place[0] != self.bucket:
                return None
            bucket, root = place
            return self.registry.register(description, bucket=bucket, root=root)
        if not stored.is_outside or not lies_elsewhere(description, stored.bucket):
            return self.registry.recognise(stored, description)
        if stored.active:
            self._close(stored)
        return None

    def _close(self, job: JobRecord) -> JobRecord:
        now = self.registry.now()
        return begin_close(job, self.families, jobs=self.jobs, nodes=self.nodes, tasks=self.tasks, now=now)


class _Detail(msgspec.Struct):
    TrainingJobName: str


class _StateChange(msgspec.Struct):
    detail: _Detail


def job_of(event: Mapping[str, Any], journal: Journal) -> str | None:
    """Return the job of a state change event; an event of another shape is counted, named and None."""
    try:
        return msgspec.convert(event, _StateChange).detail.TrainingJobName
    except (msgspec.ValidationError, UnicodeError) as fault:
        journal.count("malformed_events", reason=f"{fault}, expected a training job's state change")
        return None
