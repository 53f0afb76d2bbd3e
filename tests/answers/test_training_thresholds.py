"""Training rules on coarse runs where a parameter is exactly a value of the run, and just below and above it.

Each number that a rule takes is set to what the rule measured of the run under that number as its threshold, and to
numbers that such runs often have. An answer has the steps that fire and a digest of all that is said.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.answers.coarse_runs import coarse_curve, coarse_run
from tests.answers.recorded import compare, digest, plain_result
from tests.support.steps import RULES, Run
from trainguard.core.errors import RuleConfigError
from trainguard.rules.family_rules import bare
from trainguard.rules.training.registry import TRUSTED_RULES
from trainguard.rules.training.step_rule import Check, RunView

FOLDER = Path(__file__).with_name("training_thresholds")
TRUSTED = {bare(each.name) for each in TRUSTED_RULES}
OF_LOSSES = {"LossNotDecreasing", "Overfit", "Overtraining"}
RUNS, CURVES = 6, 12
# Parameters with which a rule has something to say in these runs.
SET_UP: Mapping[str, Mapping[str, Any]] = {
    "AllZero": {"collection_names": ("mine",), "threshold": 50.0},
    "TensorVariance": {"collection_names": ("gradients",)},
    "UnchangedTensor": {"tensor_regex": ("weight", "text", "flags"), "num_steps": 2},
    "SimilarAcrossRuns": {"other_trial": "other"},
    "ClassImbalance": {"samples": 20},
    "CheckInputImages": {"threshold_samples": 20},
    "LossNotDecreasing": {"num_steps": 3},
    "WeightUpdateRatio": {"num_steps": 4},
    "NotLearning": {"live_rows": 20},
    "TrainingDiverged": {"live_rows": 20},
    "Plateau": {"live_rows": 20, "min_rows": 10},
}

OTHER_WAYS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "AllZero": ({"threshold": 100.0},),
    "ExplodingTensor": ({"only_nan": True}, {"collection_names": ("gradients",)}),
    "ClassImbalance": ({"argmax": True, "predictions_regex": "scores"},),
    "UnchangedTensor": ({"equal_nan": True, "tensor_regex": (".*",)},),
    "SimilarAcrossRuns": ({"collection_names": ("gradients",)},),
    "LossNotDecreasing": ({"mode": "TRAIN"}, {"use_losses_collection": False}),
    "TreeDepth": ({"true_depth": True},),
}
FLOATS, COUNTS = (0.0, 0.25, 0.5, 1.0, 25.0, 50.0), (1, 2, 3, 5, 8, 20)
# Values that no run has, by which the checks are known whose threshold a parameter is.
MARKS = (1e-9, 99.5)
# Of the numbers that such runs often have, one run is judged with each third one.
MOST_MEASURED, TURNS = 2, 3


def _runs(rule: str) -> Mapping[str, Run]:
    curves = {f"curve {seed}": coarse_curve(seed) for seed in range(CURVES)}
    if rule in TRUSTED - {"RanksOutOfSync"}:
        return curves
    runs = {f"run {seed}": coarse_run(seed) for seed in range(RUNS)}
    return runs | (dict(list(curves.items())[:RUNS]) if rule in OF_LOSSES else {})


def _numbers(rule: str) -> Iterator[tuple[str, bool]]:
    """Yield the parameters that are one number, and whether it is a count."""
    kind = msgspec.inspect.type_info(RULES[rule].parameters_type)
    assert isinstance(kind, msgspec.inspect.StructType)
    for field in kind.fields:
        parts = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
        count = any(isinstance(part, msgspec.inspect.IntType) for part in parts)
        if (count or any(isinstance(part, msgspec.inspect.FloatType) for part in parts)) and (
            field.name not in {"scan_interval_us", "start_step", "end_step"}
        ):
            yield field.name, count


def _judged(rule: str, run: Run, given: Mapping[str, Any]) -> tuple[list[Check], dict[str, Any]] | None:
    """Return the checks of a run and what is said at its end; None where the rule refuses what it is given."""
    each = RULES[rule]
    try:
        values = msgspec.convert({**SET_UP.get(rule, {}), **given}, each.parameters_type)
    except (msgspec.ValidationError, RuleConfigError):
        return None
    state, checks = each.state_type(), []
    for step in run.steps:
        before = state.evaluated
        each.observe(state, step, values)
        if state.latest is not None and state.evaluated > before:
            checks.append(state.latest)
    last = plain_result(each.judge(state, RunView(len(run.steps), closed=True), values))
    return checks, {**last, "fired": state.steps}


def _answer(rule: str, run: Run, given: Mapping[str, Any]) -> list[Any] | None:
    judged = _judged(rule, run, given)
    if judged is None:
        return None
    return [judged[1]["fired"], digest([msgspec.to_builtins(judged[0]), judged[1]])[:8]]


def _measured(rule: str, run: Run, name: str) -> list[float]:
    """Return some values that the rule compares with a parameter in a run."""
    found = set()
    for mark in MARKS:
        checks, last = _judged(rule, run, {name: mark}) or ([], {})
        found |= {each.value for each in checks if each.threshold == mark and each.value is not None}
        found |= {last["measured"]} if last.get("threshold") == mark and "measured" in last else set()
    return sorted(found)[:: max(1, len(found) // MOST_MEASURED)][:MOST_MEASURED]


def _cases(rule: str, run: Run, turn: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "as set up", {}
    for given in OTHER_WAYS.get(rule, ()):
        yield ", ".join(f"{name} {value}" for name, value in given.items()), given
    for name, is_count in _numbers(rule):
        values: list[float] = [*COUNTS] if is_count else [*FLOATS]
        for value in values[turn % TURNS :: TURNS]:
            yield f"{name} {value}", {name: value}
        for value in [] if is_count else _measured(rule, run, name):
            near = {"below": math.nextafter(value, -math.inf), "on": value, "above": math.nextafter(value, math.inf)}
            for where, threshold in near.items():
                yield f"{name} {where} {value:.6g}", {name: threshold}


@pytest.mark.parametrize("rule", RULES)
def test_parameters_equal_to_run_values_match_the_reviewed(
    rule: str,
) -> None:
    answers = {
        name: {case: _answer(rule, run, given) for case, given in _cases(rule, run, turn)}
        for turn, (name, run) in enumerate(_runs(rule).items())
    }
    compare(answers, FOLDER / f"{rule}.json")
