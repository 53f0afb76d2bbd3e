"""What the trusted rules say about the programs: of each pair, in each of three forms of record."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from tests.training.recorded.scoring import fired, steps_of
from tests.verdicts.training.fitting import Log
from tests.verdicts.training.later_programs import LATER
from tests.verdicts.training.programs import PAIRS
from tests.verdicts.training.real_losses import LABELS, losses
from tests.verdicts.training.third_programs import THIRD

SEEDS = range(3)
Form = Literal["epochs with scores", "epochs, losses alone", "each step's loss"]
FORMS: tuple[Form, ...] = ("epochs with scores", "epochs, losses alone", "each step's loss")


@dataclass(frozen=True)
class Verdict:
    """The reasons of the rules that fired, by their names, on one run of a program."""

    program: str
    is_broken: bool
    seed: int
    reasons: Mapping[str, str]


@dataclass(frozen=True)
class Figures:
    """In how many of its runs each program has a finding, by its name."""

    broken: Mapping[str, int]
    repaired: Mapping[str, int]

    @property
    def named(self) -> list[str]:
        """Broken programs with a finding in most of their runs."""
        return [name for name, runs in self.broken.items() if runs > len(SEEDS) // 2]

    @property
    def false(self) -> list[str]:
        """Repaired programs with a finding in any run."""
        return [name for name, runs in self.repaired.items() if runs]


@cache
def logs() -> Mapping[tuple[str, bool, int], Log]:
    """Train all programs, broken and repaired, each with every seed."""
    found = {}
    for program in (*PAIRS, *LATER, *THIRD):
        for is_broken in (True, False):
            for seed in SEEDS:
                rng = np.random.default_rng([zlib.crc32(program.__name__.encode()), seed])
                found[program.__name__, is_broken, seed] = program(rng, is_broken)
    return found


def series(log: Log, form: Form) -> Mapping[str, Sequence[float]]:
    """Return what a form of record holds."""
    if form == "each step's loss":
        return {"loss": log.steps["loss"]}
    if form == "epochs with scores":
        return log.epochs
    return {name: values for name, values in log.epochs.items() if name in {"loss", "val_loss"}}


@cache
def verdicts(form: Form) -> Sequence[Verdict]:
    """Return the verdict on each run."""
    found = []
    for (program, is_broken, seed), log in logs().items():
        answers = fired(list(steps_of(series(log, form))))
        reasons = {rule: judgement.reason for rule, (_, judgement) in answers.items()}
        found.append(Verdict(program, is_broken, seed, reasons))
    return found


def figures(form: Form) -> Figures:
    """Count findings by program."""
    counts: dict[bool, dict[str, int]] = {True: {}, False: {}}
    for verdict in verdicts(form):
        of_kind = counts[verdict.is_broken]
        of_kind[verdict.program] = of_kind.get(verdict.program, 0) + bool(verdict.reasons)
    return Figures(counts[True], counts[False])


def real() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Iterate over the real runs: the name, and the reasons of the rules that fired."""
    for run in LABELS:
        answers = fired(list(steps_of({"train/loss": losses()[run]})))
        yield run, {rule: judgement.reason for rule, (_, judgement) in answers.items()}
