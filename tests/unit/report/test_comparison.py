"""Two runs beside each other: what differs, in the document and on the page."""

import pytest
from msgspec.structs import replace

from tests.support.report_samples import bad_report, healthy_report, trained_report
from tests.unit.report_html.markup import faults_of, read_page
from tests.unit.report_html.reports import HOSTILE
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.document import LedgerEntry
from trainguard.report.comparison import change_words, compared
from trainguard.report.document import Change, Report, Unit
from trainguard.report.html.render import render_report


def with_ledger(report: Report, **shares: float) -> Report:
    entries = [
        LedgerEntry(bucket=Bucket(name), gpu_seconds=3_600.0 * share, share=share, usd=None)
        for name, share in shares.items()
    ]
    return replace(report, ledger=entries)


def doubled(report: Report) -> Report:
    """Return the trained job with a loss twice as high."""
    assert report.training is not None
    loss, *others = report.training.series
    higher = replace(loss, mean=[None if each is None else 2.0 * each for each in loss.mean])
    return replace(report, training=replace(report.training, series=[higher, *others]))


def test_the_ledger_has_what_differs_most_first() -> None:
    here, there = with_ledger(bad_report(), compute=0.6, idle=0.4), with_ledger(bad_report(), compute=0.9, data=0.1)
    found = compared(here, there).ledger
    assert [(each.what, each.here, each.there) for each in found] == [
        ("idle", 0.4, 0.0),
        ("compute", 0.6, 0.9),
        ("waiting for batches", 0.0, 0.1),
    ]
    assert compared(here, with_ledger(bad_report())).ledger == []


def test_steps_and_loss_compare_by_typical_and_last_values() -> None:
    found = compared(trained_report(), doubled(trained_report()))
    assert [each.what for each in found.steps] == ["steps", "typical train step"]
    assert found.steps[1].here == found.steps[1].there == pytest.approx(0.42, abs=0.05)
    end, lowest = found.loss
    assert end.what == "loss (train), at the end"
    assert end.there == pytest.approx(2.0 * (end.here or 0.0))
    assert lowest == replace(end, what="loss (train), lowest")


def test_findings_of_one_run_alone_are_named() -> None:
    found = compared(healthy_report(), bad_report())
    assert (found.found_here, found.found_there) == ([], ["CPUBottleneck", "LowGPUUtilization"])
    assert (found.job, found.level) == ("bert-large-slow", "unhealthy")


def test_what_one_run_does_not_know_has_no_difference() -> None:
    unknown = Change(what="cost", unit="money", here=None, there=3.0)
    assert change_words(unknown, "USD") == ("\N{EN DASH}", "USD 3.00", "\N{EN DASH}")


@pytest.mark.parametrize(
    ("unit", "here", "there", "said"),
    [
        ("share", 0.4, 0.1, "+30 percentage points"),
        ("seconds", 0.3, 0.4, "\N{MINUS SIGN}25 %"),
        ("number", 3.0, 3.0, "0 %"),
        ("number", 3.0, 0.0, "\N{EN DASH}"),
    ],
)
def test_a_difference_is_in_points_of_shares_else_in_percent(unit: Unit, here: float, there: float, said: str) -> None:
    assert change_words(Change(what="", unit=unit, here=here, there=there), None)[2] == said


def test_the_page_shows_both_runs_right_after_the_verdict() -> None:
    other = doubled(trained_report())
    named = replace(other, job=replace(other.job, name=HOSTILE))
    page = render_report(replace(trained_report(), comparison=compared(trained_report(), named)))
    assert faults_of(page) == []
    read = read_page(page)
    assert [each.attributes["id"] for each in read.of("section")][:2] == ["verdict", "comparison"]
    text = " ".join(read.by_id["comparison"].text.split())
    assert "loss (train), at the end 0.286 0.572 \N{MINUS SIGN}50 %" in text
    assert "this run" in text
    assert "window.hacked" not in page.replace("&lt;script&gt;window.hacked", "")
