"""The trials find it when a safeguard of the protocol is missing."""

import pytest

from tests.faults.jobs import Shape
from tests.faults.mutants import MUTANTS, Mutant, applied
from tests.faults.oracle import undisturbed, wrong
from tests.faults.trial import drawn

WITHIN = 400
"""So many trials with the faults that the safeguard is there for find each mutant."""

WITHIN_ANY = 4_000
"""So many trials with any faults find each mutant."""


def first_found(mutant: Mutant, seeds: range, kinds: tuple[str, ...] | None) -> int | None:
    """Return the first seed whose trial is wrong with the mutant, None when none is."""
    trials = [drawn(seed) if kinds is None else drawn(seed, kinds) for seed in seeds]
    for trial in trials:
        undisturbed(Shape(trial.shape.kind))
        undisturbed(trial.shape)
        with applied(mutant):
            if wrong(trial) is not None:
                return trial.seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_given_a_safeguard_taken_out_when_its_faults_come_then_a_trial_is_wrong(mutant: Mutant) -> None:
    assert first_found(mutant, range(WITHIN), mutant.kinds) is not None


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_given_a_safeguard_taken_out_when_any_faults_come_then_a_trial_is_wrong(mutant: Mutant) -> None:
    assert first_found(mutant, range(WITHIN_ANY), None) is not None


def test_given_code_that_has_changed_when_a_mutant_no_longer_fits_then_it_says_so() -> None:
    gone = Mutant("gone", MUTANTS[0].holder, "save", "raise KeyError(item)", "pass", ())
    with pytest.raises(ValueError, match="mutant 'gone'"), applied(gone):
        pass
