"""Programs as pairs, first half: each is broken in one way that people meet, or repaired. Needs torch."""

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
    houses,
    logit_accuracy,
    mae,
    mlp,
    standard,
)

CE, MSE, BCE, BCE_LOGITS = nn.CrossEntropyLoss(), nn.MSELoss(), nn.BCELoss(), nn.BCEWithLogitsLoss()


def lr_too_high(broken: bool) -> Log:
    model = mlp(64, 64, 10)
    return fit(model, digits(), CE, optim.SGD(model.parameters(), lr=8.0 if broken else 0.1), Fit())


def lr_far_too_low(broken: bool) -> Log:
    model = mlp(64, 64, 10)
    return fit(model, digits(), CE, optim.SGD(model.parameters(), lr=1e-5 if broken else 0.1), Fit(epochs=15))


def no_zero_grad(broken: bool) -> Log:
    model = mlp(8, 32, 32, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    return fit(model, blobs(), CE, optimizer, Fit(epochs=25, zero_grad=not broken))


def raw_pixels(broken: bool) -> Log:
    task, model = digits(), mlp(64, 128, 10)
    if broken:
        task.x, task.vx = task.x * 255, task.vx * 255
    return fit(model, task, CE, optim.SGD(model.parameters(), lr=0.05, momentum=0.9), Fit(epochs=12))


def raw_prices(broken: bool) -> Log:
    task, model = houses(), mlp(5, 32, 1)
    task = task if broken else standard(task, targets=True)
    return fit(model, task, MSE, optim.SGD(model.parameters(), lr=0.01), Fit(epochs=30, metric=mae, metric_name="mae"))


def labels_shuffled(broken: bool) -> Log:
    task, model = digits(), mlp(64, 32, 10)
    if broken:
        task.y = task.y[torch.randperm(len(task.y))]
    return fit(model, task, CE, optim.Adam(model.parameters(), lr=1e-3), Fit(epochs=20))


def softmax_twice(broken: bool) -> Log:
    model = mlp(64, 32, 10, last=nn.Softmax(-1) if broken else None)
    return fit(model, digits(), CE, optim.SGD(model.parameters(), lr=0.05), Fit(epochs=15))


def sigmoid_for_large_targets(broken: bool) -> Log:
    task = curve()
    task.y, task.vy = 50 + 10 * task.y, 50 + 10 * task.vy
    model = mlp(4, 32, 1, last=nn.Sigmoid() if broken else None)
    return fit(model, task, MSE, optim.Adam(model.parameters(), lr=0.01), Fit(epochs=40, metric=mae, metric_name="mae"))


def relu_at_the_end(broken: bool) -> Log:
    task = curve()
    task.y, task.vy = task.y - 2.0, task.vy - 2.0
    model = mlp(4, 32, 1, last=nn.ReLU() if broken else None)
    return fit(model, task, MSE, optim.Adam(model.parameters(), lr=0.005), Fit(epochs=30, metric=None))


def bce_for_ten_classes(broken: bool) -> Log:
    task = digits()
    if not broken:
        model = mlp(64, 32, 10)
        return fit(model, task, CE, optim.Adam(model.parameters(), lr=2e-3), Fit(epochs=15))
    task.y, task.vy = task.y[:, None].float(), task.vy[:, None].float()
    model = mlp(64, 32, 1)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(output, y)

    return fit(model, task, loss, optim.Adam(model.parameters(), lr=2e-3), Fit(epochs=15, metric=logit_accuracy))


def dead_relu(broken: bool) -> Log:
    model = mlp(6, 24, 24, 1, last=nn.Sigmoid())
    if broken:
        for layer in model:
            if isinstance(layer, nn.Linear):
                nn.init.constant_(layer.bias, -12.0 if layer.out_features > 1 else 0.0)
    return fit(model, binary(), BCE, optim.SGD(model.parameters(), lr=0.1), Fit(epochs=25))


def zero_weights(broken: bool) -> Log:
    model = mlp(64, 64, 10)
    if broken:
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    return fit(model, digits(), CE, optim.SGD(model.parameters(), lr=0.1), Fit(epochs=10))


def parameters_not_passed(broken: bool) -> Log:
    model, other = mlp(8, 32, 3), mlp(8, 32, 3)
    optimizer = optim.Adam((other if broken else model).parameters(), lr=3e-3)
    return fit(model, blobs(), CE, optimizer, Fit(epochs=12))


class Recurrent(nn.Module):
    """A plain recurrent network that adds up a sequence."""

    def __init__(self, width: int, gain: float) -> None:
        super().__init__()
        self.cell = nn.RNN(1, width, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(width, 1)
        nn.init.eye_(self.cell.weight_hh_l0)
        self.cell.weight_hh_l0.data.mul_(gain)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x[..., None])[0][:, -1])


def exploding_rnn(broken: bool) -> Log:
    x = torch.rand(400, 40)
    task = Task(x[:300], x[:300].mean(1, keepdim=True) * 4, x[300:], x[300:].mean(1, keepdim=True) * 4)
    model = Recurrent(16, 1.3 if broken else 0.95)
    how = Fit(epochs=20, metric=mae, metric_name="mae", clip=None if broken else 1.0)
    return fit(model, task, MSE, optim.SGD(model.parameters(), lr=0.02 if broken else 0.005), how)


def batch_norm_of_one(broken: bool) -> Log:
    class Norm(nn.Module):
        """Batch normalisation as older frameworks have it: a batch of one is allowed."""

        def forward(self, x: Tensor) -> Tensor:
            return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()

    model = nn.Sequential(nn.Linear(8, 32), Norm(), nn.ReLU(), nn.Linear(32, 32), Norm(), nn.ReLU(), nn.Linear(32, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.01 if broken else 0.1)
    return fit(model, blobs(240 if broken else 480), CE, optimizer, Fit(epochs=10, batch=1 if broken else 32))


PAIRS = (
    lr_too_high,
    lr_far_too_low,
    no_zero_grad,
    raw_pixels,
    raw_prices,
    labels_shuffled,
    softmax_twice,
    sigmoid_for_large_targets,
    relu_at_the_end,
    bce_for_ten_classes,
    dead_relu,
    zero_weights,
    parameters_not_passed,
    exploding_rnn,
    batch_norm_of_one,
)
