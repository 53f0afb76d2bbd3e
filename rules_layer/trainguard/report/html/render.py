"""``report.html`` of a report."""

from trainguard.report.document import Report
from trainguard.report.html.overview import overview_of
from trainguard.report.html.page import render_page
from trainguard.report.html.sections.build import sections_of
from trainguard.report.html.timelines import timelines_context


def render_report(report: Report) -> str:
    """Return the page of a report: one file that needs nothing else, and no script to be read.

    Parameters
    ----------
    report : Report
        Its texts may hold anything; they are shown, not run.
    """
    sections = sections_of(report)
    timelines = None if report.timelines is None else timelines_context(report.timelines)
    return render_page(
        "report.html.j2",
        styles="" if timelines is None else timelines.styles,
        script="" if timelines is None else timelines.scripts,
        report=report,
        overview=overview_of(report, sections),
        sections=sections,
        timelines=timelines,
    )
