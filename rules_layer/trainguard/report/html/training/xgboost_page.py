"""``xgboost_report.html``: the sections on an XGBoost model as a page of their own."""

from trainguard.report.html.page import render_page
from trainguard.report.html.training.style import training_style
from trainguard.report.html.training.xgboost_sections import xgboost_sections
from trainguard.report.training.document import TrainingReport


def render_xgboost(training: TrainingReport, job: str) -> str:
    """Return the page: one file that needs nothing else.

    Parameters
    ----------
    training : TrainingReport
        Of a run of XGBoost; its texts may hold anything.
    job : str
        The job's name.
    """
    sections = xgboost_sections(training, with_loss=True)
    return render_page("xgboost_report.html.j2", styles=training_style(), training=sections, job=job)
