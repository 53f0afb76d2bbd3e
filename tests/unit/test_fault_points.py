"""What is a fault of TrainGuard itself: lines that carry points, and batches whose verdicts are late."""

import json

import pytest
from aws_lambda_powertools import Logger, Metrics

from trainguard.aws.fault_points import FAULT_POINTS, LAG, LATE_S, LateVerdicts
from trainguard.aws.observability import PowertoolsJournal


class Kept:
    """A journal that keeps all entries."""

    def __init__(self) -> None:
        self.counted: list[str] = []
        self.measured: list[float] = []

    def count(self, what: str, amount: float = 1, **where: object) -> None:
        self.counted += [what] * int(amount)

    def measure(self, what: str, seconds: float) -> None:
        self.measured.append(seconds)


@pytest.mark.parametrize(
    ("lags_s", "is_behind"),
    [
        ([], False),
        ([30.0], False),
        ([LATE_S], False),
        ([LATE_S + 1], True),
        ([30.0] * 9 + [LATE_S + 1], True),
        ([30.0] * 10 + [LATE_S + 1], False),
    ],
)
def test_one_late_evaluation_in_ten_makes_the_batch_a_fault(lags_s: list[float], is_behind: bool) -> None:
    kept = Kept()
    journal = LateVerdicts(kept)
    for lag_s in lags_s:
        journal.measure(LAG, lag_s)
    journal.measure("another_s", LATE_S * 2)
    journal.end_batch()
    assert kept.counted == ["verdicts_behind"] * is_behind
    assert kept.measured == [*lags_s, LATE_S * 2]


def test_batch_on_time_after_a_late_one_is_no_fault() -> None:
    kept = Kept()
    journal = LateVerdicts(kept)
    journal.measure(LAG, LATE_S * 2)
    journal.end_batch()
    journal.measure(LAG, 1.0)
    journal.end_batch()
    assert kept.counted == ["verdicts_behind"]


@pytest.mark.parametrize("what", [*FAULT_POINTS, "late", "canary_passed"])
def test_only_a_counted_fault_is_logged_with_its_points(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(service="scheduler", namespace="TrainGuard")
    PowertoolsJournal(logger=Logger(service=f"faults-{what}"), metrics=metrics).count(what, 2, job="j")
    metrics.clear_metrics()
    line = json.loads(capsys.readouterr().out)
    assert line.get("fault") == (2 * FAULT_POINTS[what] if what in FAULT_POINTS else None)
    assert (line["message"], line["amount"]) == (what, 2)
