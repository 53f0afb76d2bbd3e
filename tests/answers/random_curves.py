"""Random training runs of scalars: losses, scores, learning rate and norms that fall, stand, rise, jump or break."""

from functools import cache

import numpy as np

from tests.support.steps import Run
from trainguard.formats.tensors.step_view import Mode

Random = np.random.Generator
COLLECTIONS = {
    "losses": ["loss"],
    "metrics": ["accuracy"],
    "learning_rate": ["lr"],
    "gradient_norm": ["grad_norm"],
}


@cache
def random_curves(seed: int) -> Run:
    """Return a run of 30 to 160 steps with validation now and then; its curve has up to three pieces."""
    random = np.random.default_rng(seed)
    steps = int(random.integers(30, 160))
    loss = _curve(random, steps) * float(random.choice([1e-3, 1.0, 1.0, 50.0]))
    noise = float(random.choice([0.0, 0.01, 0.05, 0.2]))
    loss *= 1.0 + noise * random.normal(size=steps)
    score = (1.0 - loss / (loss[0] * float(random.uniform(1.1, 3.0)))).clip(0.0, 1.0)
    behind = 1.0 + float(random.choice([0.05, 0.3])) + np.linspace(0.0, float(random.choice([0.0, 0.0, 3.0])), steps)
    rate = float(random.choice([1e-5, 1e-3, 0.1])) * np.linspace(1.0, float(random.choice([1.0, 0.0])), steps)
    norm = np.exp(random.normal(0.0, 0.3, steps)) * np.logspace(0.0, float(random.choice([0.0, 0.0, 3.0, -3.0])), steps)
    loss = _broken(random, loss)
    every, run = int(random.choice([1, 3, 10])), Run()
    for step in range(steps):
        trained = {"loss": [loss[step]], "lr": [rate[step]], "grad_norm": [norm[step]]}
        if seed % 2:
            trained["accuracy"] = [score[step]]
        run.add(step, trained, mode=Mode.TRAIN, collections=COLLECTIONS)
        if seed % 3 and step % every == 0:
            seen = {"loss": [loss[step] * behind[step]], "accuracy": [0.9 * score[step]]}
            run.add(step, seen, mode=Mode.EVAL, collections=COLLECTIONS)
    return run


def _curve(random: Random, steps: int) -> np.ndarray:
    """Return levels above 0: pieces that each fall, stand, rise or jump from where the last one ended."""
    pieces, level = [], 2.3
    ends = sorted({steps, *random.integers(1, steps, int(random.integers(0, 3))).tolist()})
    for begin, end in zip([0, *ends], ends, strict=False):
        at = np.arange(end - begin) / max(1, steps)
        kind = int(random.integers(6))
        if kind in {0, 1}:
            piece = level * (0.1 + 0.9 * np.exp(-float(random.uniform(1.0, 12.0)) * at))
        elif kind == 2:
            piece = np.full(at.size, level)
        elif kind == 3:
            piece = level * np.exp(float(random.uniform(0.2, 4.0)) * at)
        elif kind == 4:
            piece = np.full(at.size, level * float(random.choice([0.5, 2.0, 20.0])))
        else:
            piece = level * (1.0 + 0.5 * np.sin(20.0 * at))
        pieces.append(piece)
        level = float(piece[-1]) if piece.size else level
    return np.concatenate(pieces)


def _broken(random: Random, loss: np.ndarray) -> np.ndarray:
    """Return losses, of some runs with a spike, or without a number from some step on."""
    kind, at = int(random.integers(6)), int(random.integers(len(loss)))
    if kind == 0:
        loss[at] *= float(random.choice([5.0, 30.0]))
    if kind == 1:
        loss[at:] = np.nan
    return loss
