"""The nine sections on an XGBoost model; one whose tensors were not saved says so, and the others go on."""

from collections.abc import Sequence

import numpy as np

from trainguard.render.blocks import Block, Column, Facts, Figure, Figures, Folded, Key, Note, Panel, Table
from trainguard.render.names import shown_name
from trainguard.render.numbers import count, number
from trainguard.render.plots.scale import PERCENT, up_from_zero
from trainguard.render.plots.strips import bar, head
from trainguard.report.html.page import read_asset, render_page
from trainguard.report.html.training.charts import Curve, bars, colour_of, curves, series_blocks
from trainguard.report.html.training.maps import confusion_blocks
from trainguard.report.training.document import TrainingReport
from trainguard.report.training.heat_map import HeatMap
from trainguard.report.training.predictions import KNOWN, Objective
from trainguard.report.training.scores import Score
from trainguard.report.training.xgboost import TYPES, Feature
from trainguard.report.training.xgboost_files import NO_FEATURES, NO_METRICS, why_no_comparison, why_no_scores

FEATURES_SHOWN = 30
LINES_SHOWN = 8
_DECIMALS = 3


def xgboost_sections(training: TrainingReport, *, with_loss: bool = False) -> list[Panel]:
    """Return the sections that apply to the objective; ``with_loss`` adds losses and metrics."""
    objective = Objective(None if training.model is None else training.model.objective)
    found = [
        Panel("model", "XGBoost model", _model(training, objective)),
        Panel("labels", "Distribution of labels", _labels(training)),
    ]
    if with_loss:
        found.append(Panel("loss", "Loss and metrics", series_blocks(training) or [Note(NO_METRICS)]))
    found.append(Panel("features", "Importance of features", _features(training)))
    if not objective.is_regression:
        found += [
            Panel("confusion", "Confusion matrix", _confusion(training)),
            Panel("evaluation", "Precision, recall and F1", _evaluation(training)),
            Panel("accuracy", "Accuracy of each class", _accuracy(training)),
        ]
    if objective.is_binary:
        found.append(Panel("roc", "Receiver operating characteristic", _roc(training)))
    found.append(Panel("residuals", "Residuals", _residuals(training)))
    if objective.is_regression:
        found.append(Panel("errors", "Absolute error by label", _errors(training)))
    return found


def _model(training: TrainingReport, objective: Objective) -> list[Block]:
    shown: list[Block] = []
    if objective.name is None:
        shown.append(Note("The run saved no hyperparameters, so that its objective is not known."))
    elif not objective.is_known:
        shown.append(
            Note(f"The report knows objectives {', '.join(KNOWN)}; for {objective.name} some plots are missing.")
        )
    if training.last_step == 0:
        shown.append(Note("Only step 0 was saved: train for more rounds than the interval at which steps are saved."))
    settings = {} if training.model is None else training.model.settings
    if settings:
        shown.append(Facts([(shown_name(name), shown_name(value)) for name, value in sorted(settings.items())]))
    return shown


def _labels(training: TrainingReport) -> list[Block]:
    held = training.predictions.labels
    if not held:
        return [Note(why_no_comparison(training))]
    most = max(each.samples for each in held)
    scale = up_from_zero(float(most))
    columns = [Column("Label"), Column("", "plot", head(scale)), Column("Samples", "number")]
    rows = [
        (name, bar(float(each.samples), scale, alt=f"{name}: {each.samples:,}"), count(each.samples))
        for each in held
        for name in [number(each.label) if each.until is None else f"{number(each.label)} to {number(each.until)}"]
    ]
    table = Table("Samples of each label of the validation set", columns, rows)
    return [table] if len(rows) <= FEATURES_SHOWN else [Folded(f"{len(rows)} labels", [table])]


def _features(training: TrainingReport) -> list[Block]:
    model = training.model
    if model is None or not model.importance:
        return [Note(NO_FEATURES)]
    shown: list[Block] = []
    for kind in TYPES:
        features = model.importance.get(kind, [])
        if features:
            shown.append(_importance(kind, features, model.importance_step or 0))
    return shown


def _importance(kind: str, features: Sequence[Feature], step: int) -> Block:
    """Return a table of the features; of very many those that matter most."""
    least = sorted((each.importance for each in features), reverse=True)[:FEATURES_SHOWN][-1]
    held = [each for each in features if each.importance >= least][:FEATURES_SHOWN]
    scale = up_from_zero(100.0 * max(each.importance for each in held))
    columns = [Column("Feature"), Column("Share", "plot", head(scale, " %")), Column("%", "number")]
    rows = [
        (shown_name(each.feature), bar(share, scale, alt=f"{each.feature}: {share:.1f} %"), f"{share:.1f}")
        for each in held
        for share in [100.0 * each.importance]
    ]
    left = len(features) - len(held)
    note = f"{left:,} features that matter less are in report.json." if left else None
    return Table(f"Importance by {kind} at step {step:,}", columns, rows, (), note)


def _confusion(training: TrainingReport) -> list[Block]:
    matrix = training.predictions.confusion
    return [Note(why_no_scores(training))] if matrix is None else confusion_blocks(matrix)


def _evaluation(training: TrainingReport) -> list[Block]:
    held = training.evaluation
    if held is None:
        return [Note(why_no_scores(training))]
    columns = [
        Column("Class"),
        *(Column(name, "number") for name in ("Precision", "Recall", "F1", "Samples")),
    ]
    total = count(sum(each.support for each in held.classes))
    rows = [[str(each.name), *_scores(each), count(each.support)] for each in held.classes]
    averages = [("micro average", held.micro), ("macro average", held.macro), ("weighted average", held.weighted)]
    rows += [[name, *_scores(score), total] for name, score in averages]
    caption = f"Accuracy {held.accuracy:.{_DECIMALS}f} at step {training.predictions.step:,}"
    return [Table(caption, columns, rows)]


def _scores(score: Score) -> list[str]:
    return [f"{value:.{_DECIMALS}f}" for value in (score.precision, score.recall, score.f1_score)]


def _accuracy(training: TrainingReport) -> list[Block]:
    held = training.predictions.accuracy
    if not held.steps:
        return [Note(why_no_scores(training))]
    return _rows_over_steps(held, held.rows, "Share of each class that is predicted as it", percent=True)


def _errors(training: TrainingReport) -> list[Block]:
    held, edges = training.predictions.errors, training.predictions.error_edges
    if not held.steps:
        return [Note(why_no_comparison(training))]
    names = [f"{number(edges[place])} to {number(edges[place + 1])}" for place in range(len(edges) - 1)]
    return _rows_over_steps(held, names, "Mean absolute error of labels in each bin", percent=False)


def _rows_over_steps(held: HeatMap, names: Sequence[str], caption: str, *, percent: bool) -> list[Block]:
    """Draw eight rows a chart: one colour each."""
    factor, unit = (100.0, "%") if percent else (1.0, "error")
    figures = []
    for begin in range(0, len(names), LINES_SHOWN):
        part = range(begin, min(begin + LINES_SHOWN, len(names)))
        drawn = [
            Curve(names[place], held.steps, [None if each is None else factor * each for each in held.values[place]])
            for place in part
        ]
        keys = [Key(f"line {colour_of(index)}", curve.name) for index, curve in enumerate(drawn)]
        alt = f"{caption}, over steps, for {', '.join(curve.name for curve in drawn)}"
        scale = PERCENT if percent else None
        figures.append(Figure(caption, curves(drawn, alt=alt, across="step", up=unit, scale=scale), keys))
    return [Figures(figures)]


def _roc(training: TrainingReport) -> list[Block]:
    held = training.predictions.roc
    if held is None:
        if training.predictions.step is None:
            return [Note(why_no_comparison(training))]
        return [Note("The validation set has one class alone, so that there is no curve.")]
    curve = Curve("model", held.false_positive, held.true_positive)
    even = Curve("chance", [0.0, 1.0], [0.0, 1.0])
    alt = f"True over false positive rate; the area below the curve is {held.auc:.{_DECIMALS}f}"
    markup = curves(
        [curve, even], alt=alt, across="false positive rate", up="true positive rate", scale=up_from_zero(1.0)
    )
    keys = [Key("line s1", "model"), Key("line s2", "chance")]
    return [Figures([Figure(f"Area under the curve {held.auc:.{_DECIMALS}f} at step {held.step:,}", markup, keys)])]


def _residuals(training: TrainingReport) -> list[Block]:
    held = training.predictions.residuals
    if held is None:
        return [Note(why_no_comparison(training))]
    width = held.edges[1] - held.edges[0]
    curve = None
    if held.sigma > 0.0 and width > 0.0:
        x = np.asarray(held.x)
        tall = sum(held.hist) * width / (held.sigma * np.sqrt(2.0 * np.pi))
        normal = tall * np.exp(-0.5 * ((x - held.mu) / held.sigma) ** 2)
        curve = Curve("normal distribution", held.x, normal.tolist())
    alt = f"Prediction minus label: mean {number(held.mu)}, deviation {number(held.sigma)}"
    markup = bars(held.edges, held.hist, alt=alt, across="prediction minus label", up="samples", curve=curve)
    keys = [Key("bin", "samples"), Key("line s2", "normal distribution of the same mean and deviation")]
    return [Figures([Figure(f"{alt}, at step {held.step:,}", markup, keys)])]


def render_xgboost(training: TrainingReport, job: str) -> str:
    """Return the page as one file; the texts of ``training`` may hold anything."""
    sections = xgboost_sections(training, with_loss=True)
    return render_page("xgboost_report.html.j2", styles=read_asset("training.css"), training=sections, job=job)
