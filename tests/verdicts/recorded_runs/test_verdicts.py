"""The verdicts on recorded runs reach their goals: broken ones are named, others are left alone."""

import pytest

from tests.verdicts.recorded_runs.labels import RULES, labels
from tests.verdicts.recorded_runs.recordings import names
from tests.verdicts.recorded_runs.scoring import judged, shares, table
from trainguard.rules.training.registry import TRAINING_RULES

NAMED = 0.95
FALSE_ALARMS = 0.01


@pytest.mark.verdicts
def test_broken_recorded_runs_are_named() -> None:
    assert shares(judged())[0] >= NAMED, table(judged())


@pytest.mark.verdicts
def test_healthy_and_unclear_runs_have_no_finding() -> None:
    assert shares(judged())[1] <= FALSE_ALARMS, table(judged())


def test_each_recorded_run_has_a_label_and_each_label_a_run() -> None:
    assert names() == labels().keys()
    assert len(names()) >= 150


def test_labels_use_known_kinds_and_findings_of_rules() -> None:
    known = {rule.name.rpartition("/")[2] for rule in TRAINING_RULES}
    assert set().union(*RULES.values()) <= known
    for run, label in labels().items():
        assert label.why, run
        assert label.kind in {"broken", "hidden", "healthy", "unclear"}
        assert label.rules or label.kind != "broken", run
        assert not label.rules or label.kind in {"broken", "hidden"}, run
