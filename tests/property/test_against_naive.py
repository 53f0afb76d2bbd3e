"""Each rule against the same rule written plainly, over random runs and random parameters."""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.property.naive_predictions import NAIVE_OF_PREDICTIONS
from tests.property.naive_training_rules import NAIVE as NAIVE_OF_TENSORS
from tests.support.run_folder import MemoryFiles
from tests.support.steps import RULES, Run, fired, parameters
from tests.support.tensor_files import HookWriter
from tests.unit.rules.training.random_runs import random_run
from trainguard.formats.tensors.debug.ledger import StepLedger
from trainguard.formats.tensors.debug.run import DebugStep, complete_steps, find_run
from trainguard.formats.tensors.step_view import Mode

RUNS, MORE_RUNS = 40, 200
NAIVE = {**NAIVE_OF_TENSORS, **NAIVE_OF_PREDICTIONS}
FIXED: dict[str, dict[str, Any]] = {
    "AllZero": {"tensor_regex": ".*"},
    "TensorVariance": {"tensor_regex": ".*"},
    "UnchangedTensor": {"tensor_regex": ".*"},
    "SimilarAcrossRuns": {"other_trial_0": "other"},
    "WeightUpdateRatio": {},
}
CHOICES: dict[str, dict[str, list[Any]]] = {
    "VanishingGradient": {"threshold": [1e-7, 1e-4, 0.5]},
    "ExplodingTensor": {"only_nan": [True, False]},
    "PoorWeightInitialization": {
        "threshold": [10.0, 30.0],
        "distribution_range": [0.001, 1e-8],
        "patience": [2, 5],
        "steps": [3, 10],
    },
    "SaturatedActivation": {"threshold_inactivity": [1.0, 30.0, 60.0], "threshold_layer": [0.0, 50.0]},
    "DeadRelu": {"threshold_inactivity": [1.0, 30.0], "threshold_layer": [25.0, 50.0]},
    "WeightUpdateRatio": {"num_steps": [None, 2, 6], "large_threshold": [10.0, 0.5], "small_threshold": [1e-8, 0.0]},
    "AllZero": {"threshold": [100.0, 30.0, 50.0]},
    "ClassImbalance": {
        "threshold_imbalance": [10.0, 1.2],
        "threshold_misprediction": [0.7, 0.2],
        "samples": [20, 100],
    },
    "LossNotDecreasing": {
        "num_steps": [3, 10],
        "diff_percent": [0.1, 20.0, 0.0],
        "increase_threshold_percent": [5.0, 0.0],
    },
    "Overfit": {"patience": [1, 2], "ratio_threshold": [0.1, 0.0]},
    "Overtraining": {"patience_train": [2, 5], "patience_validation": [3, 10], "delta": [0.01, 0.2]},
    "StalledTrainingRule": {"threshold": [1800, 1799, 10_000]},
    "TensorVariance": {"max_threshold": [None, 500.0], "min_threshold": [None, 1e-12]},
    "UnchangedTensor": {"num_steps": [2, 3, 4], "rtol": [1e-5, 0.5], "atol": [1e-8]},
    "CheckInputImages": {"threshold_mean": [0.2, 0.05], "threshold_samples": [50, 500], "channel": [1, 2]},
    "Confusion": {"min_diag": [0.9, 0.0], "max_off_diag": [0.1, 0.5]},
    "FeatureImportanceOverweight": {"threshold": [0.8, 0.6], "nfeatures": [1, 3]},
    "TreeDepth": {"depth": [4, 5.5, 0]},
}
# In these rules some tensor nearly always fires: they see a few tensors.
EVERY_TENSOR = {"UnchangedTensor", "AllZero", "TensorVariance"}


@cache
def few_tensors(seed: int) -> Run:
    run = copy.deepcopy(random_run(seed))
    for step in run.steps:
        kept = ("gradient", "text", "weight/a", "relu_output")
        step.tensors = {name: value for name, value in step.tensors.items() if name.startswith(kept)}
    return run


@pytest.mark.parametrize("seeds", [range(RUNS), pytest.param(range(RUNS, MORE_RUNS), marks=pytest.mark.thorough)])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule in NAIVE])
def test_rule_fires_as_its_naive_twin_on_random_runs(rule: str, seeds: range) -> None:
    firing = steps = 0
    for seed in seeds:
        random = np.random.default_rng([seed, 7])
        run = few_tensors(seed) if rule in EVERY_TENSOR else random_run(seed)
        given = {name: random.choice(np.array(values, object)) for name, values in CHOICES.get(rule, {}).items()}
        found = fired(rule, run, **given, **FIXED.get(rule, {}))
        with np.errstate(all="ignore"):
            assert found == NAIVE[rule](run, **given), f"run {seed}, {given}"
        firing += len(found)
        steps += len(run.steps)
    if rule != "CreateXgboostReport":
        assert 0.02 <= firing / steps <= 0.98


def mixed_intervals(seed: int) -> Run:
    """Return a run that saves its loss at every step, and weights and gradients at intervals of their own."""
    random = np.random.default_rng([seed, 14])
    every = {name: int(random.choice([1, 7, 70, 90, 130])) for name in ("weight/a", "weight/b", "gradient/a")}
    run, tensors = Run(), {name: random.normal(size=3) for name in every}
    for step in range(420):
        saved = {name: tensors[name].copy() for name, interval in every.items() if step % interval == 0}
        for name in saved:
            tensors[name] += random.choice([0.0, 1.0, 90.0], p=[0.5, 0.4, 0.1]) * random.normal(size=3)
        mode = Mode.TRAIN if step % 10 else Mode.EVAL if seed % 2 else Mode.TRAIN
        names = {"weights": [name for name in saved if name.startswith("weight")], "losses": ["loss"]}
        run.add(step, {"loss": np.array([1.0 / (step + 1)]), **saved}, mode=mode, collections=names)
    return run


def replayed(run: Run) -> Iterator[DebugStep]:
    """Return the steps of a run that the hook wrote."""
    writer = HookWriter().collections({"weights": ([], ["^weight"]), "losses": ([], ["loss"])})
    for step in run.steps:
        writer.step(step.step, step.tensors, mode=step.mode.value, mode_step=step.mode_step, at=step.at)
    files = MemoryFiles(writer.end().files)
    return complete_steps(files, find_run(files, "run"), StepLedger())


@pytest.mark.parametrize(
    ("rule", "given"), [("WeightUpdateRatio", {}), ("UnchangedTensor", {"num_steps": 2, "tensor_regex": ".*"})]
)
def test_rule_fires_as_its_naive_twin_on_mixed_save_intervals(rule: str, given: dict[str, Any]) -> None:
    firing = 0
    for seed in range(4):
        run = mixed_intervals(seed)
        judged = RULES[rule]
        asked, state = parameters(rule, **given), judged.state_type()
        found = []
        for step in replayed(run):
            before = state.fired
            judged.observe(state, step, asked)
            found += [step.step] if state.fired > before else []
        plain = {name: value for name, value in given.items() if name != "tensor_regex"}
        assert found == NAIVE[rule](run, **plain), f"run {seed}"
        firing += len(found)
    assert firing


def test_each_of_several_tokens_has_its_own_threshold() -> None:
    for seed in range(RUNS):
        run = random_run(seed)
        found = fired("NLPSequenceRatio", run, token_values="0, 1,2", token_thresholds_percent="50,35 , 40")
        assert found == NAIVE["NLPSequenceRatio"](run, (0, 1, 2), (50.0, 35.0, 40.0))
