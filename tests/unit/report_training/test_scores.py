"""Scores against values computed by hand."""

import numpy as np
import pytest

from trainguard.report.training.predictions import MOST_BINS, confusion, evaluation, residuals, roc


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def floats(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values, np.float64)


def test_scores_of_three_classes_match_a_manual_calculation() -> None:
    matrix = confusion(7, ints(0, 0, 0, 1, 1, 2), ints(0, 0, 1, 1, 2, 2))
    assert matrix is not None
    assert (matrix.step, matrix.classes, matrix.counts) == (7, [0, 1, 2], [[2, 1, 0], [0, 1, 1], [0, 0, 1]])
    held = evaluation(matrix)
    assert held.accuracy == pytest.approx(4 / 6)
    assert [each.precision for each in held.classes] == pytest.approx([1.0, 0.5, 0.5])
    assert [each.recall for each in held.classes] == pytest.approx([2 / 3, 0.5, 1.0])
    assert [each.f1_score for each in held.classes] == pytest.approx([0.8, 0.5, 2 / 3])
    assert [each.support for each in held.classes] == [3, 2, 1]
    assert held.micro.f1_score == pytest.approx(4 / 6)
    assert held.macro.precision == pytest.approx(2 / 3)
    assert held.macro.f1_score == pytest.approx((0.8 + 0.5 + 2 / 3) / 3)
    assert held.weighted.precision == pytest.approx((3 * 1.0 + 2 * 0.5 + 1 * 0.5) / 6)
    assert held.weighted.recall == pytest.approx(4 / 6)


def test_precision_of_a_never_predicted_class_is_zero() -> None:
    matrix = confusion(0, ints(0, 1), ints(0, 0))
    assert matrix is not None
    held = evaluation(matrix)
    assert (held.classes[1].precision, held.classes[1].recall, held.classes[1].f1_score) == (0.0, 0.0, 0.0)


def test_class_that_is_only_predicted_has_no_samples() -> None:
    matrix = confusion(0, ints(0, 0), ints(0, 5))
    assert matrix is not None
    assert matrix.classes == [0, 5]
    assert evaluation(matrix).classes[1].support == 0


def test_no_samples_or_too_many_classes_have_no_matrix() -> None:
    assert confusion(0, ints(), ints()) is None
    assert confusion(0, ints(*range(101)), ints(*range(101))) is None


def test_area_under_the_curve_is_the_share_of_ordered_pairs() -> None:
    """Of four pairs of a positive and a negative sample three are in order: 0.75; a tie counts half."""
    held = roc(3, ints(0, 0, 1, 1), floats(0.1, 0.4, 0.35, 0.8))
    assert held is not None
    assert held.auc == pytest.approx(0.75)
    assert (held.false_positive, held.true_positive) == ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    tied = roc(3, ints(0, 1, 1), floats(0.5, 0.5, 0.9))
    assert tied is not None
    assert tied.auc == pytest.approx(0.75)


def test_very_many_scores_have_a_short_curve_and_exact_area() -> None:
    random = np.random.default_rng(0)
    labels, scores = random.integers(0, 2, 20_000), random.random(20_000)
    held = roc(0, labels, scores)
    assert held is not None
    order = np.argsort(scores)
    ranks = np.empty(20_000)
    ranks[order] = np.arange(1, 20_001)
    positives = int(labels.sum())
    expected = (ranks[labels == 1].sum() - positives * (positives + 1) / 2) / (positives * (20_000 - positives))
    assert held.auc == pytest.approx(expected)
    assert len(held.true_positive) <= 200
    assert (held.false_positive[0], held.true_positive[-1]) == (0.0, 1.0)


def test_single_class_has_no_curve() -> None:
    assert roc(0, ints(1, 1), floats(0.1, 0.9)) is None


def test_residual_bins_are_those_of_numpy() -> None:
    random = np.random.default_rng(1)
    labels, predictions = random.random(500), random.random(500)
    held = residuals(4, labels, predictions)
    assert held is not None
    counts, edges = np.histogram(predictions - labels, bins="auto")
    assert held.hist == counts.tolist()
    assert held.edges == pytest.approx(edges.tolist())
    assert (held.step, len(held.x)) == (4, 50)
    assert held.mu == pytest.approx(float((predictions - labels).mean()))
    assert held.sigma == pytest.approx(float((predictions - labels).std()))


def test_integer_residuals_are_each_centred_in_a_bin() -> None:
    held = residuals(0, floats(0, 1, 2, 2), floats(0, 0, 2, 4))
    assert held is not None
    assert (held.edges, held.hist) == ([-1.5, -0.5, 0.5, 1.5, 2.5], [1, 2, 0, 1])


def test_bins_of_a_huge_residual_range_are_bounded() -> None:
    held = residuals(0, np.zeros(1_000), np.append(np.full(999, 1e-9) * np.arange(999), 1e9))
    assert held is not None
    assert len(held.hist) <= MOST_BINS
    assert sum(held.hist) == 1_000


def test_equal_or_missing_residuals_do_not_fail() -> None:
    same = residuals(0, floats(0.25, 0.25), floats(0.5, 0.5))
    assert same is not None
    assert sum(same.hist) == 2
    assert residuals(0, floats(), floats()) is None
