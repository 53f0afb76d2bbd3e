"""Writes a job's report beside its profile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainguard.engine.streams.state_items import items_of
from trainguard.errors import ReportPageError, UnknownJobError
from trainguard.links import REPORT_JSON
from trainguard.report.build import build_report
from trainguard.report.files import content_type, report_files
from trainguard.report.training.digest import TrainingDigest
from trainguard.stores import Jobs, NodeStates
from trainguard.timeline.digest import NodeDigest


class Puts(Protocol):
    """Where files are put: the part of ProfileObjects that a writer needs."""

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        """Write an object whole."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """Where ``report.json`` lies, and of how many files the report is."""

    uri: str
    files: int


class ReportWriter:
    """Builds reports from the stored state; a repeat overwrites them by what is true then."""

    def __init__(self, *, jobs: Jobs, nodes: NodeStates, objects: Puts) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._objects = objects

    def write(
        self,
        name: str,
        *,
        now: float,
        digests: Sequence[NodeDigest] = (),
        missing: Sequence[str] = (),
        training: TrainingDigest | None = None,
    ) -> WrittenReport:
        """Write the report of a job.

        ``report.json`` is written last: whoever finds it finds the rest.

        Parameters
        ----------
        name : str
        now : float
            Epoch seconds.
        digests, missing
            As `build_report` takes them.
        training : TrainingDigest or None
            What its tensors show.

        Raises
        ------
        UnknownJobError
            When the tables do not know the job.
        ReportPageError
            When the page could not be made; all other files are written then.
        """
        job = self._jobs.load(name)
        if job is None:
            raise UnknownJobError(name)
        built = build_report(job, items_of(job, self._nodes), now=now, digests=digests, missing=missing)
        if training is not None:
            built = built.with_training(training)
        place = job.root.report
        try:
            files = report_files(built)
        except ReportPageError as fault:
            put_files(self._objects, job.bucket, place, fault.files)
            raise
        put_files(self._objects, job.bucket, place, files)
        return WrittenReport(f"s3://{job.bucket}/{place}{REPORT_JSON}", len(files))


def put_files(objects: Puts, bucket: str, prefix: str, files: Mapping[str, bytes]) -> None:
    """Put a report's files below a prefix, in their order."""
    for name, body in files.items():
        objects.put(bucket, prefix + name, body, content_type(name))
