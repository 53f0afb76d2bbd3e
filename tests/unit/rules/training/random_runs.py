"""Random runs of everything that rules look at, sick and healthy, with steps and tensors missing here and there."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from tests.support.steps import Run
from trainguard.formats.tensors.step_view import Mode

Random = np.random.Generator


# Parameters with which a rule has something to look at in these runs.
SET_UP: Mapping[str, Mapping[str, Any]] = {
    "AllZero": {"collection_names": "gradients"},
    "TensorVariance": {"collection_names": "gradients", "max_threshold": "1e-30"},
    "UnchangedTensor": {"tensor_regex": "frozen"},
    "SimilarAcrossRuns": {"other_trial": "other"},
    "ClassImbalance": {"samples": 20, "threshold_misprediction": 0.2},
    "CheckInputImages": {"threshold_samples": 50, "threshold_mean": 0.02},
}


@cache
def random_run(seed: int) -> Run:
    """Return a run of up to 20 steps, of one mode or of two, and beside it another run that is mostly the same."""
    random = np.random.default_rng(seed)
    run, other = Run(), Run()
    run.others["other"] = other
    with_modes, step, at = bool(random.integers(2)), 0, 1_000.0
    state: dict[str, Any] = {
        "weight": random.normal(size=(3, 5)).astype(np.float32),
        "frozen": random.normal(size=4),
        "loss": 1.0,
        "fall": random.choice([0.8, 0.99, 1.0, 1.04, 1.2]),
        "modes": {Mode.TRAIN: 0, Mode.EVAL: 0, Mode.GLOBAL: 0},
    }
    for _ in range(int(random.integers(5, 20))):
        step += int(random.integers(1, 5))
        at += float(random.choice([1.0, 60.0, 1799.0, 1800.0, 1801.0, 4000.0], p=[0.4, 0.35, 0.1, 0.05, 0.05, 0.05]))
        mode = (Mode.EVAL if random.random() < 0.3 else Mode.TRAIN) if with_modes else Mode.GLOBAL
        state["modes"][mode] += int(random.integers(1, 3))
        tensors = {name: value for name, value in _tensors(random, state).items() if random.random() < 0.85}
        how = {"mode": mode, "mode_step": state["modes"][mode], "at": at, "collections": _collections(tensors)}
        run.add(step, tensors, **how)
        if random.random() < 0.9:
            other.add(step, {name: _copy(random, value) for name, value in tensors.items()}, **how)
    return run


def _copy(random: Random, value: Any) -> Any:
    if value.dtype.kind == "f" and random.random() < 0.02:
        return value * (1 + random.choice([1e-7, 1e-3]))
    return value


def _collections(tensors: dict[str, Any]) -> dict[str, list[str]]:
    return {
        "gradients": [name for name in tensors if name.startswith("gradient/")],
        "weights": [name for name in tensors if name.startswith("weight")],
        "losses": [name for name in tensors if "loss" in name or name.endswith("-rmse")],
        "absent": ["no_such_tensor"],
    }


def _tensors(random: Random, state: dict[str, Any]) -> dict[str, Any]:
    state["weight"] = state["weight"] + random.choice([0.0, 1e-9, 0.1, 30.0]) * random.normal(size=(3, 5))
    state["loss"] *= state["fall"] * random.uniform(0.95, 1.05)
    batch, classes = int(random.integers(2, 40)), int(random.integers(2, 4))
    labels = random.integers(0, classes, batch)
    missed = random.random(batch) < random.choice([0.0, 0.02, 0.3])
    relu = np.maximum(random.normal(size=(batch, 3, 4)) - random.choice([0.0, 3.0, 9.0], size=(3, 4)), 0)
    noisy = random.normal(size=(2, 11)) * 10.0 ** random.integers(-9, 1)
    if random.random() < 0.06:
        noisy[0, 3] = random.choice([np.nan, np.inf, -np.inf])
    tensors: dict[str, Any] = {
        "gradient/a": noisy.astype(random.choice(["float16", "float32", "float64"])),
        "gradient/b": random.normal(size=9) * random.choice([0.0, 1.0]),
        "weight/a": np.where(random.random() < 0.02, np.nan, state["weight"]).astype(np.float32),
        "weight/frozen": state["frozen"],
        "loss": np.array([state["loss"]]),
        "vector_loss": state["loss"] * random.uniform(0.5, 1.5, size=6),
        "train-rmse": np.array([state["loss"]]),
        "validation-rmse": np.array([state["loss"] * random.choice([1.0, 1.05, 1.2, 0.0])]),
        "a_relu_input_0": random.normal(size=(4, 6)) * random.choice([1.0, 2.0, 5.0]),
        "b_relu_input_0": random.normal(size=(4, 6)) * random.choice([1.0, 0.0], p=[0.9, 0.1]),
        "relu_output_0": relu,
        "flat_relu_output": random.normal(size=batch),
        "x_tanh_input_0": random.normal(size=(batch, 5)) * random.choice([1.0, 40.0]),
        "x_sigmoid_input_0": random.normal(size=(batch, 2, 3)) * random.choice([1.0, 90.0]),
        "labels": labels,
        "predictions": np.where(missed, (labels + 1) % classes, labels) + random.choice([0.0, 0.2]),
        "hybridsequential0_input_0": random.normal(random.choice([0.0, 0.1, 0.3]), size=(batch, 3, 2, 2)),
        "embedding0_input_0": random.integers(0, random.choice([2, 3]), size=(2, batch)),
        "trees/Node": np.arange(int(random.integers(1, 80))),
        "text": np.array(["same" if random.random() < 0.9 else "changed"], dtype=object),
        "flags": random.random(3) < 0.5,
    }
    features = random.dirichlet(np.full(int(random.integers(2, 7)), 0.7))
    return tensors | {f"feature_importance/weight/f{each}": np.array([x]) for each, x in enumerate(features)}
