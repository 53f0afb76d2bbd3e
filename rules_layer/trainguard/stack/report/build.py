"""A job's report as the stack makes it: from state seconds after a fire, and with time lines from a run's parts."""

from trainguard.core.errors import UnknownJobError
from trainguard.core.links import report_links
from trainguard.core.ports import ReportObjects
from trainguard.core.records import JobRecord
from trainguard.core.stores import Jobs, NodeStates
from trainguard.engine.streams.session import items_of
from trainguard.report.job.build import build_report
from trainguard.report.job.files import write_report
from trainguard.stack.report.gather import PartsGatherer
from trainguard.stack.report.order import RunOrder
from trainguard.stack.report.plan import require_state


class StackReports:
    """Writes reports, and deletes what they were made of."""

    def __init__(self, *, jobs: Jobs, nodes: NodeStates, objects: ReportObjects) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._objects = objects
        self._parts = PartsGatherer(objects=objects)
        self._order = RunOrder(objects=objects)

    def of_fire(self, name: str, *, now: float) -> tuple[str, int]:
        """Write the report as `from_state` does, unless the full report was started before."""
        job = self._job(name)
        return self.from_state(name, now=now) if job.active else (_page(job), 0)

    def from_state(self, name: str, *, now: float) -> tuple[str, int]:
        """Write the report of a job's state; return its page's place and of how many files it is.

        Raises UnknownJobError, and StateGoneError when the state has expired.
        """
        job = self._job(name)
        items = items_of(job, self._nodes)
        require_state(job, items)
        return _page(job), write_report(self._objects, job, build_report(job, items, now=now))

    def full(self, name: str, run: str, *, now: float) -> tuple[str, int]:
        """Write a report with a run's time lines, unless a later run has one; UnknownJobError, ReportPartError."""
        job = self._job(name)
        gathered = self._parts.gather(job, run)
        if not self._order.may_write(job, run):
            return _page(job), 0
        items = items_of(job, self._nodes)
        built = build_report(job, items, now=now, digests=gathered.digests, missing=gathered.missing)
        if gathered.training is not None:
            built = built.with_training(gathered.training)
        return _page(job), write_report(self._objects, job, built)

    def drop(self, name: str, run: str, *, now: float) -> int:
        """Delete a run's parts, and those of cut-off runs; return how many files. Raises UnknownJobError."""
        return self._parts.drop(self._job(name), run, now=now)

    def _job(self, name: str) -> JobRecord:
        job = self._jobs.load(name)
        if job is None:
            raise UnknownJobError(name)
        return job


def _page(job: JobRecord) -> str:
    return report_links(job=job.job, arn=job.arn, bucket=job.bucket, prefix=job.prefix).page
