"""Random runs of coarse numbers: what rules measure of them is often the same, and exactly what a threshold is."""

from functools import cache
from typing import Any

import numpy as np

from tests.support.steps import Run, reduced
from trainguard.formats.tensors.step_view import Mode

Random = np.random.Generator
STEPS = 14
QUARTERS = (-0.5, -0.25, 0.0, 0.0, 0.25, 0.5, 1.0)
SCALARS = ("loss", "train-rmse", "validation-rmse")
CURVE_COLLECTIONS = {"losses": ["loss"], "metrics": ["accuracy"], "gradient_norm": ["norm/a", "norm/b"]}


@cache
def coarse_run(seed: int) -> Run:
    """Return a run of tensors with few entries, each a quarter or so, of which some have reductions alone."""
    random = np.random.default_rng([seed, 3])
    run, other = Run(), Run()
    run.others["other"] = other
    state: dict[str, Any] = {"weight": random.choice(QUARTERS, 6), "step": 0, "at": 1_000.0}
    with_modes = seed % 2 == 1
    for _ in range(STEPS):
        state["step"] += int(random.integers(1, 4))
        state["at"] += float(random.choice([60.0, 120.0, 1_800.0]))
        mode = random.choice(np.array([Mode.TRAIN, Mode.TRAIN, Mode.EVAL], object)) if with_modes else Mode.GLOBAL
        tensors = {name: np.asarray(each) for name, each in _tensors(random, state).items() if random.random() < 0.9}
        given = {"mode": mode, "at": state["at"], "collections": _collections(tensors)}
        run.add(state["step"], **_saved(random, tensors), **given)
        if random.random() < 0.9:
            changed = {name: _changed(random, each) for name, each in tensors.items()}
            other.add(state["step"], **_saved(random, changed), **given)
    return run


def _saved(random: Random, tensors: dict[str, Any]) -> dict[str, Any]:
    """Save most tensors in full, and of the others some reductions alone; a few cannot be read, or are too large."""
    reductions: dict[str, dict[str, float]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, values in tensors.items():
        if values.dtype.kind == "f" and values.size and random.random() < 0.25:
            every = reduced(values)
            kept = random.choice(list(every), int(random.integers(1, 4)), replace=False).tolist()
            reductions[name] = every if random.random() < 0.2 else {kind: every[kind] for kind in kept}
            shapes |= {name: values.shape} if random.random() < 0.8 else {}
    full = {name: values for name, values in tensors.items() if name not in reductions}
    bad = frozenset(name for name in tensors if random.random() < 0.01)
    kinds = {"broken": bad} if random.random() < 0.5 else {"too_large": bad}
    return {"tensors": full, "reductions": reductions, "shapes": shapes, **kinds}


def _changed(random: Random, values: Any) -> Any:
    if values.dtype.kind != "f" or random.random() < 0.97:
        return values
    return values + random.choice([0.0, 0.25]) if random.random() < 0.8 else values[:-1]


def _collections(tensors: dict[str, Any]) -> dict[str, list[str]]:
    return {
        "gradients": [name for name in tensors if name.startswith("gradient/")],
        "weights": [name for name in tensors if name.startswith("weight")],
        "losses": [name for name in tensors if "loss" in name or name.endswith("-rmse")],
        "mine": [name for name in tensors if name.startswith(("gradient/", "flags", "text", "whole"))],
        "metrics": [name for name in tensors if name.endswith("-rmse")],
    }


def _tensors(random: Random, state: dict[str, Any]) -> dict[str, Any]:
    state["weight"] = state["weight"] + random.choice([0.0, 0.0, 0.5]) * random.choice(QUARTERS, 6)
    batch = int(random.choice([4, 8]))
    labels = random.integers(0, 3, batch)
    missed = random.random(batch) < random.choice([0.0, 0.25, 0.5])
    predictions = np.where(missed, (labels + 1) % 3, labels)
    gradient = random.choice(QUARTERS, (2, 5)) * random.choice([0.0, 1.0, 1.0])
    if random.random() < 0.15:
        gradient.flat[: int(random.integers(1, 3))] = random.choice([np.nan, np.inf, -np.inf])
    found = {
        "gradient/a": gradient,
        "gradient/b": np.abs(random.choice(QUARTERS, 4)) + random.choice([0.0, 0.25]),
        "weight/a": state["weight"].reshape(2, 3),
        "vector_loss": random.choice([0.5, 1.0], 4),
        "a_relu_input": random.choice([-1.0, 1.0], (2, 4)),
        "b_relu_input": random.choice([-1.0, 1.0, 2.0], (2, 4)) * random.choice([0.0, 1.0, 4.0], p=[0.1, 0.5, 0.4]),
        "relu_output_0": random.integers(0, 2, (4, 4)) * random.choice([0.0, 1.0]),
        "x_tanh_input": random.choice([-9.5, -9.4999, 0.0, 9.4999, 9.5], (4, 2, 2)),
        "x_sigmoid_input": random.choice([-23.0, 0.0, 16.99999, 17.0], (4, 4)),
        "labels": labels + random.choice([0.0, 0.25]),
        "predictions": predictions * 1.0,
        "scores": np.eye(3)[predictions],
        "hybridsequential0_input_0": random.choice([-0.25, 0.0, 0.25, 0.5], (batch, 3, 2)),
        "embedding0_input_0": random.integers(0, 3, 8),
        "trees/Node": np.arange(int(random.choice([1, 2, 4, 8, 15, 16, 32]))),
        "trees/Split": np.array([0.5, np.nan]),
        "text": np.array([random.choice(["same", "same", "changed"])], object),
        "flags": random.random(4) < 0.5,
        "whole": random.integers(0, 2, 4),
        "none": np.empty((0, 3)),
    }
    found |= {name: np.array([random.choice([0.0, 0.5, 0.75, 1.0, 1.0, 1.25, 2.0])]) for name in SCALARS}
    count = int(random.integers(2, 8))
    return found | {f"feature_importance/weight/f{each}": [random.choice([0.25, 0.5, 2.0])] for each in range(count)}


@cache
def coarse_curve(seed: int) -> Run:
    """Return a run of scalars on few levels: losses, scores and norms of gradients that stand, fall, rise or jump."""
    random = np.random.default_rng([seed, 4])
    steps, run = int(random.choice([12, 20, 33, 64, 90])), Run()
    train, held = _levels(random, steps, 0.25), _levels(random, steps, 0.25)
    score, held_score = (np.clip(_levels(random, steps, 0.0625) / 4.0, 0.0, 1.0) for _ in range(2))
    norms = [10.0 ** np.round(_levels(random, steps, 1.0)) for _ in range(2)]
    sign = -1.0 if seed % 7 == 6 else 1.0
    for step in range(steps):
        of_step = {"loss": [sign * train[step]]}
        if seed % 3:
            of_step["accuracy"] = [score[step]]
        if seed % 4 == 1:
            of_step |= {"norm/a": [norms[0][step]], "norm/b": [norms[1][step]]}
        run.add(2 * step, of_step, mode=Mode.TRAIN, collections=CURVE_COLLECTIONS)
        if seed % 2:
            seen = {"loss": [sign * held[step]]} | ({"accuracy": [held_score[step]]} if seed % 5 else {})
            run.add(2 * step + 1, seen, mode=Mode.EVAL, collections=CURVE_COLLECTIONS)
    return run


def _levels(random: Random, steps: int, unit: float) -> Any:
    """Return multiples of a unit, 4 at most: of up to three pieces, with a few values elsewhere."""
    ends = sorted({steps, *random.integers(1, steps, int(random.integers(0, 3))).tolist()})
    pieces, level, slow = [], float(random.choice([1.0, 2.0, 4.0])), int(random.choice([1, 2, 5]))
    for begin, end in zip([0, *ends], ends, strict=False):
        way = float(random.choice([-2.0, -1.0, -1.0, 0.0, 0.0, 1.0])) * unit
        piece = np.clip(level + way * (np.arange(end - begin) // slow), unit, 4.0)
        pieces.append(piece)
        level = float(random.choice([piece[-1], piece[-1], 4.0, unit]))
    found = np.concatenate(pieces)
    found[random.random(steps) < float(random.choice([0.0, 0.1, 0.3]))] += unit
    if random.random() < 0.2:
        found[int(random.integers(steps))] = float(random.choice([32.0, 8.0, np.nan, np.inf]))
    return found
