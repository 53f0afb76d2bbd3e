"""Labels and predictions of each objective, and what is said where they cannot be compared."""

from typing import Any

import msgspec
import pytest

from tests.support.steps import Run
from trainguard.report.training.digest import Digester
from trainguard.report.training.document import TrainingReport, training_report
from trainguard.report.training.xgboost_files import xgboost_files


def report_of(objective: str | None, *steps: dict[str, Any]) -> TrainingReport:
    run, digester = Run(), Digester()
    for number, tensors in enumerate(steps):
        settings = {} if objective is None or number else {"hyperparameters/objective": [objective]}
        digester.fold(run.add(5 * number, {**settings, **tensors}))
    return training_report(digester.done(), [])


def file_of(report: TrainingReport, name: str) -> Any:
    return msgspec.json.decode(xgboost_files(report)[f"xgboost-reports/{name}.json"])


def test_labels_of_all_steps_are_counted_once() -> None:
    step = {"labels": [0.0, 1.0, 1.0], "predictions": [0.0, 1.0, 1.0]}
    report = report_of("multi:softmax", step, step, step)
    assert file_of(report, "LabelsDistribution") == {
        "labels_and_samples": [
            {"labels": 0.0, "num_samples_per_label": 1},
            {"labels": 1.0, "num_samples_per_label": 2},
        ]
    }


def test_probabilities_have_a_curve_and_rounded_classes() -> None:
    report = report_of("binary:logistic", {"labels": [0, 0, 1, 1], "predictions": [0.1, 0.4, 0.35, 0.8]})
    assert report.predictions.roc is not None
    assert report.predictions.roc.auc == pytest.approx(0.75)
    assert len(report.predictions.roc.true_positive) == 5
    assert file_of(report, "ConfusionMatrix") == {
        "group_labels": ["0", "1"],
        "group_counts": [2, 0, 1, 1],
        "group_percentages": [50.0, 0.0, 25.0, 25.0],
        "stats": {"accuracy": 0.75},
    }
    scores = file_of(report, "EvaluationMetrics")
    assert scores["overall_accuracy"] == 0.75
    assert scores["macro"] == {"precision": 0.83333, "recall": 0.75, "f1_score": 0.73333}
    assert "1.00000    0.50000    0.66667          2" in scores["classification_report"]


def test_probability_of_one_half_is_class_zero() -> None:
    report = report_of("binary:logistic", {"labels": [0, 1], "predictions": [0.5, 0.50001]})
    assert report.evaluation is not None
    assert report.evaluation.accuracy == 1.0


def test_accuracy_of_classes_is_by_step() -> None:
    first = {"labels": [0, 0, 1], "predictions": [0, 1, 0]}
    second = {"labels": [0, 0, 1], "predictions": [0, 0, 1]}
    report = report_of("multi:softmax", first, {}, second)
    assert file_of(report, "IterativeClassAccuracy") == {"0": [0.5, 1.0], "1": [0.0, 1.0]}
    assert report.predictions.step == 10


def test_regression_has_errors_by_label_and_no_classes() -> None:
    report = report_of(
        "reg:squarederror",
        {"labels": [0.0, 0.5, 9.5, 10.0], "predictions": [1.0, 0.5, 9.5, 7.0]},
        {"labels": [0.0, 0.5, 9.5, 10.0], "predictions": [0.0, 0.5, 9.5, 9.0]},
    )
    held = report.predictions
    assert held.error_edges == pytest.approx([float(edge) for edge in range(11)])
    assert held.errors.steps == [0, 5]
    assert held.errors.values[0] == [0.5, 0.0]
    assert held.errors.values[9] == [1.5, 0.5]
    assert held.errors.values[4] == [None, None]
    assert file_of(report, "ResidualDistribution")["mu"] == pytest.approx(-0.25)
    matrix = file_of(report, "ConfusionMatrix")
    assert (matrix["group_counts"], matrix["note"]) == ([], "The model predicts quantities, not classes.")


def test_missing_predictions_are_noted_in_their_files_only() -> None:
    report = report_of("multi:softmax", {"labels": [0, 1], "feature_importance/gain/f0": [1.0]})
    assert "no predictions" in file_of(report, "ConfusionMatrix")["note"]
    assert "no predictions" in file_of(report, "ResidualDistribution")["note"]
    assert len(file_of(report, "LabelsDistribution")["labels_and_samples"]) == 2
    assert file_of(report, "FeatureImportance") == {"features": {"gain": [{"feature": "f0", "importance": 1.0}]}}
    assert file_of(report, "LossData")["category_loss_per_step"] == []


def test_different_counts_of_labels_and_predictions_are_noted() -> None:
    report = report_of("multi:softmax", {"labels": [0, 1], "predictions": [0, 1, 1]})
    assert "2 labels and 3 predictions" in " ".join(report.left_out)
    assert "2 labels and 3 predictions" in file_of(report, "EvaluationMetrics")["note"]


def test_objective_without_sections_keeps_the_rest() -> None:
    report = report_of("rank:pairwise", {"labels": [0, 1], "predictions": [0.25, 3.5]})
    assert "rank:pairwise" in file_of(report, "ConfusionMatrix")["note"]
    assert len(file_of(report, "LabelsDistribution")["labels_and_samples"]) == 2


def test_non_finite_values_are_left_out_of_the_comparison() -> None:
    nan = float("nan")
    report = report_of("multi:softmax", {"labels": [0, 1, nan], "predictions": [0, nan, 1]})
    assert report.predictions.confusion is not None
    assert report.predictions.confusion.counts == [[1]]


def test_first_thousand_features_by_number_are_kept() -> None:
    features = {f"feature_importance/gain/f{number}": [1e-4] for number in range(10_000)}
    report = report_of(None, features)
    assert report.model is not None
    assert list(report.model.importance["gain"]) == [f"f{number}" for number in range(1_000)]
    assert "9,000 features" in " ".join(report.left_out)


def test_labels_beyond_the_counted_limit_are_binned() -> None:
    report = report_of("reg:squarederror", {"labels": [float(each) for each in range(1_000)]})
    rows = file_of(report, "LabelsDistribution")["labels_and_samples"]
    assert [each["num_samples_per_label"] for each in rows] == [100] * 10
    assert rows[0]["labels"] == "0 to 99.9"


def test_run_of_another_framework_has_no_xgboost_files() -> None:
    report = report_of(None, {"labels": [0, 1], "predictions": [0, 1]})
    assert report.predictions.confusion is not None
    assert xgboost_files(report) == {}


@pytest.mark.parametrize("predictions", [[[0.1, 0.9, 0.0], [0.7, 0.2, 0.1]], [0.1, 0.9, 0.0, 0.7, 0.2, 0.1]])
def test_highest_class_probability_of_a_row_is_the_prediction(
    predictions: list[Any],
) -> None:
    matrix = report_of("multi:softprob", {"labels": [1, 2], "predictions": predictions}).predictions.confusion
    assert matrix is not None
    assert (matrix.classes, matrix.counts) == ([0, 1, 2], [[0, 0, 0], [0, 1, 0], [1, 0, 0]])


def test_matrix_uses_the_tensors_named_by_confusion_parameters() -> None:
    digester = Digester(confusion={"labels": "foo", "predictions": "bar"})
    digester.fold(Run().add(0, {"foo": [0, 1, 1], "bar": [0, 1, 0]}))
    matrix = digester.done().predictions.confusion
    assert matrix is not None
    assert matrix.counts == [[1, 0], [1, 1]]
