"""GradientNormDrift: gradients grow or shrink by orders of magnitude while the loss does not fall.

A norm is a scalar of ``gradient_norm``, or a gradient's saved ``l2``, else its mean absolute value. The loss must not
fall: gradients of a model that learns shrink with it, and those of a slow start grow.
"""

import math

import msgspec

from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.protocol import NonNegative
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import abs_mean, scalar, step_fact, used
from trainguard.rules.training.run_series import TOTAL
from trainguard.rules.training.selection import GRADIENTS, LOSSES
from trainguard.rules.training.series import moved, step_number
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import step_spec

FINE, LEARNS, GROWS, SHRINKS = "fine", "drifts while the loss falls", "grows", "shrinks"


def _words(sheet: FactSheet) -> Words:
    norm = sheet["norm_newest"]
    verb = "was" if sheet.past else "is"
    reason = (
        f"Step {sheet['step'].value}: {norm.series} {verb} about {float(norm.value):.3g} and was "
        f"{sheet.number('norm_first'):.3g} at the start, {sheet.number('distance'):.3g} decades apart"
    )
    since, several = sheet.get("drifts_since_step"), sheet.get("norms_drifted")
    if since is not None:
        reason += f", too far since step {since.value}"
        reason += "" if several is None else f", the first of {several.value} that drifted"
    change = sheet.number("change")
    reason += (
        f"; the loss {moved(change)}, from about {sheet.number('loss_first'):.4g} to {sheet.number('loss_newest'):.4g}."
    )
    if sheet.kind not in (GROWS, SHRINKS):
        return Words(reason)
    if sheet.kind == GROWS:
        cure = "Gradients that grow need clipping, a lower learning rate or normalisation."
        clause = "gradients grew by orders of magnitude"
    else:
        cure = (
            "Gradients that vanish need another activation or initialisation, shortcuts, or a learning rate that did "
            "not kill the units."
        )
        clause = "gradients shrank by orders of magnitude"
    return Words(reason, f"Look at {norm.series} first. {cure}", clause)


GRADIENT_NORM = "gradient_norm"
MOST_NORMS = 512
MOST_NAME_CHARACTERS = 40_000
"""Of all norms together: with their levels they take 60 kB, a seventh of an item."""
FIRST = LAST = 8
SMALLEST = 1e-30
"""A norm of 0 counts as this: float32 has nothing below 1e-38."""
FALLEN = 0.2


class GradientNormDriftParameters(StepParameters, frozen=True, kw_only=True):
    """``decades`` is a distance of logarithms: 3 is a factor of 1,000."""

    decades: NonNegative = 3.0


class Level(msgspec.Struct, array_like=True):
    """The mean of the first eight values, the mean of the newest ones, decayed, and the step at which they drifted."""

    count: int = 0
    first: float = 0.0
    newest: float = 0.0
    drifted: int | None = None

    def add(self, value: float) -> None:
        """Take in a value."""
        self.count += 1
        if self.count <= FIRST:
            self.first += (value - self.first) / self.count
        self.newest += (value - self.newest) / min(self.count, LAST)


class GradientNormDriftState(StepState, kw_only=True):
    """Norms by name, in decades; at most 512 of bounded names, and the loss that was recorded first."""

    norms: dict[str, Level] = msgspec.field(default_factory=dict)
    loss_name: str | None = None
    loss: Level = msgspec.field(default_factory=Level)

    def has_room(self, name: str) -> bool:
        """Whether one more norm may be known, of that name."""
        return len(self.norms) < MOST_NORMS and len(name) + sum(map(len, self.norms)) <= MOST_NAME_CHARACTERS

    def distance(self, name: str) -> float:
        """Return how many decades a norm is away from its start."""
        return abs(self.norms[name].newest - self.norms[name].first)


class GradientNormDrift(StepRule[GradientNormDriftParameters, GradientNormDriftState]):
    """Fires while a norm is far from where it began and the loss has not fallen."""

    spec = step_spec(
        "GradientNormDrift",
        title="Gradients that drift",
        looks_at="the norm of the gradients, of all or of each layer, and the loss",
        fires_when="a norm grows or shrinks by orders of magnitude and the loss does not fall",
        condition=(
            "the last eight norms lie {decades} decades from the first eight, and the loss fell by less than a fifth"
        ),
        measures=(Measure("distance from the first norms", "decades"),),
        parameters={
            "decades": ParameterHelp(
                "decades", "norms that are further from the first ones drift; 3 is a factor of 1,000"
            ),
        },
        needs=(
            "It checks norms of gradients beside the loss: log the gradient norm as a scalar, or record the "
            "collections gradients (the reduction l2 is enough) and losses."
        ),
        say=_words,
        kinds=(FINE, LEARNS, GROWS, SHRINKS),
        bound=("value", "of norms beyond the first 512, or beyond names of 40,000 characters"),
    )

    def check(
        self, state: GradientNormDriftState, step: StepView, parameters: GradientNormDriftParameters
    ) -> Check | None:
        """Take in the norms and the loss of a step, and compare them with the first ones."""
        if step.mode not in (Mode.TRAIN, Mode.GLOBAL):
            return None
        _take_loss(state, step)
        seen = _take_norms(state, step)
        if not seen:
            return None
        decades = parameters.decades
        for each in seen.values():
            if each.count < FIRST + LAST or abs(each.newest - each.first) <= decades:
                each.drifted = None
            elif each.drifted is None:
                each.drifted = step.step
        if state.loss.count < FIRST + LAST:
            state.waiting += 1
            return None
        fallen = state.loss.newest < state.loss.first - FALLEN * abs(state.loss.first)
        drifted = {name: each.drifted for name, each in seen.items() if each.drifted is not None}
        worst = min(drifted, key=lambda each: (drifted[each], each)) if drifted else max(seen, key=state.distance)
        return Check(
            step=step.step,
            at=step.at,
            fires=bool(drifted) and not fallen,
            tensor=worst,
            value=state.distance(worst),
            threshold=parameters.decades,
            kind=_kind(seen[worst], drifted=bool(drifted), fallen=fallen),
            facts=(step_fact(step), *_facts(state, worst, len(drifted), parameters.decades)),
        )


def _take_loss(state: GradientNormDriftState, step: StepView) -> None:
    names = sorted(step.members(LOSSES), key=lambda each: (not TOTAL.search(each), each))
    state.loss_name = state.loss_name or next(iter(names), None)
    loss = next((used(state, scalar, step, name) for name in names if name == state.loss_name), None)
    if loss is not None and math.isfinite(loss):
        state.loss.add(loss)


def _take_norms(state: GradientNormDriftState, step: StepView) -> dict[str, Level]:
    scalars = step.members(GRADIENT_NORM)
    seen: dict[str, Level] = {}
    norms = state.norms
    for name in sorted(scalars | step.members(GRADIENTS)):
        level = norms.get(name)
        if level is None and not state.has_room(name):
            state.left_out += 1
            continue
        norm = used(state, scalar if name in scalars else _size, step, name)
        if norm is not None and math.isfinite(norm):
            if level is None:
                level = norms[name] = Level()
            level.add(math.log10(max(abs(norm), SMALLEST)))
            seen[name] = level
    return seen


def _size(step: StepView, name: str) -> float | None:
    saved = step.reduction(name, "l2")
    if saved is None:
        saved = step.reduction(name, "l2", absolute=True)
    return saved if saved is not None else abs_mean(step, name)


def _kind(norm: Level, *, drifted: bool, fallen: bool) -> str:
    if not drifted:
        return FINE
    if fallen:
        return LEARNS
    return GROWS if norm.newest > norm.first else SHRINKS


def _facts(state: GradientNormDriftState, name: str, drifted: int, decades: float) -> tuple[Fact, ...]:
    norm, loss = state.norms[name], state.loss
    change = (loss.newest - loss.first) / abs(loss.first) if loss.first else 0.0
    return (
        Fact(name="norm_first", value=10.0**norm.first, series=name),
        Fact(name="norm_newest", value=10.0**norm.newest, series=name),
        Fact(name="distance", value=state.distance(name), unit="decades", series=name, threshold=decades),
        *([step_number("drifts_since_step", norm.drifted)] if drifted and norm.drifted is not None else []),
        *([Fact(name="norms_drifted", value=drifted)] if drifted > 1 else []),
        Fact(name="loss_first", value=loss.first, series=state.loss_name),
        Fact(name="loss_newest", value=loss.newest, series=state.loss_name),
        Fact(name="change", value=change, unit="share", series=state.loss_name, threshold=-FALLEN),
    )
