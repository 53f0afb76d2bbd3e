"""The page's first section and its picture, of a job of many nodes among others."""

from collections.abc import Callable

import pytest

from tests.support.report_samples import (
    bad_report,
    healthy_report,
    large_report,
    state_report,
)
from tests.unit.report_html.test_when_and_where import page_of, words
from trainguard.report.document import Report
from trainguard.report.html.episodes import episodes_of, picture_of


@pytest.mark.parametrize("sample", [bad_report, state_report, healthy_report, large_report])
def test_first_section_has_verdict_picture_money_and_advice(
    sample: Callable[[], Report],
) -> None:
    report = sample()
    page = page_of(report)
    first = page.of("section")[0]
    assert first.attributes["id"] == "verdict"
    for text in (report.verdict.health, report.verdict.change, report.verdict.cost, "Duration"):
        assert text in words(first.text)
    assert page.classes["picture"] == 1


def test_rows_of_many_nodes_show_the_lowest_gpu_and_frame_slow() -> None:
    picture = picture_of(large_report(), episodes_of(large_report()))
    assert picture is not None
    assert picture["heat"] is not None
    assert picture["heat"]["rows"] == "a row is the lowest GPU of 2 nodes"
    assert len(picture["heat"]["frames"]) == 2
