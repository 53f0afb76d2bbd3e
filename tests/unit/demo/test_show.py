"""What the demonstration prints when its output is piped."""

import io
from decimal import Decimal

import pytest
from rich.console import Console

from demo.live.expect import Check
from demo.live.feed import JobFeed, Progress
from demo.live.show import Screen, cell
from demo.make_recordings import RECORDINGS
from demo.recording import Recording


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def screen(output: io.StringIO) -> Screen:
    times = iter(range(1_000))
    return Screen(Console(file=output, width=240, highlight=False), clock=lambda: float(next(times)))


def test_given_a_phase_when_said_then_the_line_has_both_times(screen: Screen, output: io.StringIO) -> None:
    screen.phase("stack deployed", 4.25)

    assert output.getvalue() == "   1.0 s  stack deployed (4.2 s)\n"


def test_only_changed_rows_of_whole_jobs_are_printed(screen: Screen, output: io.StringIO) -> None:
    waiting = {"R": {"Status": "WARMING_UP"}, "R#algo-1": {"Status": "FIRED", "Reason": "on one node"}}

    screen.rows("job", waiting)
    screen.rows("job", waiting)
    screen.rows("job", {"R": {"Status": "FIRED", "Reason": "low"}})

    lines = [line.split("s  ", 1)[1] for line in output.getvalue().splitlines()]
    assert lines == ["job  R  WARMING_UP", "job  R  WARMING_UP -> FIRED: low"]


def test_piped_upload_prints_a_line_every_five_minutes(screen: Screen, output: io.StringIO) -> None:
    feed = JobFeed(job="job", recording=Recording.load(RECORDINGS / "slow_steps.npz"), start=1_795_252_200)

    with screen.bars([feed]):
        while feed.upcoming is not None:
            screen.progress([feed], {"job": Progress()})
            feed.take()

    lines = output.getvalue().splitlines()
    assert [line.split("minute ")[1].split(".")[0] for line in lines] == ["0", "5", "10"]
    assert "\x1b" not in output.getvalue()


def test_table_of_rows_has_one_line_each_in_order(screen: Screen, output: io.StringIO) -> None:
    long = "a sentence " * 100
    rows = {
        "R#algo-1": {"Status": "OK", "Measured": Decimal("94")},
        "R": {"Status": "FIRED", "Measured": Decimal("34.98765"), "Reason": long, "Action": "stopped"},
    }

    screen.table("job", rows)

    lines = [line for line in output.getvalue().splitlines() if line.strip().startswith("R")]
    assert "RuleState of job" in output.getvalue()
    assert [line.split()[:3] for line in lines[-2:]] == [["R", "FIRED", "34.99"], ["R#algo-1", "OK", "94"]]
    assert "stopped" in lines[-2]
    assert lines[-2].rstrip().endswith("…")


def test_narrow_table_keeps_what_matters_most(output: io.StringIO) -> None:
    screen = Screen(Console(file=output, width=100))

    screen.table("job", {"R": {"Status": "OK", "FiredAt": "2026-11-21T09:00:00.000Z", "Reason": "fine"}})

    assert "Status" in output.getvalue()
    assert "Reason" in output.getvalue()
    assert "FiredAt" not in output.getvalue()


def test_given_checks_when_printed_then_misses_come_last(screen: Screen, output: io.StringIO) -> None:
    screen.checks([Check("job", "alerts", ["R"], []), Check("job", "status", "Stopped", "Stopped")])

    assert output.getvalue().splitlines() == [
        "seen    job: status: Stopped",
        "MISSED  job: alerts: expected ['R'], seen []",
    ]


def test_given_an_alert_when_shown_then_every_field_is(screen: Screen, output: io.StringIO) -> None:
    screen.alert({"rule": "R", "reason": "[bold] is no markup"})

    assert "rule: R\n" in output.getvalue()
    assert "reason: [bold] is no markup\n" in output.getvalue()


@pytest.mark.parametrize(
    ("value", "shown"), [(None, ""), (Decimal("1500"), "1500"), (Decimal("0.123456"), "0.1235"), ("x", "x")]
)
def test_given_a_column_when_shown_then_it_reads_well(value: object, shown: str) -> None:
    assert cell(value) == shown
