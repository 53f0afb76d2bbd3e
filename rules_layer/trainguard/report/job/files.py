"""The files of a report in the order in which they are written: whoever finds the last one finds the rest."""

from collections.abc import Mapping

from trainguard.core.errors import ReportPageError
from trainguard.core.links import REPORT_JSON, REPORT_PAGE
from trainguard.core.ports import ProfileObjects
from trainguard.core.records import JobRecord
from trainguard.report.document import Report, encode_document
from trainguard.report.job.build import BuiltReport
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
        from trainguard.report.html.render import render_report  # noqa: PLC0415 -- JSON alone takes no templates

        pages = {**_xgboost_page(built.report), REPORT_PAGE: render_report(built.report).encode()}
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
    from trainguard.report.html.training.sections import render_xgboost  # noqa: PLC0415 -- JSON alone takes no templates

    return {XGBOOST_PAGE: render_xgboost(report.training, report.job.name).encode()}


def write_report(objects: ProfileObjects, job: JobRecord, built: BuiltReport) -> int:
    """Write a job's report, ``report.json`` last, and return of how many files it is; a repeat overwrites them.

    Raises ReportPageError when the page could not be made, after all other files are written.
    """
    try:
        files = report_files(built)
    except ReportPageError as fault:
        put_files(objects, job.bucket, job.root.report, fault.files)
        raise
    put_files(objects, job.bucket, job.root.report, files)
    return len(files)


def put_files(objects: ProfileObjects, bucket: str, prefix: str, files: Mapping[str, bytes]) -> None:
    for name, body in files.items():
        objects.put(bucket, prefix + name, body, content_type(name))
