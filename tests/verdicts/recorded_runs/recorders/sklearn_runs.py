"""scikit-learn: the loss curves that its estimators keep, and losses of ``partial_fit``, as people save them."""

import csv
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import ensemble, linear_model, metrics, neural_network

from tests.verdicts.recorded_runs.recorders import tasks
from tests.verdicts.recorded_runs.recorders.tasks import Task

warnings.filterwarnings("ignore")


def _written(folder: Path, columns: Mapping[str, Any], step: str = "iteration") -> None:
    with (folder / "loss_curve.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([step, *columns])
        for number, row in enumerate(zip(*columns.values(), strict=True), start=1):
            writer.writerow([number, *row])


def network(folder: Path, task: Callable[[], Task], kind: Any, settings: Mapping[str, Any]) -> None:
    """``loss_curve_`` and, where it stops early, ``validation_scores_`` of a network."""
    parts = task()
    model = kind(random_state=0, n_iter_no_change=10_000, **settings).fit(parts.x, parts.y)
    scores = {"validation_score": model.validation_scores_} if settings.get("early_stopping") else {}
    _written(folder, {"loss": model.loss_curve_} | scores)


def passes(folder: Path, task: Callable[[], Task], epochs: int, settings: Mapping[str, Any]) -> None:
    """A linear model by passes over the data, with losses and accuracies of both parts after each."""
    parts = task()
    model = linear_model.SGDClassifier(loss="log_loss", random_state=0, **settings)
    rows: dict[str, list[float]] = {"train_loss": [], "train_accuracy": [], "test_loss": [], "test_accuracy": []}
    classes = np.unique(parts.y)
    for _ in range(epochs):
        model.partial_fit(parts.x, parts.y, classes)
        for name, x, y in (("train", parts.x, parts.y), ("test", parts.vx, parts.vy)):
            rows[f"{name}_loss"].append(metrics.log_loss(y, model.predict_proba(x), labels=classes))
            rows[f"{name}_accuracy"].append(model.score(x, y))
    _written(folder, rows, "epoch")


def boosted(folder: Path, task: Callable[[], Task], settings: Mapping[str, Any]) -> None:
    """``train_score_`` of gradient boosting, and the loss of the held-out part at each stage."""
    parts = task()
    model = ensemble.GradientBoostingRegressor(random_state=0, **settings).fit(parts.x, parts.y)
    held_out = [float(((parts.vy - stage) ** 2).mean()) for stage in model.staged_predict(parts.vx)]
    _written(folder, {"train_loss": model.train_score_, "test_loss": held_out})


MANY, ONE = neural_network.MLPClassifier, neural_network.MLPRegressor
SMALL = {"hidden_layer_sizes": (32,), "max_iter": 60}
SGD = SMALL | {"solver": "sgd"}
NETWORKS: Mapping[str, tuple[Any, ...]] = {
    "sklearn-mlp": (tasks.digits, MANY, SMALL),
    "sklearn-mlp-validation": (tasks.digits, MANY, SMALL | {"early_stopping": True}),
    "sklearn-mlp-regression": (tasks.surface, ONE, SMALL | {"max_iter": 120}),
    "sklearn-mlp-three-iterations": (tasks.digits, MANY, SMALL | {"max_iter": 3}),
    "sklearn-mlp-rate-300": (tasks.digits, MANY, SGD | {"learning_rate_init": 300.0}),
    "sklearn-mlp-rate-1e-9": (tasks.digits, MANY, SGD | {"learning_rate_init": 1e-9, "early_stopping": True}),
    "sklearn-mlp-labels-shuffled": (
        lambda: tasks.shuffled(tasks.digits()),
        MANY,
        SGD | {"learning_rate_init": 0.01, "early_stopping": True},
    ),
    "sklearn-mlp-inverse-scaling": (
        tasks.digits,
        MANY,
        SGD | {"learning_rate": "invscaling", "learning_rate_init": 0.1, "power_t": 2.0, "early_stopping": True},
    ),
}
RUNS: dict[str, Callable[[Path], None]] = {
    name: partial(lambda of, folder: network(folder, *of), of) for name, of in NETWORKS.items()
} | {
    "sklearn-sgd": lambda folder: passes(folder, tasks.tumours, 40, {"alpha": 1e-3}),
    "sklearn-sgd-raw": lambda folder: passes(
        folder, tasks.raw_digits, 40, {"learning_rate": "constant", "eta0": 1.0, "alpha": 0.0}
    ),
    "sklearn-boosting": lambda folder: boosted(folder, tasks.surface, {"n_estimators": 120}),
    "sklearn-boosting-by-heart": lambda folder: boosted(
        folder, lambda: tasks.shuffled(tasks.diabetes()), {"n_estimators": 300, "max_depth": 6, "learning_rate": 0.3}
    ),
}
