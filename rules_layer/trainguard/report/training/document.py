"""Training health in a report: the part ``training`` of ``report.json``, and how a digest becomes it."""

from collections.abc import Collection, Sequence

import msgspec

from trainguard.core.errors import RuleFailedError
from trainguard.core.units import counted, listed
from trainguard.engine.training.family import AnyStepStream, TrainingStreams
from trainguard.engine.training.stream import TRAINING, step_rules
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.training.digest import Model, ScalarSeries, TrainingDigest
from trainguard.report.training.heat_map import MOST_NAMED
from trainguard.report.training.layers import Layers
from trainguard.report.training.predictions import ClassScores, Predictions, evaluation
from trainguard.rules.training.step_rule import Check, StepState


class FirstFire(msgspec.Struct, frozen=True, kw_only=True):
    """The first step at which a rule fired, and those at which it began to fire again.

    at: When it was saved, epoch seconds.
    tensor: The tensor that was furthest over the threshold there.
    episodes: The steps at which it began to fire, the first 32 of each stream.
    """

    rule: str
    step: int
    at: float
    tensor: str | None
    reason: str
    episodes: list[int]


class TrainingReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's tensors and scalars show.

    steps: Complete steps, of all modes.
    modes: How many are of each mode.
    fires: In order of steps.
    series: Losses and metrics over steps.
    layers: Norms of gradients, updates of weights and activations over steps.
    predictions: Labels, and how well predictions fit them.
    evaluation: Scores of the confusion matrix; None where there is none.
    model: Of a run of XGBoost: its hyperparameters, and how important its features are.
    left_out: What was saved and is not shown, in sentences.
    """

    steps: int
    first_step: int | None
    last_step: int | None
    modes: dict[str, int]
    fires: list[FirstFire]
    series: list[ScalarSeries]
    layers: Layers
    predictions: Predictions
    evaluation: ClassScores | None
    model: Model | None
    left_out: list[str]


def rule_fires(judged: EvaluatedJob) -> list[FirstFire]:
    family = judged.streams.families.get(TRAINING)
    if not isinstance(family, TrainingStreams):
        return []
    found = []
    for rule in step_rules(judged.plan):
        states = [_state(stream, rule.name) for stream in family.of_steps.values()]
        fired = [(each.first, each.onsets) for each in states if each is not None and each.first is not None]
        if fired:
            first = min((check for check, _ in fired), key=lambda check: check.step)
            begins = {step for check, steps in fired for step in (check.step, *steps)}
            found.append(first_fire(rule.name, first, rule.said(first), begins))
    return found


def first_fire(rule: str, first: Check, reason: str, begins: Collection[int]) -> FirstFire:
    """Return a rule's first check that fired, what it says, and the steps at which it began to fire."""
    return FirstFire(
        rule=rule, step=first.step, at=first.at, tensor=first.tensor, reason=reason, episodes=sorted(begins)
    )


def _state(stream: AnyStepStream, rule: str) -> StepState | None:
    """Return None of a rule that failed, or is judged by the clock: StalledTrainingRule."""
    try:
        state: StepState = stream.state_of(rule)
    except (KeyError, RuleFailedError):
        return None
    return state


_NAMED = 3


def training_report(digest: TrainingDigest, fires: Sequence[FirstFire]) -> TrainingReport:
    matrix = digest.predictions.confusion
    return TrainingReport(
        steps=digest.steps,
        first_step=digest.first_step,
        last_step=digest.last_step,
        modes=dict(digest.modes),
        fires=sorted(fires, key=lambda fire: (fire.step, fire.rule)),
        series=digest.series,
        layers=digest.layers,
        predictions=digest.predictions,
        evaluation=None if matrix is None else evaluation(matrix),
        model=digest.model,
        left_out=_left_out(digest),
    )


def _left_out(digest: TrainingDigest) -> list[str]:
    said = []
    if digest.unread:
        said.append(f"{counted(digest.unread, 'step')} could not be read, the last one because {digest.unread_why}.")
    if digest.series_left_out:
        said.append(f"{_at_least(digest.series_left_out, 'loss or metric', 'losses and metrics')} not shown.")
    sampled = [each for each in digest.series if each.read < each.seen]
    if sampled:
        read, seen = sum(each.read for each in sampled), sum(each.seen for each in sampled)
        said.append(f"Of {seen:,} values of {listed([each.name for each in sampled], _NAMED)} {read:,} were read.")
    said += _left_out_of(digest.layers)
    budget = digest.budget
    if budget.refused:
        said.append(
            f"{counted(budget.refused, 'tensor')} would have taken too much to read; saved reductions take nothing "
            "(abs_mean of gradients)."
        )
    if budget.failed:
        said.append(f"{counted(budget.failed, 'tensor')} could not be used, the last one because {budget.failed_why}.")
    if digest.predictions.why_not:
        said.append(f"Predictions of the newest step were not compared: {digest.predictions.why_not}.")
    if digest.model is not None and digest.model.features_left_out:
        said.append(f"{counted(digest.model.features_left_out, 'feature')} beyond the first thousand are not shown.")
    return said


def _left_out_of(layers: Layers) -> list[str]:
    said = []
    maps = {"gradients": layers.gradients, "weights": layers.updates, "activations": layers.activation_mean}
    for what, held in maps.items():
        if held.rows_left_out:
            said.append(f"{_at_least(held.rows_left_out, f'tensor of {what}', f'tensors of {what}')} not shown.")
        if held.read < held.seen:
            said.append(f"Of {counted(held.seen, 'step')} with {what} {held.read:,} were read.")
    return said


def _at_least(names: Sequence[str], one: str, many: str) -> str:
    more = "or more " if len(names) >= MOST_NAMED else ""
    named = listed(names, _NAMED + 1)
    return f"{len(names)} {more}{one if len(names) == 1 else many} ({named}) {'is' if len(names) == 1 else 'are'}"
