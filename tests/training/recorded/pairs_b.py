"""Programs as pairs, second half: each is broken in one way that people meet, or repaired. Needs torch."""

import torch
from torch import Tensor, nn, optim

from tests.training.recorded.programs import (
    Fit,
    Log,
    Task,
    binary,
    blobs,
    curve,
    digits,
    fit,
    mae,
    mlp,
    spirals,
    split,
)

CE, MSE, BCE = nn.CrossEntropyLoss(), nn.MSELoss(), nn.BCELoss()


def dropout_of_95_percent(broken: bool) -> Log:
    rate = 0.95 if broken else 0.2
    model = nn.Sequential(
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Dropout(rate),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Dropout(rate),
        nn.Linear(32, 10),
    )
    return fit(model, digits(), CE, optim.Adam(model.parameters(), lr=2e-3), Fit(epochs=15))


def too_small_a_network(broken: bool) -> Log:
    model = mlp(2, 2) if broken else mlp(2, 64, 64, 2)
    return fit(model, spirals(), CE, optim.Adam(model.parameters(), lr=0.01), Fit(epochs=50))


def accuracy_of_a_regression(broken: bool) -> Log:
    def exact(output: Tensor, y: Tensor) -> Tensor:
        return (output == y).float().mean()

    model = mlp(4, 32, 1)
    how = Fit(epochs=20, metric=exact if broken else mae, metric_name="accuracy" if broken else "mae")
    return fit(model, curve(), MSE, optim.Adam(model.parameters(), lr=0.005), how)


def softmax_of_one_output(broken: bool) -> Log:
    model = mlp(6, 16, 1, last=nn.Softmax(-1) if broken else nn.Sigmoid())

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return BCE(output.clamp(1e-7, 1 - 1e-7), y)

    return fit(model, binary(), loss, optim.Adam(model.parameters(), lr=0.005), Fit(epochs=20))


def inputs_that_are_constant(broken: bool) -> Log:
    task, model = blobs(classes=4), mlp(8, 32, 4)
    if broken:
        task.x, task.vx = task.x * 0 + 1, task.vx * 0 + 1
    return fit(model, task, CE, optim.Adam(model.parameters(), lr=3e-3), Fit(epochs=15))


def lr_decays_at_once(broken: bool) -> Log:
    model = mlp(64, 64, 10)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def schedule(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 0.1 * (0.3 if broken else 0.999) ** step

    return fit(model, digits(), CE, optimizer, Fit(epochs=20, before_step=schedule))


def lr_restarts_too_high(broken: bool) -> Log:
    model = mlp(8, 32, 32, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def schedule(step: int) -> None:
        optimizer.param_groups[0]["lr"] = (8.0 if broken else 0.1) if step >= 110 else 0.05

    return fit(model, blobs(width=1.5), CE, optimizer, Fit(epochs=20, before_step=schedule))


def weight_decay_too_large(broken: bool) -> Log:
    model = mlp(64, 64, 10)
    optimizer = optim.SGD(model.parameters(), lr=0.1, weight_decay=1.0 if broken else 1e-4)
    return fit(model, digits(), CE, optimizer, Fit(epochs=15))


def labels_off_by_one(broken: bool) -> Log:
    task, model = blobs(classes=4), mlp(8, 32, 4)
    if broken:
        task.y, task.vy = task.y.roll(1), task.vy.roll(1)
    return fit(model, task, CE, optim.Adam(model.parameters(), lr=3e-3), Fit(epochs=15))


def xor(broken: bool) -> Log:
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    model = mlp(2, 4, 1, act=nn.Sigmoid, last=nn.Sigmoid())
    optimizer = optim.SGD(model.parameters(), lr=0.01) if broken else optim.Adam(model.parameters(), lr=0.05)
    return fit(model, Task(x, y, x, y), MSE, optimizer, Fit(epochs=400, batch=4, validate=False))


def deep_sigmoids(broken: bool) -> Log:
    model = mlp(64, *[32] * (10 if broken else 2), 10, act=nn.Sigmoid if broken else nn.ReLU)
    return fit(model, digits(), CE, optim.SGD(model.parameters(), lr=0.1), Fit(epochs=20))


def loss_of_a_detached_output(broken: bool) -> Log:
    model = mlp(4, 32, 1)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return MSE(output.detach() if broken else output, y)

    return fit(model, curve(), loss, optim.Adam(model.parameters(), lr=0.005), Fit(epochs=15, metric=None))


def adam_at_one_half(broken: bool) -> Log:
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(128, 10),
    )  # fmt: skip
    return fit(model, digits(), CE, optim.Adam(model.parameters(), lr=0.5 if broken else 2e-3), Fit(epochs=8))


def autoencoder_of_raw_pixels(broken: bool) -> Log:
    x = digits().x * (255 if broken else 1)
    model = mlp(64, 16, 64, last=nn.Sigmoid())

    def loss(output: Tensor, y: Tensor) -> Tensor:
        near = output.clamp(1e-7, 1 - 1e-7)
        return -(y * near.log() + (1 - y) * (1 - near).log()).mean()

    return fit(model, split(x, x), loss, optim.Adam(model.parameters(), lr=5e-3), Fit(epochs=25, metric=None))


def likelihood_with_a_high_lr(broken: bool) -> Log:
    task = curve(noise=0.05)
    task.y, task.vy = task.y * 0.05, task.vy * 0.05
    model = mlp(4, 32, 2)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        deviation = nn.functional.softplus(output[:, 1:]) + 1e-3
        return -torch.distributions.Normal(output[:, :1], deviation).log_prob(y).mean()

    optimizer = optim.SGD(model.parameters(), lr=1.0) if broken else optim.Adam(model.parameters(), lr=3e-3)
    return fit(model, task, loss, optimizer, Fit(epochs=25, metric=None))


PAIRS = (
    dropout_of_95_percent,
    too_small_a_network,
    accuracy_of_a_regression,
    softmax_of_one_output,
    inputs_that_are_constant,
    lr_decays_at_once,
    lr_restarts_too_high,
    weight_decay_too_large,
    labels_off_by_one,
    xor,
    deep_sigmoids,
    loss_of_a_detached_output,
    adam_at_one_half,
    autoencoder_of_raw_pixels,
    likelihood_with_a_high_lr,
)
