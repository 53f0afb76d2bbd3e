"""What each recorded run is, and what may be said about it: ``labels.csv``."""

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

FILE = Path(__file__).with_name("labels.csv")
Kind = Literal["broken", "hidden", "healthy", "unclear"]

DIVERGED = frozenset({"TrainingDiverged", "ExplodingTensor", "GradientNormDrift"})
LEARNED_NOTHING = frozenset({"NotLearning", "Plateau"})
# Which rules name what a label calls a finding.
RULES: Mapping[str, frozenset[str]] = {
    "diverges": DIVERGED,
    "not finite": DIVERGED,
    "learns nothing": LEARNED_NOTHING,
    "stops early": LEARNED_NOTHING,
    "overfits": frozenset({"NotLearning", "Overfit", "Overtraining"}),
    "reward lost": frozenset({"TrainingDiverged", "NotLearning"}),
    "kl explodes": frozenset({"TrainingDiverged"}),
    "entropy gone": frozenset({"TrainingDiverged"}),
    "generator lost": frozenset({"TrainingDiverged"}),
}


class Label(NamedTuple):
    """A run.

    ``broken``: its curves show it, and one of ``rules`` must fire. ``hidden``: broken, and nothing recorded shows it;
    any answer is right. ``healthy`` runs, and those that are unclear, must have no finding.
    """

    kind: Kind
    findings: tuple[str, ...]
    why: str

    @property
    def rules(self) -> frozenset[str]:
        """Rules of which one must fire."""
        return frozenset().union(*(RULES[finding] for finding in self.findings))


@cache
def labels() -> Mapping[str, Label]:
    """Return the labels by run."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {
            row["run"]: Label(cast("Kind", row["kind"]), tuple(filter(None, row["findings"].split(" / "))), row["why"])
            for row in csv.DictReader(file)
        }
