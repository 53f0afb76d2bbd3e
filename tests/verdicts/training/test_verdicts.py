"""The verdicts on training health reach their goals: 15 of 22 broken programs are named, and no repaired one is."""

import pytest

from tests.verdicts.training.real_losses import LABELS
from tests.verdicts.training.scoring import FORMS, Form, figures, real
from tests.verdicts.training.table import table

pytestmark = pytest.mark.verdicts

GOAL = 15 / 22
# How many of the 67 broken programs are named today, by what was recorded of them.
NAMED: dict[Form, int] = {"epochs with scores": 48, "epochs, losses alone": 37, "each step's loss": 30}


def test_broken_programs_with_scores_reach_the_goal() -> None:
    found = figures("epochs with scores")
    assert len(found.named) >= GOAL * len(found.broken), table()


@pytest.mark.parametrize("form", FORMS)
def test_documented_number_of_broken_programs_is_named(form: Form) -> None:
    found = figures(form)
    assert (len(found.named), len(found.broken)) == (NAMED[form], 67), table()


@pytest.mark.parametrize("form", FORMS)
def test_repaired_programs_have_no_finding(form: Form) -> None:
    assert figures(form).false == [], table()


def test_only_broken_real_losses_have_a_finding() -> None:
    named = {run for run, reasons in real() if reasons}
    assert named >= {run for run, label in LABELS.items() if label.kind == "broken"}
    assert not named & {run for run, label in LABELS.items() if label.kind in {"healthy", "short"}}
