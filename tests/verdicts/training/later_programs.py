"""More pairs, written when the conditions of the rules stood: 10 of the 17 broken ones were named, no repaired one.

After that a falling score of validation was added to a condition; so today's figures of them are not independent.
"""

import numpy as np

from tests.verdicts.training.fitting import (
    Adam,
    Fit,
    Log,
    Sgd,
    absolute_error,
    accuracy,
    binary_accuracy,
    binary_cross_entropy,
    cross_entropy,
    cross_entropy_of_chances,
    fit,
    squared_error,
)
from tests.verdicts.training.network import (
    BatchNorm,
    Convolution,
    Dense,
    Model,
    Recurrent,
    Softmax,
    linear,
    mlp,
    relu,
    sigmoid,
    tanh,
)
from tests.verdicts.training.tasks import (
    exclusive_or,
    flats,
    flowers,
    moons,
    patients,
    pixels,
    sequences,
    split,
    standard,
    surface,
    wave,
    words,
)

Rng = np.random.Generator
CLASSES = {"accuracy": accuracy}
TWO = {"accuracy": binary_accuracy}
ERROR = {"mae": absolute_error}


def features_of_another_file(rng: Rng, broken: bool) -> Log:
    """Inputs of a regression are joined to the targets of other rows."""
    task = surface(rng)
    if broken:
        task = task._replace(y=rng.permutation(task.y), vy=rng.permutation(task.vy))
    how = Fit(loss=squared_error, optimizer=Sgd(0.02), scores=ERROR, epochs=30)
    return fit(rng, mlp(rng, 6, 24, 1, scale=0.7), task, how)


def weights_far_too_large(rng: Rng, broken: bool) -> Log:
    """Weights are drawn with 10 times He's deviation, before tanh: all units are saturated."""
    model = mlp(rng, 60, 32, 32, 4, act=tanh, scale=10.0 if broken else 0.7)
    return fit(rng, model, words(rng), Fit(loss=cross_entropy, optimizer=Sgd(0.02), scores=CLASSES))


def momentum_of_one(rng: Rng, broken: bool) -> Log:
    """Momentum is 1.0: nothing slows down."""
    how = Fit(loss=squared_error, optimizer=Sgd(0.01, momentum=1.0 if broken else 0.9), scores=ERROR, epochs=30)
    return fit(rng, mlp(rng, 4, 24, 1), standard(flats(rng), targets=True), how)


def optimizer_of_another_model(rng: Rng, broken: bool) -> Log:
    """The optimizer was made before the model was built again."""
    flat = Convolution(rng, 6, 4, 4, flat=True)
    model = Model(Convolution(rng, 8, 1, 4), relu(), flat, relu(), Dense(rng, 64, 6))
    if broken:
        model.freeze(*model.layers)
    return fit(rng, model, pixels(rng), Fit(loss=cross_entropy, optimizer=Adam(3e-3), scores=CLASSES, epochs=10))


def output_is_not_activated(rng: Rng, broken: bool) -> Log:
    """A binary cross entropy of chances gets an output without a sigmoid."""
    model = mlp(rng, 2, 24, 1, act=tanh, last=linear() if broken else sigmoid())
    how = Fit(loss=binary_cross_entropy, optimizer=Sgd(0.1), scores=TWO, epochs=25)
    return fit(rng, model, moons(rng), how)


def relu_before_the_softmax(rng: Rng, broken: bool) -> Log:
    """Logits pass a ReLU, with a rate that kills units."""
    first, last = Dense(rng, 4, 24), Dense(rng, 24, 3)
    model = Model(first, relu(), last, *([relu()] if broken else []), Softmax())
    how = Fit(loss=cross_entropy_of_chances, optimizer=Sgd(1.0 if broken else 0.1), scores=CLASSES)
    return fit(rng, model, flowers(rng) if broken else standard(flowers(rng)), how)


def recurrence_that_forgets(rng: Rng, broken: bool) -> Log:
    """The recurrent weights are a hundredth: the last value alone counts."""
    model = Model(Recurrent(rng, 1, 16, gain=0.01 if broken else 0.95, act=tanh), Dense(rng, 16, 1))
    if broken:
        model.freeze(model.layers[0])
    how = Fit(loss=squared_error, optimizer=Adam(3e-3), scores=ERROR, clip=1.0, epochs=20)
    return fit(rng, model, sequences(rng), how)


def ten_times_the_rate_after_a_restart(rng: Rng, broken: bool) -> Log:
    """Half-way the rate is set to 4."""

    def schedule(step: int) -> float:
        return 4.0 if broken and step >= 140 else 0.1

    return fit(rng, mlp(rng, 64, 32, 6), pixels(rng), Fit(loss=cross_entropy, optimizer=Sgd(0.1), schedule=schedule))


def missing_values(rng: Rng, broken: bool) -> Log:
    """One input is NaN."""
    task = standard(flats(rng), targets=True)
    if broken:
        x = task.x.copy()
        x[11, 1] = np.nan
        task = task._replace(x=x)
    return fit(rng, mlp(rng, 4, 16, 1), task, Fit(loss=squared_error, optimizer=Adam(5e-3), scores=ERROR, epochs=15))


def one_label_for_all(rng: Rng, broken: bool) -> Log:
    """A parser gives nearly all training samples class 0; validation is right."""
    task = pixels(rng)
    if broken:
        task = task._replace(y=np.where(rng.random(len(task.y)) < 0.97, 0.0, task.y))
    return fit(rng, mlp(rng, 64, 32, 6), task, Fit(loss=cross_entropy, optimizer=Adam(2e-3), scores=CLASSES, epochs=15))


def labels_of_validation_off_by_one(rng: Rng, broken: bool) -> Log:
    """Classes of validation are numbered from 1."""
    task = pixels(rng)
    if broken:
        task = task._replace(vy=(task.vy + 1) % 6)
    return fit(rng, mlp(rng, 64, 32, 6), task, Fit(loss=cross_entropy, optimizer=Adam(2e-3), scores=CLASSES, epochs=15))


def epochs_far_too_few(rng: Rng, broken: bool) -> Log:
    """Six epochs with a rate for hundreds."""
    how = Fit(loss=cross_entropy, optimizer=Sgd(1e-3 if broken else 0.1), scores=CLASSES, epochs=6 if broken else 20)
    return fit(rng, mlp(rng, 60, 32, 4), words(rng), how)


def normalised_over_the_batch_of_two(rng: Rng, broken: bool) -> Log:
    """Batch normalisation with batches of two and a high rate."""
    model = Model(
        Dense(rng, 4, 24), BatchNorm(24), relu(), Dense(rng, 24, 24), BatchNorm(24), relu(), Dense(rng, 24, 3)
    )
    how = Fit(
        loss=cross_entropy, optimizer=Sgd(0.5 if broken else 0.1), scores=CLASSES, batch=2 if broken else 32, epochs=12
    )
    return fit(rng, model, standard(flowers(rng)), how)


def wave_beyond_the_inputs(rng: Rng, broken: bool) -> Log:
    """Inputs are divided by 1,000 by mistake."""
    task = wave(rng)
    if broken:
        task = task._replace(x=task.x / 1_000.0, vx=task.vx / 1_000.0)
    how = Fit(loss=squared_error, optimizer=Adam(5e-3), scores=ERROR, epochs=40)
    return fit(rng, mlp(rng, 1, 32, 1, act=tanh), task, how)


def sum_in_place_of_mean(rng: Rng, broken: bool) -> Log:
    """The loss is a sum over the batch, with a rate for its mean."""
    weight = 32.0 if broken else 1.0
    how = Fit(
        loss=lambda output, y: (weight * squared_error(output, y)[0], weight * squared_error(output, y)[1]),
        optimizer=Sgd(0.05),
        scores=ERROR,
        epochs=25,
    )
    return fit(rng, mlp(rng, 6, 32, 1), surface(rng), how)


def tanh_for_classes(rng: Rng, broken: bool) -> Log:
    """An output between -1 and 1 for a binary cross entropy."""
    model = mlp(rng, 2, 24, 1, act=tanh, last=tanh() if broken else sigmoid())
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(0.01), scores=TWO, epochs=30)
    return fit(rng, model, exclusive_or(rng), how)


def inputs_that_say_nothing(rng: Rng, broken: bool) -> Log:
    """The columns of the features were dropped, and those of identifiers kept."""
    task = patients(rng)
    noise = rng.normal(size=(len(task.x) + len(task.vx), 4))
    labels = np.concatenate([task.y, task.vy])
    task = split(noise, labels) if broken else standard(task)
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(1e-3), scores=TWO, epochs=20)
    return fit(rng, mlp(rng, 4, 8, 1, last=sigmoid()), task, how)


LATER = (
    features_of_another_file,
    weights_far_too_large,
    momentum_of_one,
    optimizer_of_another_model,
    output_is_not_activated,
    relu_before_the_softmax,
    recurrence_that_forgets,
    ten_times_the_rate_after_a_restart,
    missing_values,
    one_label_for_all,
    labels_of_validation_off_by_one,
    epochs_far_too_few,
    normalised_over_the_batch_of_two,
    wave_beyond_the_inputs,
    sum_in_place_of_mean,
    tanh_for_classes,
    inputs_that_say_nothing,
)
