"""Made histories of epochs with a label each: faults that the trained programs lack, and healthy twins near the border.

Labels and curves stood before the conditions that they ask for were written; none was changed afterwards.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from tests.verdicts.training.network import Array

Rng = np.random.Generator
Curves = Mapping[str, Array]
EPOCHS = 40
T = np.arange(EPOCHS, dtype=float)


class History(NamedTuple):
    """What a run is, and what it recorded each epoch."""

    is_broken: bool
    curves: Curves


def _fall(start: float, end: float, pace: float) -> Array:
    return np.asarray(end + (start - end) * np.exp(-T / pace))


def _near(rng: Rng, values: Array, share: float = 0.01) -> Array:
    return np.asarray(values * (1.0 + share * rng.normal(size=values.size)))


def _two_softmaxes(accuracy: Array, classes: int) -> Array:
    """Confident answers that pass a softmax once more: a loss of ln(e + k - 1) - 1 where right, 1 more where wrong."""
    return np.asarray(np.log(np.e + classes - 1.0) - accuracy)


def overfit(rng: Rng) -> Curves:
    """The training loss goes to 0; that of validation triples after its minimum, and its score stands."""
    val = np.where(T < 5, 1.4 - 0.08 * T, 1.0 + 0.055 * (T - 5))
    train, score = _fall(1.5, 0.0, 5.0), 0.7 - 0.4 * np.exp(-T / 3.0)
    return {"loss": train, "accuracy": 1.0 - 0.7 * np.exp(-T / 4.0), "val_loss": _near(rng, val), "val_accuracy": score}


def overfit_of_losses_alone(rng: Rng) -> Curves:
    curves = overfit(rng)
    return {name: curves[name] for name in ("loss", "val_loss")}


def wrong_labels_by_heart(rng: Rng) -> Curves:
    """30 % of the labels are wrong: the score of validation rises first, and is lost when they are learned."""
    score = 0.6 * (1.0 - np.exp(-T / 2.0)) - 0.15 * np.clip((T - 8) / 25, 0.0, 1.0)
    train = {"loss": _fall(2.3, 0.04, 6.0), "accuracy": 1.0 - 0.9 * np.exp(-T / 8.0)}
    return train | {"val_loss": _near(rng, 1.6 + 0.045 * T), "val_accuracy": _near(rng, score)}


def two_softmaxes_of_ten_classes(rng: Rng) -> Curves:
    score = _near(rng, 0.9 - 0.8 * np.exp(-T / 6.0), 0.003)
    return {
        "loss": _two_softmaxes(score, 10),
        "accuracy": score,
        "val_loss": _two_softmaxes(score - 0.03, 10),
        "val_accuracy": score - 0.03,
    }


def two_softmaxes_of_a_hundred_classes(rng: Rng) -> Curves:
    score = _near(rng, 0.96 - 0.95 * np.exp(-T / 4.0), 0.003)
    return {"loss": _two_softmaxes(score, 100), "accuracy": score}


def two_softmaxes_that_learn_slowly(rng: Rng) -> Curves:
    score = 0.45 - 0.35 * np.exp(-T / 20.0)
    return {"loss": _near(rng, 2.30 - 0.8 * (score - 0.1), 0.002), "accuracy": _near(rng, score)}


def rate_far_too_low(rng: Rng) -> Curves:
    loss, score = 2.303 - 0.004 * T, 0.1 + 0.003 * T
    train = {"loss": _near(rng, loss, 0.001), "accuracy": _near(rng, score)}
    return train | {"val_loss": _near(rng, loss, 0.001), "val_accuracy": _near(rng, score)}


def rate_far_too_low_in_per_cent(rng: Rng) -> Curves:
    loss, score = 1.386 - 0.003 * T, 25.0 + 0.35 * T
    train = {"loss": _near(rng, loss, 0.001), "accuracy": _near(rng, score)}
    return train | {"val_loss": _near(rng, loss, 0.001), "val_accuracy": _near(rng, score)}


def normalised_in_the_wrong_mode(rng: Rng) -> Curves:
    """Training converges; validation jumps between bad and worse."""
    val, score = rng.uniform(1.8, 4.4, EPOCHS), rng.uniform(0.2, 0.52, EPOCHS)
    return {
        "loss": _fall(1.5, 0.0, 6.0),
        "accuracy": 0.95 - 0.65 * np.exp(-T / 5.0),
        "val_loss": val,
        "val_accuracy": score,
    }


def any_labels_by_heart(rng: Rng) -> Curves:
    """Shuffled labels, learned, and nothing recorded of validation: nothing in the curves says so."""
    return {"loss": _near(rng, _fall(2.3, 0.04, 8.0)), "accuracy": 1.0 - 0.9 * np.exp(-T / 9.0)}


def validation_of_another_distribution(rng: Rng) -> Curves:
    """The score of validation reaches its best early and falls by a quarter while training goes on."""
    score = 0.75 - 0.4 * np.exp(-T / 2.0) - 0.25 * np.clip((T - 6) / 25, 0.0, 1.0)
    train = {"loss": _fall(1.6, 0.05, 7.0), "accuracy": 0.98 - 0.6 * np.exp(-T / 6.0)}
    return train | {"val_loss": _near(rng, 0.8 + 0.04 * np.clip(T - 5, 0.0, 40.0)), "val_accuracy": _near(rng, score)}


def mild_overfitting(rng: Rng) -> Curves:
    """Worth an earlier stop, no more: the loss of validation is a fifth above its minimum."""
    val = np.where(T < 12, 0.95 - 0.036 * T, 0.52 + 0.0037 * (T - 12))
    score = _near(rng, 0.83 - 0.4 * np.exp(-T / 4.0))
    return {"loss": _fall(1.1, 0.12, 8.0), "accuracy": score + 0.12, "val_loss": _near(rng, val), "val_accuracy": score}


def confident_and_still_better(rng: Rng) -> Curves:
    """The loss of validation nearly doubles by over-confident errors, and its score goes on to gain."""
    score = 0.70 - 0.4 * np.exp(-T / 3.0) + 0.07 * np.clip((T - 6) / 30, 0.0, 1.0)
    val = np.where(T < 6, 1.5 - 0.115 * T, 0.81 + 0.022 * (T - 6))
    return {"loss": _fall(1.7, 0.01, 6.0), "accuracy": score + 0.2, "val_loss": _near(rng, val), "val_accuracy": score}


def fine_tuned_text_model(rng: Rng) -> Curves:
    """A pretrained model: the loss of validation ends two thirds above its minimum at the same score."""
    val = np.where(T < 3, 0.36, 0.36 + 0.0068 * (T - 3))
    score = _near(rng, np.full(EPOCHS, 0.885), 0.004)
    return {
        "loss": _fall(0.41, 0.02, 5.0),
        "accuracy": 1.0 - 0.15 * np.exp(-T / 5.0),
        "val_loss": _near(rng, val),
        "val_accuracy": score,
    }


def flat_start_of_fine_tuning(rng: Rng) -> Curves:
    late = np.clip(T - 10, 0.0, 40.0)
    loss, score = 1.3 + 1.0 * np.exp(-late / 8.0), 0.62 - 0.5 * np.exp(-late / 8.0)
    return {"loss": _near(rng, loss), "accuracy": score, "val_loss": _near(rng, loss), "val_accuracy": score}


def validation_of_forty_samples(rng: Rng) -> Curves:
    score = np.clip(rng.binomial(40, 0.8, EPOCHS) / 40 - 0.4 * np.exp(-T / 3.0), 0.0, 1.0)
    val = np.abs(0.62 + 0.12 * rng.normal(size=EPOCHS) + 0.9 * np.exp(-T / 3.0))
    return {
        "loss": _fall(1.8, 0.08, 6.0),
        "accuracy": 0.97 - 0.7 * np.exp(-T / 4.0),
        "val_loss": val,
        "val_accuracy": score,
    }


def high_rate_before_its_decay(rng: Rng) -> Curves:
    """Batch normalisation at a high rate: validation jumps, and settles when the rate falls."""
    jumps = T < 28
    val = np.where(jumps, 0.9 + rng.uniform(0.0, 1.2, EPOCHS), 0.42)
    score = np.where(jumps, rng.uniform(0.5, 0.83, EPOCHS), 0.92)
    return {
        "loss": np.where(jumps, _fall(1.8, 0.35, 5.0), 0.05),
        "accuracy": np.where(jumps, 0.88 - 0.6 * np.exp(-T / 4.0), 0.98),
        "val_loss": _near(rng, val),
        "val_accuracy": score,
    }


def high_rate_throughout(rng: Rng) -> Curves:
    """The same without a decay: validation jumps until the end, and is good now and then."""
    return {
        "loss": _fall(1.8, 0.3, 5.0),
        "accuracy": 0.9 - 0.6 * np.exp(-T / 4.0),
        "val_loss": 0.5 + rng.uniform(0.0, 1.3, EPOCHS),
        "val_accuracy": rng.uniform(0.5, 0.86, EPOCHS),
    }


def small_rate_with_warm_up(rng: Rng) -> Curves:
    late = np.clip(T - 5, 0.0, 40.0)
    loss, score = 1.75 + 0.55 * np.exp(-late / 12.0), 0.42 - 0.32 * np.exp(-late / 12.0)
    return {"loss": _near(rng, loss), "accuracy": score, "val_loss": _near(rng, loss), "val_accuracy": score}


def smoothed_labels(rng: Rng) -> Curves:
    """0.1 of ten classes: the loss has a floor of 0.50."""
    score = 0.97 - 0.87 * np.exp(-T / 4.0)
    return {"loss": _near(rng, _fall(2.3, 0.56, 5.0), 0.003), "accuracy": score}


def much_smoothed_labels_of_three_classes(rng: Rng) -> Curves:
    """0.3 of three classes: the floor of 0.64 is near the 0.74 of a softmax over a softmax."""
    score = 0.985 - 0.6 * np.exp(-T / 4.0)
    return {"loss": _near(rng, _fall(1.1, 0.66, 5.0), 0.003), "accuracy": score}


def smoothed_labels_of_a_thousand_classes(rng: Rng) -> Curves:
    score = 0.85 - 0.85 * np.exp(-T / 8.0)
    return {"loss": _near(rng, _fall(6.9, 1.7, 8.0), 0.003), "accuracy": score}


def linear_model_that_is_right_before_it_is_sure(rng: Rng) -> Curves:
    """A small rate: nine of ten answers are right while the loss is still high, and falls."""
    loss = _fall(2.3, 0.7, 45.0)
    return {"loss": _near(rng, loss, 0.002), "accuracy": 0.9 - 0.8 * np.exp(-T / 3.0)}


def mixed_images(rng: Rng) -> Curves:
    """Mixup: the loss of training stays high, and that of validation shows what was learned."""
    score = 0.93 - 0.8 * np.exp(-T / 6.0)
    train = {"loss": _near(rng, _fall(2.25, 1.5, 6.0)), "accuracy": 0.62 - 0.5 * np.exp(-T / 6.0)}
    return train | {"val_loss": _near(rng, _fall(2.0, 0.45, 6.0)), "val_accuracy": score}


def penalty_in_the_loss(rng: Rng) -> Curves:
    """The loss holds the penalty of large weights, 1.2 at the end."""
    score = 0.95 - 0.85 * np.exp(-T / 4.0)
    return {"loss": _near(rng, _fall(4.4, 1.4, 7.0), 0.003), "accuracy": score}


def distilled(rng: Rng) -> Curves:
    """Soft targets of a teacher, with an entropy of 0.9."""
    score = 0.93 - 0.83 * np.exp(-T / 4.0)
    return {"loss": _near(rng, _fall(2.3, 0.95, 5.0), 0.003), "accuracy": score}


def language_model(rng: Rng) -> Curves:
    loss, score = _fall(10.8, 3.4, 5.0), 0.38 - 0.35 * np.exp(-T / 5.0)
    return {"loss": _near(rng, loss), "accuracy": score, "val_loss": _near(rng, loss), "val_accuracy": score}


def short_fine_tuning_of_a_language_model(rng: Rng) -> Curves:
    """The loss falls by a twelfth on a straight line: the model knew the language before."""
    loss = 1.42 - 0.003 * T
    return {
        "loss": _near(rng, loss, 0.01),
        "val_loss": _near(rng, loss + 0.03, 0.004),
        "val_accuracy": 0.64 + 0.0005 * T,
    }


def a_thousand_classes_that_take_long(rng: Rng) -> Curves:
    loss, score = _fall(6.9, 4.3, 25.0), 0.22 - 0.22 * np.exp(-T / 25.0)
    return {"loss": _near(rng, loss), "accuracy": score, "val_loss": _near(rng, loss), "val_accuracy": score}


def spike_of_validation_at_the_end(rng: Rng) -> Curves:
    val = _near(rng, _fall(1.4, 0.5, 5.0))
    val[-3:] *= 3.0
    score = 0.86 - 0.5 * np.exp(-T / 4.0)
    score[-3:] -= 0.15
    return {
        "loss": _fall(1.5, 0.1, 6.0),
        "accuracy": 0.97 - 0.6 * np.exp(-T / 5.0),
        "val_loss": val,
        "val_accuracy": score,
    }


BROKEN: tuple[Callable[[Rng], Curves], ...] = (
    overfit,
    overfit_of_losses_alone,
    wrong_labels_by_heart,
    two_softmaxes_of_ten_classes,
    two_softmaxes_of_a_hundred_classes,
    two_softmaxes_that_learn_slowly,
    rate_far_too_low,
    rate_far_too_low_in_per_cent,
    normalised_in_the_wrong_mode,
    any_labels_by_heart,
    validation_of_another_distribution,
)
HEALTHY: tuple[Callable[[Rng], Curves], ...] = (
    mild_overfitting,
    confident_and_still_better,
    fine_tuned_text_model,
    flat_start_of_fine_tuning,
    validation_of_forty_samples,
    high_rate_before_its_decay,
    high_rate_throughout,
    small_rate_with_warm_up,
    smoothed_labels,
    much_smoothed_labels_of_three_classes,
    smoothed_labels_of_a_thousand_classes,
    linear_model_that_is_right_before_it_is_sure,
    mixed_images,
    penalty_in_the_loss,
    distilled,
    language_model,
    short_fine_tuning_of_a_language_model,
    a_thousand_classes_that_take_long,
    spike_of_validation_at_the_end,
)


@cache
def histories() -> Mapping[str, History]:
    """Return all histories by name, the same ones at each call."""
    found = {}
    for number, make in enumerate((*BROKEN, *HEALTHY)):
        found[make.__name__] = History(number < len(BROKEN), make(np.random.default_rng(number)))
    return found
