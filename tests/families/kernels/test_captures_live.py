"""Traces of a job to rows, alerts and pages, through the engine, the machine's steps and the in-memory world."""

import pytest

from tests.support.captures import FIRST, HELD_UP, ROOT, Live, capture
from tests.support.small_job import JOB, START, Upload
from trainguard.core.records import Status
from trainguard.engine.streams.session import items_of
from trainguard.report.html.render import render_report
from trainguard.report.job.build import build_report


def test_even_ranks_give_ok_rows_and_no_alert() -> None:
    live = Live()
    live.write(capture())
    live.until(FIRST + 900.0)
    rows = live.rows()
    assert rows["LateRank"].status is Status.OK
    assert live.fires() == []


@pytest.mark.parametrize("folder", ["", "output/logs/"], ids=["the job's own folder", "another folder"])
def test_traces_elsewhere_below_a_known_job_are_a_capture(folder: str) -> None:
    live = Live()
    live.write([Upload(START, f"{ROOT.folder}checkpoints/training.log", b"")])
    live.until(START + 60.0)
    live.write(capture(folder=folder))
    live.until(FIRST + 900.0)
    assert live.rows()["LateRank"].status is Status.OK
    assert len(live.machine.digested) == 4


def test_trace_below_no_known_job_is_counted_without_a_job() -> None:
    live = Live()
    live.write(capture(folder="output/logs/"))
    live.until(FIRST + 300.0)
    assert live.world.journal.totals["foreign_keys"] == 4
    assert live.world.jobs.load(JOB) is None


def test_late_rank_fires_once_and_files_are_written() -> None:
    live = Live()
    live.write(capture(delay_us=HELD_UP))
    live.until(FIRST + 1_800.0)
    row = live.rows()["LateRank"]
    assert row.status is Status.FIRED
    assert "Rank 2 comes last" in row.finding.reason
    assert sorted(live.fires()) == ["kernels/ExposedCommunication", "kernels/LateRank"]
    about = {fact.name: fact.value for fact in row.finding.facts}
    assert (about["framework"], about["traces"]) == ("pytorch", 4)
    assert about["gain_share"]
    assert len(live.machine.ran) == 1
    assert {"kernels.html", "kernels.json"} <= set(live.names())
    report = build_report(live.net.job(), items_of(live.net.job(), live.world.nodes), now=live.net.now).report
    assert report.kernels is not None
    assert {"kernels/LateRank"} <= {each.rule for each in report.kernels.verdict.rules}
    page = render_report(report)
    assert 'href="kernels.html"' in page
    assert "Rank 2 comes last" in page
