"""The orders of statuses and severities, which everything that lists or compares them reads from one place."""

import pytest

from trainguard.core.finding import Severity, severity_rank
from trainguard.core.records import Status


def test_statuses_that_need_people_are_listed_first() -> None:
    assert sorted(Status, key=lambda status: status.place) == [
        Status.FIRED,
        Status.ERROR,
        Status.OK,
        Status.WARMING_UP,
        Status.WAITING_FOR_DATA,
        Status.NOT_APPLICABLE,
        Status.DISABLED,
    ]


def test_highest_severity_ranks_first_and_none_last() -> None:
    words = ["critical", None, "low", "high", "medium"]
    assert sorted(words, key=severity_rank) == [None, "low", "medium", "high", "critical"]
    assert [severity_rank(severity) for severity in Severity] == [0, 1, 2, 3]


def test_unknown_severity_is_refused() -> None:
    with pytest.raises(ValueError, match="severe"):
        severity_rank("severe")
