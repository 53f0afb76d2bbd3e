"""Training health in a report: the part ``training`` of ``report.json``."""

import msgspec

from trainguard.report.training.layers import Layers
from trainguard.report.training.predictions import Predictions
from trainguard.report.training.scores import Evaluation
from trainguard.report.training.series import Series
from trainguard.report.training.xgboost import Model


class FirstFire(msgspec.Struct, frozen=True, kw_only=True):
    """The first step at which a rule fired, and those at which it began to fire again.

    Attributes
    ----------
    at : float
        When it was saved, epoch seconds.
    tensor : str or None
        The tensor that was furthest over the threshold there.
    episodes : list of int
        The steps at which it began to fire, the first 32 of each stream.
    """

    rule: str
    step: int
    at: float
    tensor: str | None
    reason: str
    episodes: list[int]


class TrainingReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's tensors and scalars show.

    Attributes
    ----------
    steps : int
        Complete steps, of all modes.
    modes : dict of str to int
        How many are of each mode.
    fires : list of FirstFire
        In order of steps.
    series : list of Series
        Losses and metrics over steps.
    layers : Layers
        Norms of gradients, updates of weights and activations over steps.
    predictions : Predictions
        Labels, and how well predictions fit them.
    evaluation : Evaluation or None
        Scores of the confusion matrix; None where there is none.
    model : Model or None
        Of a run of XGBoost: its hyperparameters, and how important its features are.
    left_out : list of str
        What was saved and is not shown, in sentences.
    """

    steps: int
    first_step: int | None
    last_step: int | None
    modes: dict[str, int]
    fires: list[FirstFire]
    series: list[Series]
    layers: Layers
    predictions: Predictions
    evaluation: Evaluation | None
    model: Model | None
    left_out: list[str]
