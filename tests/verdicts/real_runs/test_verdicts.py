"""The whole product on real runs: no alert on a healthy run, no false statement on any."""

import pytest

from tests.verdicts.real_runs.labels import labels
from tests.verdicts.real_runs.product import say
from tests.verdicts.real_runs.scoring import is_to_be_named, score

pytestmark = pytest.mark.verdicts

HEALTHY = [run for run, label in labels().items() if label.outcome == "healthy"]
WASTED = [run for run, label in labels().items() if is_to_be_named(label)]


@pytest.mark.parametrize("run", HEALTHY)
def test_given_a_healthy_run_when_judged_then_nothing_has_fired(run: str) -> None:
    assert say(run).findings == ()


@pytest.mark.parametrize("run", labels())
def test_verdict_on_a_run_has_no_false_statement(run: str) -> None:
    assert score(labels()[run], say(run)).false == ()


@pytest.mark.parametrize("run", labels())
def test_all_of_the_profile_of_a_run_is_read(run: str) -> None:
    assert say(run).unread == {}


@pytest.mark.parametrize("run", WASTED)
def test_finding_on_a_long_wasted_run_names_it_first(run: str) -> None:
    assert score(labels()[run], say(run)).named
