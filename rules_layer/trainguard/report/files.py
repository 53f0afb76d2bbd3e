"""The files of a report, in the order in which they are to be written: whoever finds the last one finds the rest."""

from trainguard.errors import ReportPageError
from trainguard.links import REPORT_JSON, REPORT_PAGE
from trainguard.report.build import BuiltReport
from trainguard.report.document import Report
from trainguard.report.encode import encode_document
from trainguard.report.training.xgboost_files import xgboost_files

XGBOOST_PAGE = "xgboost_report.html"
CONTENT_TYPES = {".json": "application/json", ".html": "text/html; charset=utf-8"}


def report_files(built: BuiltReport, *, page: bool = True) -> dict[str, bytes]:
    """Return the files of a report by their names under the report's prefix, ``report.json`` last.

    Parameters
    ----------
    built : BuiltReport
    page : bool
        Whether to make ``report.html`` too.

    Raises
    ------
    ReportPageError
        When the page cannot be made; it holds the other files, so that they can be written before it is raised on.
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
    from trainguard.report.html.training.xgboost_page import render_xgboost  # noqa: PLC0415 -- as in _render

    return {XGBOOST_PAGE: render_xgboost(report.training, report.job.name).encode()}


def _render(report: Report) -> bytes:
    from trainguard.report.html.render import render_report  # noqa: PLC0415 -- JSON alone takes no templates

    return render_report(report).encode()
