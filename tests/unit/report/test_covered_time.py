"""The time that a job's report shows, from its streams and the training around them."""

from types import SimpleNamespace
from typing import Any

import pytest

from trainguard.stack.report.plan import covered


@pytest.mark.parametrize(
    ("first", "step", "through", "span"),
    [
        (None, None, None, None),
        (None, None, 0.0, (0.0, 0.0)),
        (60.0, None, 120.0, (60.0, 120.0)),
        (60.0, 30.0, 120.0, (30.0, 120.0)),
    ],
)
def test_time_of_a_report_begins_with_its_first_data(first: Any, step: Any, through: Any, span: Any) -> None:
    job: Any = SimpleNamespace(started_at=None, ended_at=None)
    streams: Any = SimpleNamespace(first_at=first, first_step_at=step, watermark_s=through)
    assert covered(job, streams) == span
