"""Keras with TensorFlow, by ``model.fit``: its ``CSVLogger``, and its ``TensorBoard`` callback."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.verdicts.recorded_runs.recorders import tasks
from tests.verdicts.recorded_runs.recorders.tasks import Task

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


def dense(*widths: int, act: str = "relu", last: str = "softmax") -> Callable[[], list[Any]]:
    """Return what makes hidden layers and the last one."""
    return lambda: [
        *(layers.Dense(width, activation=act) for width in widths[:-1]),
        layers.Dense(widths[-1], activation=last),
    ]


DENSE = dense(32, 10)


@dataclass(frozen=True)
class Fit:
    """What is fitted, how, and by which callback it is recorded."""

    task: Callable[[], Task] = tasks.digits
    layers: Callable[[], list[Any]] = DENSE
    loss: Any = "sparse_categorical_crossentropy"
    metrics: tuple[str, ...] = ("accuracy",)
    optimizer: Callable[[], Any] = keras.optimizers.Adam
    epochs: int = 25
    batch: int = 64
    board: bool = False
    update: Any = "epoch"
    validated: bool = True
    trainable: bool = True
    callbacks: Callable[[], list[Any]] = list
    sittings: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)


def record(how: Fit, folder: Path) -> None:
    """Fit the model, with its records in the folder."""
    keras.utils.set_random_seed(0)
    task = how.task()
    model = keras.Sequential([keras.Input(task.x.shape[1:]), *how.layers()])
    model.trainable = how.trainable
    model.compile(how.optimizer(), how.loss, metrics=list(how.metrics), steps_per_execution=1 if how.board else 4)
    for sitting in range(how.sittings):
        if how.board:
            recorder = keras.callbacks.TensorBoard(folder / "logs", update_freq=how.update, write_graph=False)
        else:
            recorder = keras.callbacks.CSVLogger(folder / "training.log", append=sitting > 0)
        model.fit(
            task.x,
            task.y,
            how.batch,
            how.epochs,
            verbose=0,
            validation_data=(task.vx, task.vy) if how.validated else None,
            callbacks=[*how.callbacks(), recorder],
            **how.settings,
        )


def with_gaps() -> Task:
    """A missing value in the inputs of one sample."""
    task = tasks.surface()
    task.x[7, 2] = np.nan
    return task


def images() -> Task:
    """Images are their own targets."""
    task = tasks.digits()
    return task._replace(y=task.x, vy=task.vx)


def rows() -> Task:
    """Images of 8 x 8 pixels as sequences of rows."""
    task = tasks.digits()
    return task._replace(x=task.x.reshape(-1, 8, 8), vx=task.vx.reshape(-1, 8, 8))


def rare() -> Task:
    """Two classes of which one is a twentieth: the measures decide."""
    x = np.random.default_rng(0).normal(size=(2000, 6))
    return tasks.split(x, (x[:, 0] + 0.5 * x[:, 1] > 1.8).astype(int))


def sgd(rate: float, **settings: Any) -> Callable[[], Any]:
    return partial(keras.optimizers.SGD, rate, **settings)


def adam(rate: float) -> Callable[[], Any]:
    return partial(keras.optimizers.Adam, rate)


def dead() -> list[Any]:
    """No sample passes the ReLU."""
    return [
        layers.Dense(32, activation="relu", bias_initializer=keras.initializers.Constant(-50.0)),
        layers.Dense(10, activation="softmax"),
    ]


def cosine() -> list[Any]:
    return [keras.callbacks.LearningRateScheduler(lambda epoch: 5e-3 * (0.5 + 0.5 * np.cos(np.pi * (epoch % 8) / 8)))]


def after(epoch: int, rate: float) -> Callable[[], list[Any]]:
    """Return a schedule with one wrong entry."""
    return lambda: [keras.callbacks.LearningRateScheduler(lambda now, old: rate if now == epoch else old)]


PLAIN = Fit()
BOARD = Fit(board=True)
ERRORS = Fit(tasks.surface, dense(64, 1, last="linear"), "mse", ("mae",), adam(3e-3))
FEW = replace(PLAIN, task=lambda: tasks.few_digits(150), layers=dense(256, 256, 10), epochs=60, batch=16)
TWO = Fit(tasks.tumours, dense(16, 1, last="sigmoid"), "binary_crossentropy")
FITS: Mapping[str, Fit] = {
    "keras-digits": PLAIN,
    "keras-digits-losses-alone": replace(PLAIN, metrics=()),
    "keras-digits-dropout": replace(
        PLAIN, layers=lambda: [layers.Dense(128, "relu"), layers.Dropout(0.7), layers.Dense(10, "softmax")]
    ),
    "keras-digits-rate-reduced": replace(
        PLAIN, optimizer=sgd(0.3), epochs=35, callbacks=lambda: [keras.callbacks.ReduceLROnPlateau(patience=3)]
    ),
    "keras-digits-stopped-early": replace(
        PLAIN,
        task=lambda: tasks.first(tasks.digits(), 300),
        epochs=80,
        optimizer=adam(3e-3),
        callbacks=lambda: [keras.callbacks.EarlyStopping(patience=5)],
    ),
    "keras-digits-cosine-restarts": replace(PLAIN, epochs=32, callbacks=cosine),
    "keras-digits-lstm": replace(
        PLAIN, task=rows, layers=lambda: [layers.LSTM(24), layers.Dense(10, "softmax")], epochs=20
    ),
    "keras-digits-appended": replace(PLAIN, sittings=2, epochs=10),
    "keras-digits-three-epochs": replace(PLAIN, epochs=3),
    "keras-regression": ERRORS,
    "keras-autoencoder": Fit(images, dense(16, 64, last="sigmoid"), "mse", (), adam(3e-3), 30),
    "keras-rare-class": replace(
        TWO, task=rare, metrics=("accuracy", "AUC", "Precision", "Recall"), layers=dense(8, 1, last="sigmoid")
    ),
    "keras-tumours": TWO,
    "keras-board-digits": BOARD,
    "keras-board-batches": replace(BOARD, update=5, epochs=12, optimizer=sgd(0.1)),
    "keras-board-unvalidated": replace(BOARD, validated=False),
    "keras-board-regression": replace(ERRORS, board=True),
    "keras-digits-rate-100": replace(PLAIN, optimizer=sgd(100.0)),
    "keras-digits-adam-rate-5": replace(PLAIN, optimizer=adam(5.0)),
    "keras-digits-rate-0": replace(PLAIN, optimizer=sgd(0.0)),
    "keras-digits-labels-shuffled": replace(PLAIN, task=lambda: tasks.shuffled(tasks.digits()), epochs=15),
    "keras-digits-two-softmaxes": replace(
        PLAIN,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        epochs=40,
        layers=lambda: [layers.Dense(64, "relu"), layers.Dense(10), layers.Softmax(), layers.Rescaling(1.0)],
    ),
    "keras-digits-dead-relu": replace(PLAIN, layers=dead),
    "keras-digits-not-trainable": replace(PLAIN, trainable=False),
    "keras-digits-by-heart": FEW,
    "keras-digits-sigmoid-depth": replace(PLAIN, layers=dense(*[32] * 15, 10, act="sigmoid"), optimizer=sgd(0.1)),
    "keras-digits-rate-spoiled": replace(PLAIN, optimizer=sgd(0.1), epochs=30, callbacks=after(14, 300.0)),
    "keras-regression-with-gap": replace(ERRORS, task=with_gaps),
    "keras-regression-raw": replace(ERRORS, task=tasks.raw_diabetes, optimizer=sgd(0.01)),
    "keras-regression-through-relu": replace(
        ERRORS,
        layers=lambda: [
            layers.Dense(32, "relu"),
            layers.Dense(1, "relu", bias_initializer=keras.initializers.Constant(-20.0)),
        ],
    ),
    "keras-tumours-softmax-of-one": replace(TWO, layers=dense(16, 1, last="softmax")),
    "keras-board-rate-100": replace(BOARD, optimizer=sgd(100.0)),
    "keras-board-labels-shuffled": replace(BOARD, task=lambda: tasks.shuffled(tasks.digits()), epochs=15),
    "keras-board-by-heart": replace(FEW, board=True),
}
RUNS: dict[str, Callable[[Path], None]] = {name: partial(record, how) for name, how in FITS.items()}
