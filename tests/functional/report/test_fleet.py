"""A fleet of thousands of jobs on one page."""

import time

import pytest

from tests.support.fleets import FLEET, NOW, many
from trainguard.report.fleet.document import encode_fleet
from trainguard.report.fleet.fleet import HEAT_ROWS, JOBS_SHOWN, build_fleet
from trainguard.report.html.fleet import render_fleet

MOST_BYTES = 3_000_000


MOST_SECONDS = 5.0


def test_fleet_page_of_five_thousand_jobs_is_small_and_fast() -> None:
    jobs = many(5_000)
    began = time.process_time()
    report = build_fleet(FLEET, jobs, now=NOW)
    page, body = render_fleet(report).encode(), encode_fleet(report)
    took = time.process_time() - began
    assert len(page) < MOST_BYTES
    assert len(body) < MOST_BYTES
    assert took < MOST_SECONDS
    assert (len(report.jobs), report.rest.jobs) == (JOBS_SHOWN, 5_000 - JOBS_SHOWN)
    assert len(report.heat.rows) == HEAT_ROWS
    assert report.totals.jobs == 5_000
    lost = sum(each.lost or 0.0 for each in report.jobs) + (report.rest.lost or 0.0)
    assert lost == pytest.approx(report.totals.lost, abs=0.01 * JOBS_SHOWN)
