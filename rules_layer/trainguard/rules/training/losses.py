"""The loss of a step: the mean over tensors, by what the script was doing; XGBoost says that in its metrics' names."""

import re
from collections.abc import Iterable, Mapping

from trainguard.rules.training.folds import mean
from trainguard.rules.training.readings import used
from trainguard.rules.training.step_rule import StepState
from trainguard.tensors.step_view import Mode, StepView

XGBOOST_METRIC = re.compile(r"(?P<data>[A-Za-z0-9_]+)-(?P<metric>\S+)")
"""``train-rmse``: the name of an evaluation set, and that of a metric."""

XGBOOST_TRAIN = "train"


def mean_loss(state: StepState, step: StepView, tensors: Iterable[str]) -> float | None:
    """Return the mean of the tensors' means; None where none of them holds numbers."""
    means = [used(state, mean, step, tensor) for tensor in tensors]
    found = [each for each in means if each is not None]
    return sum(found) / len(found) if found else None


def by_mode(step: StepView, tensors: Iterable[str]) -> Mapping[Mode, list[str]]:
    """Return a step's loss tensors by TRAIN and EVAL; none of a step of another mode.

    In a run without modes the metrics of XGBoost are of TRAIN where they are of the set ``train``, else of EVAL.
    """
    if step.mode in (Mode.TRAIN, Mode.EVAL):
        return {step.mode: list(tensors)}
    found: dict[Mode, list[str]] = {}
    if step.mode is Mode.GLOBAL:
        for tensor in tensors:
            metric = XGBOOST_METRIC.fullmatch(tensor)
            if metric is not None:
                found.setdefault(Mode.TRAIN if metric["data"] == XGBOOST_TRAIN else Mode.EVAL, []).append(tensor)
    return found


def metric_pairs(tensors: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return for each metric of XGBoost its tensors of training and validation, where both are there."""
    names = set(tensors)
    pairs = {}
    for name in sorted(names):
        metric = XGBOOST_METRIC.fullmatch(name)
        if metric is not None and metric["data"] == XGBOOST_TRAIN:
            other = f"validation-{metric['metric']}"
            if other in names:
                pairs[metric["metric"]] = name, other
    return pairs
