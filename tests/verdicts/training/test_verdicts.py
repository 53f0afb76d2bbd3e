"""The verdicts on training health reach their goals: 15 of 22 broken programs are named, at most 2 of 22 repaired."""

import pytest

from tests.verdicts.training.real_losses import LABELS
from tests.verdicts.training.scoring import FORMS, figures, real
from tests.verdicts.training.table import table

pytestmark = pytest.mark.verdicts

NAMED = 15 / 22
FALSE = 2 / 22


def test_given_broken_programs_when_scores_are_recorded_then_most_are_named() -> None:
    found = figures("epochs with scores")
    assert len(found.named) >= NAMED * len(found.broken), table()


@pytest.mark.parametrize("form", FORMS)
def test_given_repaired_programs_when_judged_then_hardly_one_has_a_finding(form: str) -> None:
    found = figures(next(each for each in FORMS if each == form))
    assert len(found.false) <= FALSE * len(found.repaired), table()


def test_given_losses_of_real_runs_when_judged_then_broken_ones_alone_have_a_finding() -> None:
    named = {run for run, reasons in real() if reasons}
    assert named >= {run for run, label in LABELS.items() if label.kind == "broken"}
    assert not named & {run for run, label in LABELS.items() if label.kind in {"healthy", "short"}}
