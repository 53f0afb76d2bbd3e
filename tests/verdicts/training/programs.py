"""Programs as pairs: each is broken in one way that people meet, or repaired. What is wrong is in its docstring.

They are apart from ``tests/training/recorded``, on whose first half thresholds were chosen: other models, other data,
another framework.
"""

import numpy as np

from tests.verdicts.training.fitting import (
    Adam,
    Fit,
    Log,
    Loss,
    Sgd,
    absolute_error,
    accuracy,
    binary_accuracy,
    binary_cross_entropy,
    cross_entropy,
    cross_entropy_of_chances,
    fit,
    one_hot,
    plain_log,
    squared_error,
)
from tests.verdicts.training.network import (
    Array,
    BatchNorm,
    Convolution,
    Dense,
    Dropout,
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
    defects,
    exclusive_or,
    flats,
    flowers,
    moons,
    patients,
    pixels,
    sequences,
    standard,
    surface,
    wave,
    words,
)

Rng = np.random.Generator
CLASSES = {"accuracy": accuracy}
TWO = {"accuracy": binary_accuracy}
ERROR = {"mae": absolute_error}


def rate_too_high(rng: Rng, broken: bool) -> Log:
    """Momentum and a learning rate of 3 on images."""
    model = mlp(rng, 64, 48, 6)
    how = Fit(loss=cross_entropy, optimizer=Sgd(3.0 if broken else 0.05, momentum=0.9), scores=CLASSES)
    return fit(rng, model, pixels(rng), how)


def rate_of_zero(rng: Rng, broken: bool) -> Log:
    """A schedule that divides integers gives 0."""
    how = Fit(loss=cross_entropy, optimizer=Adam(0.0 if broken else 3e-3), scores=CLASSES, epochs=15)
    return fit(rng, mlp(rng, 60, 32, 4), words(rng), how)


def rate_of_a_millionth(rng: Rng, broken: bool) -> Log:
    """Adam with 1e-6."""
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(1e-6 if broken else 5e-3), scores=TWO, epochs=30)
    return fit(rng, mlp(rng, 2, 32, 1, act=tanh, last=sigmoid()), moons(rng), how)


def frozen_layers(rng: Rng, broken: bool) -> Log:
    """All layers but the last are frozen, and the ReLU before the last is dead for every sample."""
    body, head = Dense(rng, 6, 32, bias=-9.0 if broken else 0.0), Dense(rng, 32, 1)
    model = Model(body, relu(), head)
    if broken:
        model.freeze(body)
    how = Fit(loss=squared_error, optimizer=Adam(3e-3), scores=ERROR, epochs=40)
    return fit(rng, model, surface(rng), how)


def loss_of_the_wrong_sign(rng: Rng, broken: bool) -> Log:
    """The mean of log chances is minimised."""
    optimizer = Sgd(0.05)
    how = Fit(loss=cross_entropy, optimizer=optimizer, scores=CLASSES, sign=-1.0 if broken else 1.0)
    return fit(rng, mlp(rng, 4, 24, 3), standard(flowers(rng)), how)


def labels_of_other_samples(rng: Rng, broken: bool) -> Log:
    """Inputs are shuffled and labels are not."""
    task = pixels(rng)
    if broken:
        task = task._replace(y=rng.permutation(task.y))
    how = Fit(loss=cross_entropy, optimizer=Adam(1e-3), scores=CLASSES, epochs=15)
    return fit(rng, mlp(rng, 64, 24, 6), task, how)


def pixels_up_to_255(rng: Rng, broken: bool) -> Log:
    """Images are not divided by 255."""
    task = pixels(rng)
    if broken:
        task = task._replace(x=255.0 * task.x, vx=255.0 * task.vx)
    how = Fit(loss=cross_entropy, optimizer=Sgd(0.1), scores=CLASSES)
    return fit(rng, mlp(rng, 64, 48, 6), task, how)


def raw_measures(rng: Rng, broken: bool) -> Log:
    """Incomes of 40,000 beside ages, with a sigmoid layer."""
    task = patients(rng)
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(3e-3), scores=TWO, epochs=25)
    return fit(rng, mlp(rng, 4, 16, 1, act=sigmoid, last=sigmoid()), task if broken else standard(task), how)


def logarithm_of_zero(rng: Rng, broken: bool) -> Log:
    """An own cross entropy, without anything that keeps a chance from 0, of a model that is sure by chance."""
    model = mlp(rng, 4, 32, 3, last=Softmax(), scale=25.0 if broken else 1.0)
    loss: Loss = plain_log if broken else cross_entropy_of_chances
    return fit(rng, model, standard(flowers(rng)), Fit(loss=loss, optimizer=Sgd(0.1), scores=CLASSES))


def recurrence_that_explodes(rng: Rng, broken: bool) -> Log:
    """Linear recurrent units with a gain of 1.4 and no clipping."""
    cell = Recurrent(rng, 1, 16, gain=1.4 if broken else 0.9, act=linear if broken else tanh)
    optimizer = Sgd(0.02)
    how = Fit(loss=squared_error, optimizer=optimizer, scores=ERROR, clip=None if broken else 1.0, epochs=25)
    return fit(rng, Model(cell, Dense(rng, 16, 1)), sequences(rng), how)


def relu_units_that_are_dead(rng: Rng, broken: bool) -> Log:
    """Large negative biases in both layers."""
    model = mlp(rng, 64, 32, 32, 6, bias=-8.0 if broken else 0.0)
    how = Fit(loss=cross_entropy, optimizer=Sgd(0.1), scores=CLASSES, epochs=15)
    return fit(rng, model, pixels(rng), how)


def relu_for_two_classes(rng: Rng, broken: bool) -> Log:
    """The last activation is a ReLU, the loss a binary cross entropy."""
    model = mlp(rng, 4, 16, 1, last=relu() if broken else sigmoid())
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(1e-3), scores=TWO, epochs=20)
    return fit(rng, model, standard(patients(rng)), how)


def softmax_of_one_unit(rng: Rng, broken: bool) -> Log:
    """One unit with a softmax is 1 for every sample."""
    model = mlp(rng, 2, 16, 1, act=tanh, last=Softmax() if broken else sigmoid())
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(5e-3), scores=TWO, epochs=30)
    return fit(rng, model, moons(rng), how)


def sigmoids_in_ten_layers(rng: Rng, broken: bool) -> Log:
    """Ten layers of sigmoids: the gradient vanishes."""
    sizes = [60, *[24] * 10, 4] if broken else [60, 24, 24, 4]
    how = Fit(loss=cross_entropy, optimizer=Sgd(0.05), scores=CLASSES, epochs=25)
    return fit(rng, mlp(rng, *sizes, act=sigmoid if broken else relu), words(rng), how)


def weights_of_zero(rng: Rng, broken: bool) -> Log:
    """All weights start at 0, behind tanh."""
    model = mlp(rng, 6, 24, 1, act=tanh, scale=0.0 if broken else 1.0)
    how = Fit(loss=squared_error, optimizer=Sgd(0.05), scores=ERROR, epochs=30)
    return fit(rng, model, surface(rng), how)


def no_hidden_activation(rng: Rng, broken: bool) -> Log:
    """A linear model for an exclusive or."""
    model = mlp(rng, 2, 16, 1, act=linear if broken else tanh, last=sigmoid())
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(0.02), scores=TWO, epochs=40)
    return fit(rng, model, exclusive_or(rng), how)


def sigmoid_for_rents(rng: Rng, broken: bool) -> Log:
    """An output between 0 and 1 for targets of about 1,200."""
    task = standard(flats(rng), targets=not broken)
    model = mlp(rng, 4, 24, 1, last=sigmoid() if broken else None)
    how = Fit(loss=squared_error, optimizer=Adam(5e-3), scores=ERROR, epochs=30)
    return fit(rng, model, task, how)


def gradients_that_add_up(rng: Rng, broken: bool) -> Log:
    """The gradient is never set to zero."""
    how = Fit(loss=cross_entropy, optimizer=Sgd(0.05), scores=CLASSES, zero_gradient=not broken, epochs=25)
    return fit(rng, mlp(rng, 4, 24, 24, 3), standard(flowers(rng)), how)


def softmax_before_the_loss(rng: Rng, broken: bool) -> Log:
    """A softmax before a loss that takes logits."""
    model = mlp(rng, 64, 32, 6, last=Softmax() if broken else None)
    how = Fit(loss=cross_entropy, optimizer=Sgd(0.1), scores=CLASSES)
    return fit(rng, model, pixels(rng), how)


def targets_of_another_shape(rng: Rng, broken: bool) -> Log:
    """Outputs (n, 1) less targets (n,) are (n, n): the model learns the mean."""

    def spread(output: Array, y: Array) -> tuple[float, Array]:
        gaps = output - y[:, 0][None, :]
        return float((gaps**2).mean()), 2.0 * gaps.sum(1, keepdims=True) / gaps.size

    how = Fit(loss=spread if broken else squared_error, optimizer=Adam(3e-3), scores=ERROR, epochs=40)
    return fit(rng, mlp(rng, 6, 32, 1), surface(rng), how)


def validation_is_not_scaled(rng: Rng, broken: bool) -> Log:
    """Inputs are standardised in training alone."""
    raw = patients(rng)
    task = standard(raw)
    if broken:
        task = task._replace(vx=raw.vx)
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(3e-3), scores=TWO, epochs=20)
    return fit(rng, mlp(rng, 4, 16, 1, last=sigmoid()), task, how)


def running_means_never_updated(rng: Rng, broken: bool) -> Log:
    """Batch normalisation normalises validation by its first means."""
    task = flowers(rng)
    first = BatchNorm(4, updates=not broken)
    model = Model(first, Dense(rng, 4, 24), BatchNorm(24, updates=not broken), relu(), Dense(rng, 24, 3))
    return fit(rng, model, task, Fit(loss=cross_entropy, optimizer=Sgd(0.1), scores=CLASSES))


def nearly_all_dropped(rng: Rng, broken: bool) -> Log:
    """Dropout takes the share that is dropped, and was given the share to keep: 0.97."""
    rate = 0.97 if broken else 0.03
    model = Model(
        Dense(rng, 64, 32),
        relu(),
        Dropout(rng, rate),
        Dense(rng, 32, 32),
        relu(),
        Dropout(rng, rate),
        Dense(rng, 32, 6),
    )
    how = Fit(loss=cross_entropy, optimizer=Adam(2e-3), scores=CLASSES)
    return fit(rng, model, pixels(rng), how)


def weight_decay_of_one(rng: Rng, broken: bool) -> Log:
    """Weight decay pulls all weights to zero."""
    how = Fit(loss=cross_entropy, optimizer=Sgd(0.1, decay=1.0 if broken else 1e-4), scores=CLASSES)
    return fit(rng, mlp(rng, 60, 32, 4), words(rng), how)


def images_of_zeros(rng: Rng, broken: bool) -> Log:
    """Pixels are divided by 255 as integers."""
    task = pixels(rng)
    if broken:
        task = task._replace(x=0.0 * task.x, vx=0.0 * task.vx)
    flat = Convolution(rng, 6, 6, 8, flat=True)
    model = Model(Convolution(rng, 8, 1, 6), relu(), flat, relu(), Dense(rng, 128, 6))
    how = Fit(loss=cross_entropy, optimizer=Adam(3e-3), scores=CLASSES, epochs=8)
    return fit(rng, model, task, how)


def rate_that_decays_each_step(rng: Rng, broken: bool) -> Log:
    """A decay for epochs is applied at steps."""
    gamma = 0.7 if broken else 0.995

    def schedule(step: int) -> float:
        return 0.02 * gamma**step

    how = Fit(loss=squared_error, optimizer=Sgd(0.02), scores=ERROR, schedule=schedule, epochs=60)
    return fit(rng, mlp(rng, 6, 32, 1), surface(rng), how)


def adam_without_memory(rng: Rng, broken: bool) -> Log:
    """Adam with 0.5 on a convolutional network."""
    flat = Convolution(rng, 6, 6, 8, flat=True)
    model = Model(Convolution(rng, 8, 1, 6), relu(), flat, relu(), Dense(rng, 128, 6))
    how = Fit(loss=cross_entropy, optimizer=Adam(0.5 if broken else 3e-3), scores=CLASSES, epochs=8)
    return fit(rng, model, pixels(rng), how)


def rare_class_never_predicted(rng: Rng, broken: bool) -> Log:
    """8 % of the samples are defects, and the model answers "none": its rate is too low to learn more."""
    how = Fit(loss=binary_cross_entropy, optimizer=Sgd(1e-3 if broken else 0.3), scores=TWO, epochs=30)
    return fit(rng, mlp(rng, 5, 16, 1, last=sigmoid()), defects(rng), how)


def rents_in_full(rng: Rng, broken: bool) -> Log:
    """Neither inputs nor targets are scaled, with plain gradient descent."""
    task = flats(rng) if broken else standard(flats(rng), targets=True)
    how = Fit(loss=squared_error, optimizer=Sgd(0.01), scores=ERROR, epochs=30)
    return fit(rng, mlp(rng, 4, 24, 1), task, how)


def wave_with_a_small_network(rng: Rng, broken: bool) -> Log:
    """Two units for a wave of two periods."""
    how = Fit(loss=squared_error, optimizer=Adam(0.02), scores=ERROR, epochs=80)
    return fit(rng, mlp(rng, 1, 1 if broken else 32, 1, act=tanh), wave(rng), how)


def classes_as_numbers(rng: Rng, broken: bool) -> Log:
    """Six classes as one number with a sigmoid and a binary cross entropy."""
    task = pixels(rng)
    if not broken:
        return fit(rng, mlp(rng, 64, 32, 6), task, Fit(loss=cross_entropy, optimizer=Adam(2e-3), scores=CLASSES))
    task = task._replace(y=task.y[:, None], vy=task.vy[:, None])
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(2e-3), scores=TWO)
    return fit(rng, mlp(rng, 64, 32, 1, last=sigmoid()), task, how)


def overfit(rng: Rng, broken: bool) -> Log:
    """60 samples with wrong labels among them, and a wide network trained for long."""
    task = patients(rng)
    if broken:
        task = task._replace(x=task.x[:64], y=task.y[:64])
    how = Fit(loss=binary_cross_entropy, optimizer=Adam(5e-3), scores=TWO, epochs=120 if broken else 12)
    return fit(rng, mlp(rng, 4, 96 if broken else 12, 1, last=sigmoid()), standard(task), how)


def squared_error_of_classes(rng: Rng, broken: bool) -> Log:
    """A squared error of a softmax, with a rate for cross entropies of logits."""
    loss = one_hot(squared_error, 6) if broken else cross_entropy
    model = mlp(rng, 64, 32, 6, last=Softmax() if broken else None)
    return fit(rng, model, pixels(rng), Fit(loss=loss, optimizer=Sgd(0.01 if broken else 0.1), scores=CLASSES))


PAIRS = (
    rate_too_high,
    rate_of_zero,
    rate_of_a_millionth,
    frozen_layers,
    loss_of_the_wrong_sign,
    labels_of_other_samples,
    pixels_up_to_255,
    raw_measures,
    logarithm_of_zero,
    recurrence_that_explodes,
    relu_units_that_are_dead,
    relu_for_two_classes,
    softmax_of_one_unit,
    sigmoids_in_ten_layers,
    weights_of_zero,
    no_hidden_activation,
    sigmoid_for_rents,
    gradients_that_add_up,
    softmax_before_the_loss,
    targets_of_another_shape,
    validation_is_not_scaled,
    running_means_never_updated,
    nearly_all_dropped,
    weight_decay_of_one,
    images_of_zeros,
    rate_that_decays_each_step,
    adam_without_memory,
    rare_class_never_predicted,
    rents_in_full,
    wave_with_a_small_network,
    classes_as_numbers,
    overfit,
    squared_error_of_classes,
)
