"""The canary as a training job of SageMaker's own: created with its tags, looked at, stopped, and seen to have ended.

A fire decides on its stop as on any job that opted in, in dry run by the job's own tag. The canary then stops the job
itself, with a role that reaches no other, so that SageMaker's event of the end has to come. A mark that the function
writes before it creates the job says that it is no owner's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from trainguard.core.canary_name import canary_name, planted_at
from trainguard.core.records import JobRecord, JobStatus
from trainguard.engine.settings.tag_names import NAMESPACE, PROFILE_TAG, STOP_ALLOWED, STOP_TAG
from trainguard.stack.actions.stop_switch import StopSwitches
from trainguard.stack.canary import (
    LOOKED_AFTER_MINUTES,
    MINUTE_S,
    NOT_PLANTED,
    RULE,
    SETTINGS,
    Canary,
    CanaryVerdict,
    canary_objects,
    grade_canary,
    is_fresh,
)

# SageMaker ends the job a few minutes after the look, should nobody have stopped it.
JOB_LIMIT_S = (LOOKED_AFTER_MINUTES + 5) * 60


class CanaryJobs(Protocol):
    """SageMaker's jobs of the canary, and the mark of the newest one; all methods raise PortUnavailableError."""

    def marked(self) -> str:
        """Return the job that was marked last, another text where there was none."""

    def mark(self, job: str) -> None:
        """Let a job be the canary's own."""

    def create(self, job: str, tags: Mapping[str, str]) -> str | None:
        """Create a job, unless it is there; return why SageMaker refuses, None for success."""

    def status(self, job: str) -> tuple[JobStatus, str] | None:
        """Return a job's status and why it failed; None where SageMaker does not know it."""

    def stop(self, job: str) -> None:
        """Have SageMaker stop a job that is in progress."""


def job_tags(bucket: str) -> dict[str, str]:
    """Return the tags of a job: its settings, the opt-in to stops, in dry run, and where its profile lies.

    SageMaker's own profiler is off: it would write minutes of its own beside these.
    """
    choices = {name: str(value) for name, value in SETTINGS.items() if name != "rule_to_invoke"}
    choices |= {"stop-rules": RULE, "stop-dry-run": "true"}
    named = {f"{NAMESPACE}{name}": value for name, value in choices.items()}
    return {**named, STOP_TAG: STOP_ALLOWED, PROFILE_TAG: f"s3://{bucket}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCanary(Canary):
    """Plants a job that SageMaker knows, and checks and ends it; ``switches`` says what the stack forbids of stops."""

    own: CanaryJobs
    switches: Callable[[], StopSwitches]

    def plant(self, at: float, run: str) -> str | None:
        """Create the job of ``at``, and write its profile; None, and counted, where SageMaker refuses it.

        A repeat makes no second job. One that still runs since the canary before is stopped, and counted as a failure.
        """
        job = canary_name(at, run)
        earlier = self.own.marked()
        if planted_at(earlier) is not None and earlier != job and self._stop(earlier):
            self._count_failure(earlier, "it still ran when the next canary was planted, and was stopped then")
        self.own.mark(job)
        refusal = self.own.create(job, job_tags(self.bucket))
        if refusal is not None:
            self._count_failure(job, f"SageMaker refused its job: {refusal}")
            return None
        self._write(job, canary_objects(at, run, in_sagemaker=True))
        return job

    def look(self, at: float) -> CanaryVerdict:
        """Return the verdict on the job that is marked, count it, and stop the job; one too young to pass goes on."""
        # A class with slots is made twice: `super()` would name the first.
        verdict = super(JobCanary, self).look(at)
        planted = planted_at(verdict.job or "")
        if verdict.job and planted is not None and (verdict.passed or at - planted >= LOOKED_AFTER_MINUTES * MINUTE_S):
            self._stop(verdict.job)
        return verdict

    def end(self, at: float) -> CanaryVerdict:
        """Return whether the job has ended, and its item is closed with that status; count what it lacks."""
        job = self.own.marked()
        if not is_fresh(job, at):
            verdict = CanaryVerdict(None, NOT_PLANTED, None)
        else:
            self._stop(job)
            verdict = CanaryVerdict(job, tuple(_not_ended(self.own.status(job), self.jobs.load(job))), None)
        if verdict.missing:
            self._count_failure(job, "; ".join(verdict.missing))
        return verdict

    def _verdicts(self, at: float) -> list[CanaryVerdict]:
        job = self.own.marked()
        if not is_fresh(job, at):
            return [CanaryVerdict(None, NOT_PLANTED, None)]
        forbidden = self.switches().objection(job=job, rule=RULE, now=at)
        return [
            grade_canary(
                job,
                planted_at(job) or 0.0,
                self.rows.load(job, RULE),
                self.jobs.load(job),
                self._keys(),
                decisions=("dry-run",) if forbidden is None else ("refused",),
                of_job=partial(_not_followed, self.own.status(job)),
            )
        ]

    def _stop(self, job: str) -> bool:
        """Stop a job that is in progress; return whether it was."""
        found = self.own.status(job)
        if found is None or found[0] is not JobStatus.IN_PROGRESS:
            return False
        self.own.stop(job)
        return True

    def _count_failure(self, job: str, reason: str) -> None:
        self.journal.count("canary_failed", job=job, reason=reason)


def _not_followed(found: tuple[JobStatus, str] | None, record: JobRecord | None) -> list[str]:
    """Return what the item of a running job lacks."""
    if found is None:
        return ["SageMaker does not know its job"]
    status, why = found
    if status in {JobStatus.FAILED, JobStatus.COMPLETED}:
        return [f"its job is {status}, not {JobStatus.IN_PROGRESS}: {why or 'it ended by itself'}"]
    if record is None or record.is_outside:
        return ["its item is not that of SageMaker's job"]
    missing = []
    if not record.canary:
        missing.append("its item does not have the canary's mark")
    if not record.stop_allowed:
        missing.append("its item does not have the opt-in of the job's tag")
    if status is JobStatus.IN_PROGRESS and record.status is not status:
        missing.append(f"its item says {record.status}, SageMaker {status}")
    return missing


def _not_ended(found: tuple[JobStatus, str] | None, record: JobRecord | None) -> list[str]:
    """Return what a stopped job lacks of its end, at SageMaker and in its item."""
    if found is None:
        return ["SageMaker does not know its job"]
    status, why = found
    missing = []
    if status is not JobStatus.STOPPED:
        missing.append(f"its job is {status}, not {JobStatus.STOPPED}" + (f": {why}" if why else ""))
    if record is None or record.status is not status:
        missing.append(f"its item says {'nothing' if record is None else record.status}, SageMaker {status}")
    if record is not None and record.active:
        missing.append("its item was not closed")
    return missing
