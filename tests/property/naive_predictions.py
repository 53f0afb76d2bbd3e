"""The rules over predictions and trees once more, plainly; see `naive`."""

import math
from collections.abc import Callable

import numpy as np

from tests.property.naive_training_rules import chosen
from tests.support.steps import Run


def confusion(run: Run, min_diag: float = 0.9, max_off_diag: float = 0.1) -> list[int]:
    found = []
    for step in run.steps:
        if not ("labels" in step.tensors and "predictions" in step.tensors):
            continue
        labels = np.trunc(step.tensors["labels"]).astype(int)
        predictions = np.trunc(step.tensors["predictions"]).astype(int)
        size = max(labels.max(), predictions.max()) + 1
        matrix = np.zeros((size, size))
        for label, prediction in zip(labels, predictions, strict=True):
            matrix[label, prediction] += 1
        fires = False
        for each in range(size):
            column, row = matrix[:, each].sum(), matrix[each].sum()
            if column:
                ratios = matrix[:, each] / column
                fires |= bool(ratios[each] < min_diag) or bool((np.delete(ratios, each) > max_off_diag).any())
            elif row:
                fires |= min_diag > 0
        if fires:
            found.append(step.step)
    return found


def feature_importance_overweight(run: Run, threshold: float = 0.8, nfeatures: int = 3) -> list[int]:
    found = []
    for step in run.steps:
        values = [float(step.tensors[name][0]) for name in chosen(step, "", [".*feature_importance/weight"])]
        if values and sum(sorted(values)[-nfeatures:]) / sum(values) > threshold:
            found.append(step.step)
    return found


def tree_depth(run: Run, depth: float = 4) -> list[int]:
    nodes = {step.step: step.tensors["trees/Node"].max() for step in run.steps if "trees/Node" in step.tensors}
    return [step for step, most in nodes.items() if (math.floor(math.log2(most)) if most else 0) > depth]


def create_xgboost_report(run: Run) -> list[int]:
    return []


NAIVE_OF_PREDICTIONS: dict[str, Callable[..., list[int]]] = {
    "Confusion": confusion,
    "FeatureImportanceOverweight": feature_importance_overweight,
    "TreeDepth": tree_depth,
    "CreateXgboostReport": create_xgboost_report,
}
