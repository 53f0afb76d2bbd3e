"""The trials find it when a safeguard of the protocol is missing."""

import pytest

from tests.faults.jobs import Shape
from tests.faults.mutants import MUTANTS, Mutant, applied
from tests.faults.oracle import undisturbed, wrong
from tests.faults.trial import drawn

# So many trials with the faults that the safeguard is there for find each mutant.
WITHIN = 400

# So many trials with any faults find each mutant.
WITHIN_ANY = 4_000


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
def test_removed_safeguard_fails_a_trial_of_its_faults(mutant: Mutant) -> None:
    assert first_found(mutant, range(WITHIN), mutant.kinds) is not None


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_removed_safeguard_fails_a_trial_of_any_faults(mutant: Mutant) -> None:
    assert first_found(mutant, range(WITHIN_ANY), None) is not None


def test_mutant_of_changed_code_says_it_no_longer_fits() -> None:
    gone = Mutant("gone", MUTANTS[0].holder, "save", "raise KeyError(item)", "pass", ())
    with pytest.raises(ValueError, match="mutant 'gone'"), applied(gone):
        pass
