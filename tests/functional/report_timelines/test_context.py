"""The time lines of days and of many nodes."""

from collections.abc import Callable

import pytest

from tests.support.report_samples import bad_report, day_report, large_report
from tests.unit.report_timelines.test_context import timelines_of
from trainguard.report.document import Report
from trainguard.report.html.page import environment
from trainguard.report.html.render import report_timelines
from trainguard.report.html.timelines import timelines_context


def test_page_of_a_thousand_gpus_has_one_row_per_node() -> None:
    context = timelines_context(timelines_of(large_report()))
    assert len(context["numbers"][1]) == len(context["nodes"]) == 128
    assert len(context["fallback"]) < 6_000


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        (bad_report, ("A value covers 15 s over the whole job.",)),
        (
            day_report,
            (
                "A value covers 30 s over the whole job.",
                "Zoom in, and it covers 5 s. Step durations stay as they are.",
            ),
        ),
        (
            large_report,
            (
                "A value covers 300 s over the whole job.",
                (
                    "Zoom in on an episode, and it covers 60 s: for 96 min around the onsets, in 2 stretches. "
                    "Step durations stay as they are."
                ),
            ),
        ),
    ],
)
def test_report_says_how_fine_its_values_are(sample: Callable[[], Report], told: tuple[str, ...]) -> None:
    context = report_timelines(sample())
    assert context is not None
    page = environment().get_template("timelines.html.j2").render(timelines=context)
    assert f'<p class="tl-covers">{" ".join(told)}</p>' in page
