"""The data of the report on an XGBoost model as the managed service's files have it, under ``xgboost-reports/``.

Where a file has nothing to say, its lists are empty and its ``note`` says why; IterativeClassAccuracy is empty then.
"""

from collections.abc import Callable, Mapping
from typing import Any

from trainguard.render.details import encode_report
from trainguard.report.training.document import TrainingReport
from trainguard.report.training.predictions import REGRESSION, ClassScores, Score

FOLDER = "xgboost-reports"
DECIMALS = 5


def xgboost_files(training: TrainingReport) -> dict[str, bytes]:
    """Return the seven files by their names; none of a run that is not of XGBoost."""
    if training.model is None:
        return {}
    return {f"{FOLDER}/{name}.json": encode_report(make(training)) for name, make in _FILES.items()}


def why_no_scores(training: TrainingReport) -> str:
    held, objective = training.predictions, None if training.model is None else training.model.objective
    if objective == REGRESSION:
        return "The model predicts quantities, not classes."
    if held.step is None or held.why_not is not None:
        return why_no_comparison(training)
    return f"The predictions of objective {objective} name no classes."


def why_no_comparison(training: TrainingReport) -> str:
    held = training.predictions
    if held.why_not is not None:
        return f"Predictions could not be compared: {held.why_not}."
    if not held.labels:
        return "The run saved no labels: record the collections labels and predictions, with a validation set."
    return "The run saved no predictions: record the collection predictions, with a validation set."


NO_METRICS = "The run saved no metrics: record the collection metrics."
NO_FEATURES = "The run saved no importance of features: record the collection feature_importance."


def _confusion(training: TrainingReport) -> dict[str, Any]:
    matrix = training.predictions.confusion
    if matrix is None:
        empty: dict[str, Any] = {"group_labels": [], "group_counts": [], "group_percentages": []}
        return empty | {"stats": {"accuracy": None}, "note": why_no_scores(training)}
    counts = [count for row in matrix.counts for count in row]
    return {
        "group_labels": [str(each) for each in matrix.classes],
        "group_counts": counts,
        "group_percentages": [round(100.0 * count / matrix.total, DECIMALS) for count in counts],
        "stats": {"accuracy": round(matrix.accuracy, DECIMALS)},
    }


def _evaluation(training: TrainingReport) -> dict[str, Any]:
    held = training.evaluation
    if held is None:
        empty = {"overall_accuracy": None, "classification_report": "", "micro": None, "macro": None, "weighted": None}
        return empty | {"note": why_no_scores(training)}
    return {
        "overall_accuracy": round(held.accuracy, DECIMALS),
        "classification_report": classification_report(held),
        "micro": _score(held.micro),
        "macro": _score(held.macro),
        "weighted": _score(held.weighted),
    }


def _score(score: Score) -> dict[str, float]:
    return {name: round(getattr(score, name), DECIMALS) for name in ("precision", "recall", "f1_score")}


def classification_report(held: ClassScores) -> str:
    """Return precision, recall, F1 and samples of each class and of the averages as a table of text."""
    samples = sum(each.support for each in held.classes)
    rows: list[tuple[str, Score, int]] = [(str(each.name), each, each.support) for each in held.classes]
    averages = [("micro avg", held.micro), ("macro avg", held.macro), ("weighted avg", held.weighted)]
    rows += [(name, score, samples) for name, score in averages]
    head = f"{'':>14} {'precision':>10} {'recall':>10} {'f1-score':>10} {'support':>10}"
    lines = [
        f"{name:>14} {score.precision:>10.5f} {score.recall:>10.5f} {score.f1_score:>10.5f} {support:>10}"
        for name, score, support in rows
    ]
    return "\n".join([head, "", *lines])


def _importance(training: TrainingReport) -> dict[str, Any]:
    importance = {} if training.model is None else training.model.importance
    features = {
        kind: [{"feature": name, "importance": share} for name, share in found.items()]
        for kind, found in importance.items()
    }
    return {"features": features} | ({} if features else {"note": NO_FEATURES})


def _class_accuracy(training: TrainingReport) -> dict[str, Any]:
    held = training.predictions.accuracy
    return dict(zip(held.rows, held.values, strict=True))


def _labels(training: TrainingReport) -> dict[str, Any]:
    held = training.predictions.labels
    counted = [
        {
            "labels": each.label if each.until is None else f"{each.label:g} to {each.until:g}",
            "num_samples_per_label": each.samples,
        }
        for each in held
    ]
    return {"labels_and_samples": counted} | ({} if counted else {"note": why_no_comparison(training)})


def _loss(training: TrainingReport) -> dict[str, Any]:
    rows = [
        {"steps": step, "loss": value, "category": each.name}
        for each in training.series
        for step, value in zip(each.steps, each.mean, strict=True)
    ]
    return {"category_loss_per_step": rows} | ({} if rows else {"note": NO_METRICS})


def _residuals(training: TrainingReport) -> dict[str, Any]:
    held = training.predictions.residuals
    if held is None:
        empty: dict[str, Any] = {"plot_step": None, "hist": [], "edges": [], "x": [], "mu": None, "sigma": None}
        return empty | {"note": why_no_comparison(training)}
    return {"plot_step": held.step, **{name: getattr(held, name) for name in ("hist", "edges", "x", "mu", "sigma")}}


_FILES: Mapping[str, Callable[[TrainingReport], dict[str, Any]]] = {
    "ConfusionMatrix": _confusion,
    "EvaluationMetrics": _evaluation,
    "FeatureImportance": _importance,
    "IterativeClassAccuracy": _class_accuracy,
    "LabelsDistribution": _labels,
    "LossData": _loss,
    "ResidualDistribution": _residuals,
}
