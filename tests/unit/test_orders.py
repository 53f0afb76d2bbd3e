"""The orders of statuses and severities, which everything that lists or compares them reads from one place."""

import pytest

from trainguard.finding import Severity, severity_rank
from trainguard.records import Status


def test_given_all_statuses_when_listed_for_people_then_what_needs_them_comes_first() -> None:
    assert sorted(Status, key=lambda status: status.place) == [
        Status.FIRED,
        Status.ERROR,
        Status.OK,
        Status.WARMING_UP,
        Status.WAITING_FOR_DATA,
        Status.NOT_APPLICABLE,
        Status.DISABLED,
    ]


def test_given_severities_and_none_when_ranked_then_the_gravest_is_the_highest_and_none_the_lowest() -> None:
    words = ["critical", None, "low", "high", "medium"]
    assert sorted(words, key=severity_rank) == [None, "low", "medium", "high", "critical"]
    assert [severity_rank(severity) for severity in Severity] == [0, 1, 2, 3]


def test_given_a_word_that_is_no_severity_when_ranked_then_it_is_refused() -> None:
    with pytest.raises(ValueError, match="grave"):
        severity_rank("grave")
