"""The page of any report, of a day of many GPUs among others."""

from collections.abc import Callable

import pytest

from tests.support.report_samples import bad_report, day_report, healthy_report, state_report
from tests.unit.report_html.markup import faults_of
from trainguard.report.document import Report
from trainguard.report.html.render import render_report


@pytest.mark.parametrize("sample", [healthy_report, bad_report, state_report, day_report])
def test_given_any_report_when_rendered_then_its_page_is_sound(sample: Callable[[], Report]) -> None:
    assert faults_of(render_report(sample())) == []
