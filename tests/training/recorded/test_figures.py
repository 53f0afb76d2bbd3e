"""How many of the recorded programs the trusted rules name: broken ones, and as false alarms repaired and healthy ones.

A program is named where some rule fires at any step of most of its five runs. Thresholds were chosen on half ``a``.
Half ``b`` was measured when they stood; what was changed since then is in docs/rules/training/README.md.
"""

import pytest

from tests.training.recorded.scoring import Source, findings, programs, recorded


@pytest.mark.parametrize(
    ("half", "source", "named", "of"),
    [("a", "epochs", 12, 15), ("a", "steps", 10, 15), ("b", "epochs", 12, 15), ("b", "steps", 7, 15)],
)
def test_documented_count_of_broken_programs_is_named(half: str, source: Source, named: int, of: int) -> None:
    found = programs(half, "broken", source)
    assert (sum(runs >= 3 for runs in found.values()), len(found)) == (named, of)


@pytest.mark.parametrize("source", ["epochs", "steps"])
@pytest.mark.parametrize("half", ["a", "b"])
@pytest.mark.parametrize("kind", ["repaired", "healthy"])
def test_repaired_and_healthy_programs_never_fire_a_rule(kind: str, half: str, source: Source) -> None:
    assert [name for name, runs in programs(half, kind, source).items() if runs] == []


def test_recordings_are_30_pairs_and_17_healthy_with_five_runs() -> None:
    counts = [sum(run.kind == kind for run in recorded()) for kind in ("broken", "repaired", "healthy")]
    assert counts == [150, 150, 85]


def test_nan_loss_diverged_at_its_first_step() -> None:
    place = next(place for place, run in enumerate(recorded()) if run.program == "raw_prices" and run.kind == "broken")
    assert recorded()[place].series["steps"]["loss"][:4][-1] in {"nan", "inf"}
    assert "TrainingDiverged" in findings(place, "steps")
