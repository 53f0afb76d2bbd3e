"""How long a training will be, as its configuration says it: in steps, or in epochs by the steps that these take."""

import itertools
import math
from collections.abc import Mapping, Sequence

from trainguard.formats.tensors.scalars.rows import LARGEST_STEP, Recording

_STEPS = ("max_steps", "total_steps", "max_train_steps", "num_train_steps", "num_training_steps", "train_steps")
_EPOCHS = ("num_train_epochs", "max_epochs", "num_epochs", "n_epochs", "total_epochs", "epochs")
# What a run logs of the epoch that it is in.
_EPOCH = ("epoch", "train/epoch", "trainer/epoch")


def is_length(name: str) -> bool:
    return _plain(name) in {*_STEPS, *_EPOCHS}


def named_steps(given: Mapping[str, object]) -> int | None:
    """Return the number of steps that a configuration names; None where it counts epochs, or says none."""
    return _first(given, _STEPS)


def total_steps(given: Mapping[str, object], rows: Sequence[Recording]) -> int | None:
    """Return how many steps a run takes: as it is named, else its epochs by the steps of those that were logged."""
    steps, epochs = named_steps(given), _first(given, _EPOCHS)
    if steps is not None or epochs is None:
        return steps
    name = next((each for each in _EPOCH if any(each in row.values for row in rows)), None)
    logged = [(row.step, row.values[name]) for row in rows if name is not None and name in row.values]
    return _by_epochs([each for each in logged if math.isfinite(each[1])], epochs)


def _by_epochs(logged: Sequence[tuple[int, float]], epochs: int) -> int | None:
    """Return the last step by when each epoch was first logged; None before two of them.

    Epochs that are logged once each are logged at their end: counted from 0, the last one is ``epochs`` - 1.
    """
    earlier = (-math.inf, *(epoch for _, epoch in logged))
    begun = [(step, epoch) for (step, epoch), before in zip(logged, earlier, strict=False) if epoch > before]
    if len(begun) < 2 or any(later[0] <= earlier[0] for earlier, later in itertools.pairwise(begun)):
        return None
    at_ends = len(begun) == len(logged) and begun[0][1] == 0.0 and all(each.is_integer() for _, each in begun)
    (first, start), (last, reached) = begun[0], begun[-1]
    total = last + (last - first) / (reached - start) * (epochs - reached - at_ends)
    return round(total) if last <= total <= LARGEST_STEP else None


def _first(given: Mapping[str, object], names: Sequence[str]) -> int | None:
    found = {_plain(name): value for name, value in given.items()}
    counts = (_count(found[name]) for name in names if name in found)
    return next((each for each in counts if each is not None), None)


def _plain(name: str) -> str:
    """Return a name as trainers write it: ``max_steps`` of ``args/max-steps`` and ``--max_steps``."""
    return name.replace(".", "/").rpartition("/")[2].lower().replace("-", "_").lstrip("_")


def _count(value: object) -> int | None:
    if isinstance(value, str):
        text = value.strip().strip('"')
        value = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_STEP)) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST_STEP:
        return None
    return int(value) if value == int(value) else None
