"""``report.html`` of a report."""

from trainguard.report.document import Report
from trainguard.report.html.episodes import all_of, episodes_of
from trainguard.report.html.kernels.section import kernel_sections
from trainguard.report.html.ledger import ledger_view
from trainguard.report.html.overview import overview_of
from trainguard.report.html.page import render_page
from trainguard.report.html.picture import picture_of
from trainguard.report.html.scripts import joined_script
from trainguard.report.html.sections.build import sections_of
from trainguard.report.html.thresholds import thresholds_of
from trainguard.report.html.timelines import TimelinesContext, timelines_context
from trainguard.report.html.training.sections import training_sections
from trainguard.report.html.training.style import training_style
from trainguard.timestamps import epoch_of


def render_report(report: Report) -> str:
    """Return the page of a report: one file that needs nothing else, and no script to be read.

    Parameters
    ----------
    report : Report
        Its texts may hold anything; they are shown, not run.
    """
    sections = sections_of(report)
    episodes = episodes_of(report)
    timelines = report_timelines(report)
    kernels = [] if report.kernels is None else kernel_sections(report.kernels)
    styles = ("" if timelines is None else timelines.styles) + (
        "" if report.training is None and not kernels else training_style()
    )
    return render_page(
        "report.html.j2",
        styles=styles,
        script=joined_script() if timelines is None else timelines.scripts,
        report=report,
        overview=overview_of(report, sections),
        picture=picture_of(report, episodes),
        ledger=ledger_view(report),
        episodes=episodes,
        sections=sections,
        timelines=timelines,
        kernels=kernels,
        training=[] if report.training is None else training_sections(report.training),
    )


def report_timelines(report: Report) -> TimelinesContext | None:
    """Prepare the section of time lines; None of a report without them."""
    if report.timelines is None:
        return None
    started_at = report.job.started_at
    return timelines_context(
        report.timelines,
        started_at=None if started_at is None else epoch_of(started_at),
        episodes=all_of(episodes_of(report)),
        thresholds=thresholds_of(report.rules, [finding.rule for finding in report.findings]),
    )
