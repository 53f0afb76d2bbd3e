"""Layers of small neural networks in numpy: forward, and backward by hand. Axis 0 is the batch; all is float64."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Parameter:
    """A value, its gradient, and whether the optimizer may change it."""

    value: Array
    gradient: Array
    trains: bool = True


def parameter(value: Array) -> Parameter:
    return Parameter(value, np.zeros_like(value))


class Layer(Protocol):
    parameters: Sequence[Parameter]

    def forward(self, x: Array, *, training: bool) -> Array: ...

    def backward(self, gradient: Array) -> Array: ...


class Dense:
    """x @ weight + bias, of weights of He's or Glorot's scale by default."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, *, scale: float = 1.0, bias: float = 0.0):
        limit = scale * np.sqrt(2.0 / inputs)
        self.weight = parameter(rng.normal(0.0, limit, (inputs, outputs)))
        self.bias = parameter(np.full(outputs, bias))
        self.parameters: Sequence[Parameter] = (self.weight, self.bias)
        self._x: Array = np.zeros(0)

    def forward(self, x: Array, *, training: bool) -> Array:
        self._x = x
        return x @ self.weight.value + self.bias.value

    def backward(self, gradient: Array) -> Array:
        self.weight.gradient += self._x.T @ gradient
        self.bias.gradient += gradient.sum(0)
        return gradient @ self.weight.value.T


class Pointwise:
    """A function of each number; its derivative is a function of input and output."""

    parameters: Sequence[Parameter] = ()

    def __init__(self, function: Callable[[Array], Array], derivative: Callable[[Array, Array], Array]):
        self._function, self._derivative = function, derivative
        self._x = self._y = np.zeros(0)

    def forward(self, x: Array, *, training: bool) -> Array:
        self._x, self._y = x, self._function(x)
        return self._y

    def backward(self, gradient: Array) -> Array:
        return gradient * self._derivative(self._x, self._y)


def relu() -> Pointwise:
    return Pointwise(lambda x: np.maximum(x, 0.0), lambda x, _: (x > 0.0).astype(float))


def tanh() -> Pointwise:
    return Pointwise(np.tanh, lambda _, y: 1.0 - y * y)


def sigmoid() -> Pointwise:
    return Pointwise(lambda x: 1.0 / (1.0 + np.exp(-np.clip(x, -700, 700))), lambda _, y: y * (1.0 - y))


def linear() -> Pointwise:
    return Pointwise(lambda x: x, lambda x, _: np.ones_like(x))


def softmax(x: Array) -> Array:
    powers: Array = np.exp(x - x.max(-1, keepdims=True))
    chances: Array = powers / powers.sum(-1, keepdims=True)
    return chances


class Softmax:
    parameters: Sequence[Parameter] = ()

    def __init__(self) -> None:
        self._y: Array = np.zeros(0)

    def forward(self, x: Array, *, training: bool) -> Array:
        self._y = softmax(x)
        return self._y

    def backward(self, gradient: Array) -> Array:
        mixed: Array = self._y * (gradient - (gradient * self._y).sum(-1, keepdims=True))
        return mixed


class Dropout:
    parameters: Sequence[Parameter] = ()

    def __init__(self, rng: np.random.Generator, rate: float):
        self._rng, self._rate = rng, rate
        self._kept: Array = np.zeros(0)

    def forward(self, x: Array, *, training: bool) -> Array:
        if not training:
            self._kept = np.ones_like(x)
        else:
            self._kept = np.where(self._rng.random(x.shape) >= self._rate, 1.0 / (1.0 - self._rate), 0.0)
        return x * self._kept

    def backward(self, gradient: Array) -> Array:
        return gradient * self._kept


class BatchNorm:
    """Normalises by the batch in training, and by running means in validation unless these are never updated."""

    def __init__(self, width: int, *, updates: bool = True):
        self.gain, self.shift = parameter(np.ones(width)), parameter(np.zeros(width))
        self.parameters: Sequence[Parameter] = (self.gain, self.shift)
        self._mean, self._variance, self._updates = np.zeros(width), np.ones(width), updates
        self._normal, self._deviation = np.zeros(0), np.zeros(0)

    def forward(self, x: Array, *, training: bool) -> Array:
        mean, variance = (x.mean(0), x.var(0)) if training else (self._mean, self._variance)
        if training and self._updates:
            self._mean = 0.9 * self._mean + 0.1 * mean
            self._variance = 0.9 * self._variance + 0.1 * variance
        self._deviation = np.sqrt(variance + 1e-5)
        self._normal = (x - mean) / self._deviation
        return self._normal * self.gain.value + self.shift.value

    def backward(self, gradient: Array) -> Array:
        self.gain.gradient += (gradient * self._normal).sum(0)
        self.shift.gradient += gradient.sum(0)
        inner = gradient * self.gain.value
        back: Array = (inner - inner.mean(0) - self._normal * (inner * self._normal).mean(0)) / self._deviation
        return back


class Convolution:
    """3 x 3 windows of images (batch, side, side, channels), without padding; the output is flattened where asked."""

    def __init__(self, rng: np.random.Generator, side: int, inputs: int, outputs: int, *, flat: bool = False):
        self._side, self._inputs, self._outputs, self._flat = side, inputs, outputs, flat
        self._dense = Dense(rng, 9 * inputs, outputs)
        self.parameters: Sequence[Parameter] = self._dense.parameters

    def forward(self, x: Array, *, training: bool) -> Array:
        out = self._side - 2
        images = x.reshape(-1, self._side, self._side, self._inputs)
        parts = [images[:, i : i + out, j : j + out] for i, j in itertools.product(range(3), range(3))]
        columns = np.concatenate(parts, -1).reshape(-1, 9 * self._inputs)
        y = self._dense.forward(columns, training=training)
        return y.reshape((len(images), -1) if self._flat else (len(images), out, out, self._outputs))

    def backward(self, gradient: Array) -> Array:
        out, inputs = self._side - 2, self._inputs
        count = len(gradient)
        columns = self._dense.backward(gradient.reshape(-1, self._outputs)).reshape(count, out, out, 9, inputs)
        images = np.zeros((count, self._side, self._side, inputs))
        for place, (i, j) in enumerate(itertools.product(range(3), range(3))):
            images[:, i : i + out, j : j + out] += columns[:, :, :, place]
        return images


class Recurrent:
    """A plain recurrent cell over sequences (batch, length, inputs); the output is the last state."""

    def __init__(self, rng: np.random.Generator, inputs: int, width: int, *, gain: float, act: Callable[[], Pointwise]):
        self.into = parameter(rng.normal(0.0, np.sqrt(1.0 / inputs), (inputs, width)))
        orthogonal, _ = np.linalg.qr(rng.normal(size=(width, width)))
        self.again = parameter(gain * orthogonal)
        self.bias = parameter(np.zeros(width))
        self.parameters: Sequence[Parameter] = (self.into, self.again, self.bias)
        self._act = act
        self._x: Array = np.zeros(0)
        self._states: list[Array] = []
        self._cells: list[Pointwise] = []

    def forward(self, x: Array, *, training: bool) -> Array:
        self._x, self._cells = x, [self._act() for _ in range(x.shape[1])]
        self._states = [np.zeros((len(x), len(self.bias.value)))]
        for place, cell in enumerate(self._cells):
            drive = x[:, place] @ self.into.value + self._states[-1] @ self.again.value + self.bias.value
            self._states.append(cell.forward(drive, training=training))
        return self._states[-1]

    def backward(self, gradient: Array) -> Array:
        for place in reversed(range(len(self._cells))):
            gradient = self._cells[place].backward(gradient)
            self.into.gradient += self._x[:, place].T @ gradient
            self.again.gradient += self._states[place].T @ gradient
            self.bias.gradient += gradient.sum(0)
            gradient = gradient @ self.again.value.T
        return np.zeros_like(self._x)


class Model:
    """Layers one after the other."""

    def __init__(self, *layers: Layer):
        self.layers = layers
        self.parameters = [each for layer in layers for each in layer.parameters]

    def forward(self, x: Array, *, training: bool) -> Array:
        for layer in self.layers:
            x = layer.forward(x, training=training)
        return x

    def backward(self, gradient: Array) -> None:
        for layer in reversed(self.layers):
            gradient = layer.backward(gradient)

    def freeze(self, *layers: Layer) -> None:
        for layer in layers:
            for each in layer.parameters:
                each.trains = False


def mlp(
    rng: np.random.Generator,
    *sizes: int,
    act: Callable[[], Layer] = relu,
    last: Layer | None = None,
    scale: float = 1.0,
    bias: float = 0.0,
) -> Model:
    layers: list[Layer] = []
    for before, after in itertools.pairwise(sizes[:-1]):
        layers += [Dense(rng, before, after, scale=scale, bias=bias), act()]
    layers.append(Dense(rng, sizes[-2], sizes[-1], scale=scale))
    return Model(*layers, *([last] if last is not None else []))
