"""The files of a report in the order in which they are written: whoever finds the last one finds the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainguard.core.errors import ReportPageError, UnknownJobError
from trainguard.core.links import REPORT_JSON, REPORT_PAGE
from trainguard.core.stores import Jobs, NodeStates
from trainguard.engine.streams.session import items_of
from trainguard.report.document import Report, encode_document
from trainguard.report.job.build import BuiltReport, build_report
from trainguard.report.timeline.digest import NodeDigest
from trainguard.report.training.digest import TrainingDigest
from trainguard.report.training.xgboost_files import xgboost_files

XGBOOST_PAGE = "xgboost_report.html"
CONTENT_TYPES = {".json": "application/json", ".html": "text/html; charset=utf-8"}


def report_files(built: BuiltReport, *, page: bool = True) -> dict[str, bytes]:
    """Return the files of a report by name, ``report.json`` last; ``page`` is whether to make ``report.html`` too.

    Raises ReportPageError when the page cannot be made; it holds the other files, so that they can be written before.
    """
    document = encode_document(built.report)
    data = {**built.managed, **_xgboost_data(built.report)}
    if not page:
        return {**data, REPORT_JSON: document}
    try:
        pages = {**_xgboost_page(built.report), REPORT_PAGE: _render(built.report)}
    except Exception as fault:
        # Whatever a page fails of, the numbers are made and must not be lost for it.
        raise ReportPageError(built.report.job.name, fault, {**data, REPORT_JSON: document}) from fault
    return {**data, **pages, REPORT_JSON: document}


def training_files(report: Report) -> dict[str, bytes]:
    """Return the files of a report's training beside its own: data and page on a model of XGBoost, else none."""
    return {**_xgboost_data(report), **_xgboost_page(report)}


def content_type(name: str) -> str:
    """Return the media type for S3 and browsers; KeyError for a file that no report has."""
    return CONTENT_TYPES[name[name.rindex(".") :]]


def _xgboost_data(report: Report) -> dict[str, bytes]:
    return {} if report.training is None else xgboost_files(report.training)


def _xgboost_page(report: Report) -> dict[str, bytes]:
    if report.training is None or report.training.model is None:
        return {}
    from trainguard.report.html.training.xgboost_sections import render_xgboost  # noqa: PLC0415 -- as in _render

    return {XGBOOST_PAGE: render_xgboost(report.training, report.job.name).encode()}


def _render(report: Report) -> bytes:
    from trainguard.report.html.render import render_report  # noqa: PLC0415 -- JSON alone takes no templates

    return render_report(report).encode()


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
        """Write the report of a job, ``report.json`` last; ``now`` is in epoch seconds.

        Raises UnknownJobError when the tables do not know the job; ReportPageError when the page could not be made,
        after all other files are written.
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
