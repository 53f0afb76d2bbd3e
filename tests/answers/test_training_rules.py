"""Training rules on trials, random and recorded runs: judgements on the way, and the last as its facts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.answers.random_curves import random_curves
from tests.answers.recorded import compare, judged, plain_result
from tests.support.steps import RULES, judgement, parameters
from tests.support.tensor_trials import expected, trial_steps, trials
from tests.training.recorded.scoring import recorded
from tests.unit.rules.training.random_runs import SET_UP, random_run
from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.family_rules import bare
from trainguard.rules.training.registry import TRUSTED_RULES

FOLDER = Path(__file__).with_name("training")
TRUSTED = {bare(each.name) for each in TRUSTED_RULES}
OF_LOSSES = {"LossNotDecreasing", "Overfit", "Overtraining"}
RANDOM_RUNS, CURVES, JUDGED_STEPS = 12, 16, 12


@cache
def _runs(rule: str) -> Mapping[str, tuple[Sequence[StepView], Mapping[str, Any]]]:
    """Return the runs that a rule is shown, each with its parameters."""
    found: dict[str, tuple[Sequence[StepView], Mapping[str, Any]]] = {
        f"random {seed}": (random_run(seed).steps, SET_UP.get(rule, {})) for seed in range(RANDOM_RUNS)
    }
    for trial in trials():
        cases = expected().get(trial, {}).get(rule, {})
        case = cases[0] if isinstance(cases, list) else cases
        if "params" in case or rule not in SET_UP:
            found[trial] = trial_steps(trial), case.get("params", {})
    if rule in TRUSTED or rule in OF_LOSSES:
        found |= {f"curve {seed}": (random_curves(seed).steps, {}) for seed in range(CURVES)}
    if rule in TRUSTED:
        for number, run in enumerate({(run.program, run.kind): run for run in recorded()}.values()):
            by: Literal["epochs", "steps"] = "steps" if number % 2 else "epochs"
            found[f"{run.program}, {run.kind}, {by}"] = list(run.steps(by)), {}
    return found


def _judgements(rule: str, steps: Sequence[StepView], given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what a rule says while a run goes on, at a dozen steps, and at last of the run that has ended."""
    each, values = RULES[rule], parameters(rule, **given)
    state, every = each.state_type(), max(1, len(steps) // JUDGED_STEPS)
    for place, step in enumerate(steps, 1):
        each.observe(state, step, values)
        if place % every == 0:
            yield plain_result(judgement(each, state, place, values))
    yield plain_result(judgement(each, state, len(steps), values, closed=True)) | {"fired at": state.steps}


@pytest.mark.parametrize("rule", RULES)
def test_training_rules_over_runs_match_the_reviewed(rule: str) -> None:
    answers = {}
    for run, (steps, given) in _runs(rule).items():
        answers[run] = judged(list(_judgements(rule, steps, given)))
    compare(answers, FOLDER / f"{rule}.json")
