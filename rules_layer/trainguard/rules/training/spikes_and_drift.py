"""LossSpike and GradientNormDrift: a loss that rises and comes back, and gradients that grow or shrink for good.

A spike is information, no alarm: eight deviations above the median of 32 values, as a loss per batch has heavy tails. A
norm is a scalar of ``gradient_norm``, or a gradient's saved ``l2``, else its mean absolute value. Beside a drift the
loss must not fall: gradients of a model that learns shrink with it, and those of a slow start grow.
"""

import math
from statistics import median

import msgspec

from trainguard.core.finding import Fact
from trainguard.formats.tensors.scalars.objective import Signal, objective_of
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegative
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import abs_mean, scalar, step_check, used
from trainguard.rules.training.run_series import rank_of, signals
from trainguard.rules.training.selection import GRADIENT_NORM, GRADIENTS, LOSSES
from trainguard.rules.training.series import level_of, step_number
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import filled, said, step_spec, worded

NO_SPIKE, SPIKES = "no spike", "spikes"


WINDOW = 32
FEWEST = 8
HALF = 0.5
BACK = 3.0
MAD_TO_DEVIATION = 1.4826


class LossSpikeParameters(StepParameters, frozen=True, kw_only=True):
    deviations: NonNegative = 8.0


class LossSpikeState(StepState, kw_only=True):
    """The last values of the loss in training, the spike that goes on, and what spikes there were."""

    name: str | None = None
    window: list[float] = msgspec.field(default_factory=list)
    begins: int | None = None
    peak: float = 0.0
    length: int = 0
    spikes: int = 0
    largest: float = 0.0
    largest_at: tuple[int, int, float] | None = None


class LossSpike(StepRule[LossSpikeParameters, LossSpikeState]):
    by_default = True
    spec = step_spec(
        "LossSpike",
        title="Spikes of the loss",
        looks_at="the loss of training",
        fires_when="never: it counts rises of the loss that recover",
        condition=(
            "the loss lies {deviations} standard deviations, and half of its size, above its last 32 values, and "
            "recovers"
        ),
        parameters={"deviations": ParameterHelp("", "standard deviations above the median of the last 32 values")},
        informs_only=True,
        needs="It checks the loss of training: record it with CollectionConfig(name='losses').",
        on_scalars="It checks the loss of training: log one.",
        changes={"": ChangeCode.LOWER_LEARNING_RATE},
        say=worded(
            {
                NO_SPIKE: "{spikes.series} had no spike",
                SPIKES: "{spikes.series} had {spikes:counted spike} that recovered; the largest began at step "
                "{spike_first_step}, reached {loss_peak:.6g}, {spike_height} above its level, and was over at step "
                "{spike_over_step}",
            }
        ),
        kinds=(NO_SPIKE, SPIKES),
    )

    def check(self, state: LossSpikeState, step: StepView, parameters: LossSpikeParameters) -> Check | None:
        if step.mode not in (Mode.TRAIN, Mode.GLOBAL):
            return None
        state.name, loss = _main_loss(state, step, state.name)
        if loss is None:
            return None
        _follow(state, step.step, loss, parameters.deviations)
        kind = SPIKES if state.spikes else NO_SPIKE
        return step_check(step, _spike_facts(state), fires=False, tensor=state.name, kind=kind)


def _main_loss(state: StepState, step: StepView, name: str | None) -> tuple[str | None, float | None]:
    """Return the name of the loss that is followed, at first the step's first, and its value if it is finite."""
    names = sorted(step.members(LOSSES), key=lambda each: (rank_of(each), each))
    name = name or next(iter(names), None)
    loss = used(state, scalar, step, name) if name is not None and name in names else None
    return name, loss if loss is not None and math.isfinite(loss) else None


def _follow(state: LossSpikeState, step: int, loss: float, deviations: float) -> None:
    window = state.window
    if len(window) < FEWEST:
        state.window = [*window, loss]
        return
    middle = median(window)
    deviation = MAD_TO_DEVIATION * median(abs(each - middle) for each in window)
    if state.begins is not None:
        state.peak, state.length = max(state.peak, loss), state.length + 1
        back = middle + max(BACK * deviation, HALF * (state.peak - middle))
        if loss <= back:
            height = state.peak - middle
            state.spikes += 1
            if height > state.largest:
                state.largest, state.largest_at = height, (state.begins, step, state.peak)
            state.begins = None
        elif state.length > WINDOW:
            state.begins, state.window = None, [loss]
    elif loss - middle > max(deviations * deviation, HALF * abs(middle)) > 0.0:
        state.begins, state.peak, state.length = step, loss, 1
    else:
        state.window = [*window[-WINDOW + 1 :], loss]


def _spike_facts(state: LossSpikeState) -> tuple[Fact, ...]:
    name = str(state.name)
    spikes = Fact(name="spikes", value=state.spikes, series=name)
    if state.largest_at is None:
        return (spikes,)
    begins, ends, peak = state.largest_at
    return (
        spikes,
        step_number("spike_first_step", begins),
        step_number("spike_over_step", ends),
        level_of("loss_peak", name, peak),
        level_of("spike_height", name, state.largest),
    )


NO_DRIFT, LEARNS, GROWS, SHRINKS = "fine", "drifts while the loss falls", "grows", "shrinks"
MOVES = "drifts with a moving target"


def _drift_words(sheet: FactSheet) -> Words:
    sentence = (
        "{norm_newest.series} {was/is} about {norm_newest:.3g} and was {norm_first:.3g} at the start, {distance:.3g} "
        "decades apart"
    )
    if sheet.get("drifts_since_step") is not None:
        sentence += ", too far since step {drifts_since_step}"
        sentence += "" if sheet.get("norms_drifted") is None else ", the first of {norms_drifted} that drifted"
    cure = "Gradients that grow need clipping, a lower learning rate or normalisation."
    if sheet.kind == SHRINKS:
        cure = (
            "Gradients that vanish need another activation or initialisation, shortcuts, or a learning rate that did "
            "not kill the units."
        )
    return said(
        sheet,
        filled(sheet, sentence + "; the loss {change:moved}, from about {loss_first} to {loss_newest}"),
        f"Look at {sheet['norm_newest'].series} first. {cure}",
        f"gradients {'shrank' if sheet.kind == SHRINKS else 'grew'} by orders of magnitude",
    )


MOST_NORMS = 512
# Of all norms together: with their levels they take 60 kB, a seventh of an item.
MOST_NAME_CHARACTERS = 40_000

FIRST_NORMS = LAST_NORMS = 8
# A norm of 0 counts as this: float32 has nothing below 1e-38.
SMALLEST = 1e-30

FALLEN = 0.2


class GradientNormDriftParameters(StepParameters, frozen=True, kw_only=True):
    decades: NonNegative = 3.0


class SpikeLevel(msgspec.Struct, array_like=True):
    """The mean of the first eight values, the mean of the newest ones, decayed, and the step at which they drifted."""

    count: int = 0
    first: float = 0.0
    newest: float = 0.0
    drifted: int | None = None

    def add(self, value: float) -> None:
        self.count += 1
        if self.count <= FIRST_NORMS:
            self.first += (value - self.first) / self.count
        self.newest += (value - self.newest) / min(self.count, LAST_NORMS)


class GradientNormDriftState(StepState, kw_only=True):
    """Norms by name, in decades; at most 512 of bounded names, the loss that was recorded first, and all signals."""

    norms: dict[str, SpikeLevel] = msgspec.field(default_factory=dict)
    loss_name: str | None = None
    loss: SpikeLevel = msgspec.field(default_factory=SpikeLevel)
    signals: list[Signal] = msgspec.field(default_factory=list)

    def has_room(self, name: str) -> bool:
        return len(self.norms) < MOST_NORMS and len(name) + sum(map(len, self.norms)) <= MOST_NAME_CHARACTERS

    def distance(self, name: str) -> float:
        return abs(self.norms[name].newest - self.norms[name].first)


class GradientNormDrift(StepRule[GradientNormDriftParameters, GradientNormDriftState]):
    by_default = True
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
            )
        },
        needs=(
            "It checks norms of gradients beside the loss: log the gradient norm as a scalar, or record the "
            "collections gradients (the reduction l2 is enough) and losses."
        ),
        on_scalars="It checks the gradient norm beside the loss: log both, as grad_norm and loss.",
        changes={"": ChangeCode.LOWER_LEARNING_RATE, SHRINKS: ChangeCode.CHANGE_ACTIVATIONS},
        say=_drift_words,
        kinds=(NO_DRIFT, LEARNS, MOVES, GROWS, SHRINKS),
        bound=("value", "of norms beyond the first 512, or beyond names of 40,000 characters"),
    )

    def check(
        self, state: GradientNormDriftState, step: StepView, parameters: GradientNormDriftParameters
    ) -> Check | None:
        if step.mode not in (Mode.TRAIN, Mode.GLOBAL):
            return None
        state.signals = sorted({*state.signals, *(signal for signal, _ in signals(step))})
        state.loss_name, loss = _main_loss(state, step, state.loss_name)
        if loss is not None:
            state.loss.add(loss)
        seen = _take_norms(state, step)
        if not seen:
            return None
        decades = parameters.decades
        for each in seen.values():
            if each.count < FIRST_NORMS + LAST_NORMS or abs(each.newest - each.first) <= decades:
                each.drifted = None
            elif each.drifted is None:
                each.drifted = step.step
        if state.loss.count < FIRST_NORMS + LAST_NORMS:
            state.waiting += 1
            return None
        fallen = state.loss.newest < state.loss.first - FALLEN * abs(state.loss.first)
        drifted = {name: each.drifted for name, each in seen.items() if each.drifted is not None}
        worst = min(drifted, key=lambda each: (drifted[each], each)) if drifted else max(seen, key=state.distance)
        norm = seen[worst]
        kind = GROWS if norm.newest > norm.first else SHRINKS
        has_to_fall = objective_of(state.signals).loss_has_to_fall
        if fallen or not drifted or not has_to_fall:
            kind = NO_DRIFT if not drifted else LEARNS if fallen else MOVES
        return step_check(
            step,
            _drift_facts(state, worst, len(drifted), parameters.decades),
            fires=kind in (GROWS, SHRINKS),
            tensor=worst,
            value=state.distance(worst),
            threshold=parameters.decades,
            kind=kind,
        )


def _take_norms(state: GradientNormDriftState, step: StepView) -> dict[str, SpikeLevel]:
    scalars = step.members(GRADIENT_NORM)
    seen: dict[str, SpikeLevel] = {}
    norms = state.norms
    for name in sorted(scalars | step.members(GRADIENTS)):
        level = norms.get(name)
        if level is None and not state.has_room(name):
            state.left_out += 1
            continue
        norm = used(state, scalar if name in scalars else _size, step, name)
        if norm is not None and math.isfinite(norm):
            if level is None:
                level = norms[name] = SpikeLevel()
            level.add(math.log10(max(abs(norm), SMALLEST)))
            seen[name] = level
    return seen


def _size(step: StepView, name: str) -> float | None:
    saved = step.reduction(name, "l2")
    if saved is None:
        saved = step.reduction(name, "l2", absolute=True)
    return saved if saved is not None else abs_mean(step, name)


def _drift_facts(state: GradientNormDriftState, name: str, drifted: int, decades: float) -> tuple[Fact, ...]:
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
