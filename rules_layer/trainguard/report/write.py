"""Writes a job's report beside its profile."""

from dataclasses import dataclass

from trainguard.errors import UnknownJobError
from trainguard.ports import Jobs, NodeStates, ProfileObjects
from trainguard.report.build import REPORT_NAME, build_report
from trainguard.telemetry.keys import ProfileRoot

CONTENT_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """Where the report lies, and of how many files it is."""

    uri: str
    files: int


class ReportWriter:
    """Builds reports from the stored state; a repeat overwrites them by what is true then."""

    def __init__(self, *, jobs: Jobs, nodes: NodeStates, objects: ProfileObjects) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._objects = objects

    def write(self, name: str, *, now: float) -> WrittenReport:
        """Write the report of a job; ``now`` in epoch seconds.

        ``report.json`` is written last: whoever finds it finds the rest. Raises UnknownJobError.
        """
        job = self._jobs.load(name)
        if job is None:
            raise UnknownJobError(name)
        place = ProfileRoot(job.prefix, job.job).report
        files = build_report(job, self._nodes.of_job(name), now=now)
        for file in sorted(files, key=lambda file: (file == REPORT_NAME, file)):
            self._objects.put(job.bucket, place + file, files[file], CONTENT_TYPE)
        return WrittenReport(f"s3://{job.bucket}/{place}{REPORT_NAME}", len(files))
