"""What the trusted rules say about the recorded runs."""

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.rows import ScalarRow
from trainguard.formats.tensors.scalars.step import ScalarStep
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.family_rules import bare
from trainguard.rules.training.registry import TRUSTED_RULES, AnyStepRule
from trainguard.rules.training.step_rule import RunView

FILE = Path(__file__).with_name("runs.json.xz")
NAMES = ScalarNames()
Source = Literal["epochs", "steps"]


@dataclass(frozen=True)
class Recorded:
    """A run: which half, what kind, which program, and its series by name."""

    half: str
    kind: str
    program: str
    seed: str
    series: Mapping[Source, Mapping[str, Sequence[float | str]]]

    def steps(self, source: Source) -> Iterator[ScalarStep]:
        """Iterate over steps as a file of scalars makes them."""
        return steps_of(self.series[source])


def steps_of(series: Mapping[str, Sequence[float | str]]) -> Iterator[ScalarStep]:
    """Iterate over the steps of a file of scalars: of training and of validation, where both have values."""
    for place in range(max(len(values) for values in series.values())):
        row = {name: float(values[place]) for name, values in series.items() if place < len(values)}
        for mode in (Mode.TRAIN, Mode.EVAL):
            of_mode = {name: value for name, value in row.items() if NAMES.mode(name) is mode}
            if of_mode:
                yield ScalarStep(ScalarRow(place, mode, 1_000.0 + place, of_mode), NAMES)


@cache
def recorded() -> tuple[Recorded, ...]:
    """Return all runs."""
    runs = json.loads(lzma.decompress(FILE.read_bytes()))
    found = []
    for name, series in runs.items():
        half, kind, program, seed = name.split("/")
        found.append(Recorded(half, kind, program, seed, series))
    return tuple(found)


@cache
def findings(run: int, source: Source) -> Mapping[str, Sequence[int]]:
    """Return the steps at which each rule fired, by its bare name, of those that did; ``run`` is a place."""
    return {rule: state.steps for rule, (state, _) in fired(list(recorded()[run].steps(source))).items()}


def fired(steps: Sequence[ScalarStep]) -> Mapping[str, tuple[Any, Any]]:
    """Return states and judgements, by their bare names, of the trusted rules that fire on a run that has ended."""
    answers = {bare(rule.name): judged(rule, steps) for rule in TRUSTED_RULES}
    return {name: answer for name, answer in answers.items() if answer[0].fired}


def judged(rule: AnyStepRule, steps: Sequence[ScalarStep]) -> tuple[Any, Any]:
    """Show a run that has ended to a rule; return its state and its judgement."""
    parameters, state = rule.parameters_type(), rule.state_type()
    for step in steps:
        rule.observe(state, step, parameters)
    return state, rule.judge(state, RunView(len(steps), closed=True), parameters)


def programs(half: str, kind: str, source: Source) -> Mapping[str, int]:
    """Return of how many runs of each program some rule fired."""
    found: dict[str, int] = {}
    for place, run in enumerate(recorded()):
        if (run.half, run.kind) == (half, kind):
            found[run.program] = found.get(run.program, 0) + bool(findings(place, source))
    return found
