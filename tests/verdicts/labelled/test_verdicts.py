"""The verdicts on the labelled jobs reach their goals; where they do not, they get no worse."""

import pytest

from tests.claims import held
from tests.claims.check import table as table_of_claims
from tests.verdicts.labelled import goals
from tests.verdicts.labelled.figures import Figures
from tests.verdicts.labelled.running import figures_of
from tests.verdicts.labelled.table import table

pytestmark = pytest.mark.verdicts


@pytest.fixture(scope="module")
def figures() -> Figures:
    return figures_of()


def test_every_planted_fault_is_found(figures: Figures) -> None:
    assert figures.found("strong").share >= goals.FOUND, table(figures)
    assert figures.found("medium").share >= goals.FOUND, table(figures)


def test_hardly_a_healthy_job_has_a_fire(figures: Figures) -> None:
    assert figures.healthy_fires.share <= goals.HEALTHY_FIRES, table(figures)


def test_the_planted_cause_stands_first(figures: Figures) -> None:
    assert figures.planted_first.share >= goals.PLANTED_FIRST, table(figures)


def test_the_graver_of_two_jobs_has_the_higher_score(figures: Figures) -> None:
    assert len(figures.out_of_order) <= goals.OUT_OF_ORDER, table(figures)


def test_the_main_finding_does_not_depend_on_the_interval(figures: Figures) -> None:
    assert figures.lost.count <= goals.LOST_BY_INTERVAL, table(figures)


def test_healthy_jobs_are_called_healthy(figures: Figures) -> None:
    assert figures.called_healthy.share >= goals.CALLED_HEALTHY, table(figures)


def test_what_is_said_is_true(figures: Figures) -> None:
    said = figures.true_checks()
    assert said.of - said.count <= goals.UNTRUE, table(figures)


def test_nothing_is_found_beside_what_was_planted(figures: Figures) -> None:
    assert figures.unexplained <= goals.UNEXPLAINED, table(figures)


def test_all_that_is_said_agrees_with_the_raw_data(figures: Figures) -> None:
    claims = figures.claims
    assert len(claims.untrue) <= held.UNTRUE["labelled"], table_of_claims(claims)
    assert sum(claims.unknown.values()) <= held.UNKNOWN["labelled"], table_of_claims(claims)
