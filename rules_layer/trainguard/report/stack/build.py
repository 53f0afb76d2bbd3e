"""A job's report as the stack makes it: from state seconds after a fire, and with time lines from a run's parts."""

from trainguard.engine.streams.state_items import items_of
from trainguard.errors import UnknownJobError
from trainguard.links import report_links
from trainguard.ports import ReportObjects
from trainguard.records import JobRecord
from trainguard.report.stack.gather import PartsGatherer
from trainguard.report.stack.order import RunOrder
from trainguard.report.stack.plan import require_state
from trainguard.report.write import ReportWriter, WrittenReport
from trainguard.stores import Jobs, NodeStates


class StackReports:
    """Writes reports, and deletes what they were made of."""

    def __init__(self, *, jobs: Jobs, nodes: NodeStates, objects: ReportObjects) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._writer = ReportWriter(jobs=jobs, nodes=nodes, objects=objects)
        self._parts = PartsGatherer(objects=objects)
        self._order = RunOrder(objects=objects)

    def of_fire(self, name: str, *, now: float) -> WrittenReport:
        """Write the report of a job's state, as `from_state` does, unless TrainGuard is done with the job.

        Then the full report was started before, and is not to be replaced by less.
        """
        job = self._job(name)
        return self.from_state(name, now=now) if job.active else WrittenReport(_page(job), 0)

    def from_state(self, name: str, *, now: float) -> WrittenReport:
        """Write the report of a job's state.

        Raises
        ------
        UnknownJobError
            When the tables do not know the job.
        StateGoneError
            When the job's state has expired: a report of nothing would replace what is there.
        """
        job = self._job(name)
        require_state(job, items_of(job, self._nodes))
        written = self._writer.write(name, now=now)
        return WrittenReport(_page(job), written.files)

    def full(self, name: str, run: str, *, now: float) -> WrittenReport:
        """Write the report of a job with the time lines of a run's parts; a repeat writes it again.

        Nothing is written, and so no file counted, when a run that was planned later has one of its own.

        Raises
        ------
        UnknownJobError
            When the tables do not know the job.
        ReportPartError, ObjectMissingError
            When the run's list of items cannot be read.
        """
        job = self._job(name)
        gathered = self._parts.gather(job, run)
        if not self._order.may_write(job, run):
            return WrittenReport(_page(job), 0)
        written = self._writer.write(
            name, now=now, digests=gathered.digests, missing=gathered.missing, training=gathered.training
        )
        return WrittenReport(_page(job), written.files)

    def drop(self, name: str, run: str, *, now: float) -> int:
        """Delete a run's parts, and what runs that were cut off have left; return how many files there were.

        Raises UnknownJobError.
        """
        return self._parts.drop(self._job(name), run, now=now)

    def _job(self, name: str) -> JobRecord:
        job = self._jobs.load(name)
        if job is None:
            raise UnknownJobError(name)
        return job


def _page(job: JobRecord) -> str:
    return report_links(job=job.job, arn=job.arn, bucket=job.bucket, prefix=job.prefix).page
