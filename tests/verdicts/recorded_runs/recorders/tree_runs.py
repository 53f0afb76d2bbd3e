"""Boosted trees: the evaluations that XGBoost and LightGBM return, as people save them; CatBoost's own files."""

import csv
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import xgboost

from tests.verdicts.recorded_runs.recorders import tasks
from tests.verdicts.recorded_runs.recorders.tasks import Task

Settings = Mapping[str, Any]


def _written(folder: Path, results: Mapping[str, Mapping[str, list[float]]], apart: str, step: str) -> None:
    columns = {f"{part}{apart}{name}": values for part, of in results.items() for name, values in of.items()}
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([step, *columns] if step else list(columns))
        for number, row in enumerate(zip(*columns.values(), strict=True)):
            writer.writerow([number, *row] if step else row)


def determination(predicted: np.ndarray, data: xgboost.DMatrix) -> tuple[str, float]:
    y = data.get_label()
    return "r2", float(1.0 - ((predicted - y) ** 2).mean() / y.var())


def xgb(folder: Path, task: Callable[[], Task], rounds: int, settings: Settings, custom: Any = None) -> None:
    """Train by XGBoost on one core."""
    parts = task()
    train, test = xgboost.DMatrix(parts.x, parts.y), xgboost.DMatrix(parts.vx, parts.vy)
    if str(settings.get("objective")).startswith("rank:"):
        train.set_group([len(parts.x) // 20] * 20)
        test.set_group([len(parts.vx) // 20] * 20)
    results: dict[str, dict[str, list[float]]] = {}
    xgboost.train(
        {"nthread": 1, "verbosity": 0, "seed": 0, **settings},
        train,
        rounds,
        [(train, "train"), (test, "validation")],
        evals_result=results,
        verbose_eval=False,
        custom_metric=custom,
    )
    _written(folder, results, "-", "iteration")


def lgb(folder: Path, task: Callable[[], Task], rounds: int, settings: Settings, stop: int = 0) -> None:
    """Train by LightGBM on one core."""
    parts = task()
    train = lightgbm.Dataset(parts.x, parts.y)
    test = lightgbm.Dataset(parts.vx, parts.vy, reference=train)
    results: dict[str, Any] = {}
    callbacks = [lightgbm.record_evaluation(results)]
    if stop:
        callbacks.append(lightgbm.early_stopping(stop, verbose=False))
    lightgbm.train(
        {"num_threads": 1, "verbosity": -1, "seed": 0, **settings},
        train,
        rounds,
        valid_sets=[train, test],
        valid_names=["training", "valid_1"],
        callbacks=callbacks,
    )
    _written(folder, results, " ", "iteration")


def cat(folder: Path, task: Callable[[], Task], rounds: int, kind: Any, settings: Settings) -> None:
    """Train by CatBoost, which writes event files and tables below ``catboost_info``."""
    parts = task()
    model = kind(iterations=rounds, thread_count=1, random_seed=0, train_dir=str(folder / "catboost_info"), **settings)
    model.fit(parts.x, parts.y, eval_set=(parts.vx, parts.vy), verbose=False)
    for file in sorted((folder / "catboost_info").rglob("*")):
        if file.is_file() and "tfevents" not in file.name and not file.name.endswith(("error.tsv", "left.tsv")):
            file.unlink()


def ranked() -> Task:
    """Grades from 0 to 4 in groups of equal size."""
    task = tasks.surface(2000)
    cuts = np.quantile(task.y, [0.2, 0.4, 0.6, 0.8])
    whole = len(task.x) // 20 * 20, len(task.vx) // 20 * 20
    return Task(
        task.x[: whole[0]],
        np.digitize(task.y, cuts)[: whole[0]],
        task.vx[: whole[1]],
        np.digitize(task.vy, cuts)[: whole[1]],
    )


def counts() -> Task:
    """Counts that grow with the inputs."""
    task, rng = tasks.surface(), np.random.default_rng(0)
    return task._replace(y=rng.poisson(np.exp(0.5 * task.y + 1.0)), vy=rng.poisson(np.exp(0.5 * task.vy + 1.0)))


def constant_inputs() -> Task:
    """A join lost all columns: each is the same for all samples."""
    task = tasks.tumours()
    return task._replace(x=np.ones_like(task.x), vx=np.ones_like(task.vx))


def shuffled_tumours() -> Task:
    return tasks.shuffled(tasks.tumours())


def shuffled_surface() -> Task:
    return tasks.shuffled(tasks.surface())


BINARY = {"objective": "binary:logistic", "eta": 0.1, "max_depth": 3}
TEN = {"objective": "multi:softprob", "num_class": 10, "eta": 0.2, "max_depth": 3}
SQUARES = {"objective": "reg:squarederror", "eta": 0.1, "max_depth": 3}
XGB: Mapping[str, tuple[Any, ...]] = {
    "xgboost-logloss": (tasks.tumours, 80, BINARY),
    "xgboost-error-and-auc": (tasks.tumours, 60, BINARY | {"eval_metric": ["error", "auc"]}),
    "xgboost-auc-alone": (tasks.moons, 60, BINARY | {"eval_metric": "auc"}),
    "xgboost-mlogloss-merror": (tasks.digits, 50, TEN | {"eval_metric": ["merror", "mlogloss"]}),
    "xgboost-rmse-mae": (tasks.surface, 150, SQUARES | {"eval_metric": ["rmse", "mae"]}),
    "xgboost-r2": (tasks.surface, 100, SQUARES, determination),
    "xgboost-ndcg-map": (ranked, 60, {"objective": "rank:ndcg", "eval_metric": ["ndcg", "ndcg@5"], "eta": 0.1}),
    "xgboost-poisson": (counts, 100, {"objective": "count:poisson", "eta": 0.1, "max_depth": 3}),
    "xgboost-gamma-of-noise": (tasks.diabetes, 40, SQUARES | {"eta": 0.03, "max_depth": 2}),
    "xgboost-perfect": (tasks.tumours, 300, BINARY | {"eta": 0.3, "eval_metric": ["error", "logloss"]}),
    "xgboost-four-rounds": (tasks.tumours, 4, BINARY),
    "xgboost-eta-0": (tasks.tumours, 60, BINARY | {"eta": 0.0}),
    "xgboost-eta-3": (tasks.surface, 40, SQUARES | {"eta": 3.0}),
    "xgboost-labels-shuffled": (shuffled_tumours, 150, BINARY | {"eta": 0.3, "max_depth": 6}),
    "xgboost-regression-shuffled": (shuffled_surface, 150, SQUARES | {"eta": 0.3, "max_depth": 6}),
    "xgboost-constant-inputs": (constant_inputs, 60, BINARY | {"eval_metric": ["logloss", "error"]}),
    "xgboost-linear-eta-40": (
        tasks.surface,
        60,
        {"booster": "gblinear", "objective": "reg:squarederror", "eta": 40.0, "updater": "coord_descent"},
    ),
}
LGB: Mapping[str, tuple[Any, ...]] = {
    "lightgbm-binary": (tasks.tumours, 80, {"objective": "binary", "metric": ["binary_logloss", "auc"]}),
    "lightgbm-l2": (tasks.surface, 150, {"objective": "regression", "metric": "l2"}),
    "lightgbm-l1-huber": (tasks.surface, 100, {"objective": "huber", "metric": ["l1", "huber"]}),
    "lightgbm-multi": (tasks.digits, 40, {"objective": "multiclass", "num_class": 10, "num_leaves": 8}),
    "lightgbm-stopped-early": (tasks.diabetes, 300, {"objective": "regression", "learning_rate": 0.05}, 10),
    "lightgbm-average-precision": (tasks.moons, 60, {"objective": "binary", "metric": "average_precision"}),
    "lightgbm-labels-shuffled": (
        shuffled_tumours,
        150,
        {"objective": "binary", "metric": ["binary_logloss", "auc"], "learning_rate": 0.2},
    ),
    "lightgbm-rate-1e-9": (tasks.tumours, 60, {"objective": "binary", "learning_rate": 1e-9}),
    "lightgbm-rate-4": (tasks.surface, 60, {"objective": "regression", "metric": "l2", "learning_rate": 4.0}),
    "lightgbm-leaves-too-large": (tasks.tumours, 60, {"objective": "binary", "min_data_in_leaf": 1000}),
}
CAT: Mapping[str, tuple[Any, ...]] = {
    "catboost-logloss": (tasks.tumours, 120, catboost.CatBoostClassifier, {"depth": 4}),
    "catboost-accuracy": (
        tasks.digits,
        80,
        catboost.CatBoostClassifier,
        {"depth": 4, "loss_function": "MultiClass", "custom_metric": ["Accuracy"]},
    ),
    "catboost-rmse": (tasks.surface, 150, catboost.CatBoostRegressor, {"depth": 4, "custom_metric": ["R2"]}),
    "catboost-labels-shuffled": (
        shuffled_tumours,
        150,
        catboost.CatBoostClassifier,
        {"depth": 6, "learning_rate": 0.3},
    ),
    "catboost-penalty-1e9": (tasks.surface, 60, catboost.CatBoostRegressor, {"depth": 4, "l2_leaf_reg": 1e9}),
}


def _call(make: Callable[..., None], of: tuple[Any, ...], folder: Path) -> None:
    make(folder, *of)


RUNS: dict[str, Callable[[Path], None]] = {
    name: partial(_call, make, of) for make, table in ((xgb, XGB), (lgb, LGB), (cat, CAT)) for name, of in table.items()
}
