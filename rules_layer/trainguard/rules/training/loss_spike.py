"""LossSpike: the loss rises far above its level and comes back. Information, no alarm.

It is eight deviations above the median of 32 values: a loss per batch has heavy tails, and few lie so far out by
chance.
"""

import math
from statistics import median

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.units import counted
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.protocol import NonNegative
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import scalar, step_fact, used
from trainguard.rules.training.run_series import TOTAL
from trainguard.rules.training.selection import LOSSES
from trainguard.rules.training.series import level_of, step_number
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import step_spec

NONE, SPIKES = "no spike", "spikes"


def _words(sheet: FactSheet) -> Words:
    spikes = sheet["spikes"]
    if sheet.kind == NONE:
        return Words(f"Step {sheet['step'].value}: {spikes.series} had no spike.")
    largest = f"the largest began at step {sheet['spike_first_step'].value}"
    return Words(
        f"Step {sheet['step'].value}: {spikes.series} had {counted(int(spikes.value), 'spike')} that recovered; "
        f"{largest}, reached {sheet.number('loss_peak'):.6g}, {sheet.number('spike_height'):.4g} above its level, and "
        f"was over at step {sheet['spike_over_step'].value}."
    )


WINDOW = 32
FEWEST = 8
HALF = 0.5
BACK = 3.0
MAD_TO_DEVIATION = 1.4826


class LossSpikeParameters(StepParameters, frozen=True, kw_only=True):
    """``deviations`` is how far above the median of the last 32 values a spike begins."""

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
    """Counts spikes of the loss; never fires."""

    spec = step_spec(
        "LossSpike",
        title="Spikes of the loss",
        looks_at="the loss of training",
        fires_when="never: it counts rises of the loss that recover",
        condition=(
            "the loss lies {deviations} standard deviations, and half of its size, above its last 32 values, and "
            "recovers"
        ),
        parameters={
            "deviations": ParameterHelp("", "standard deviations above the median of the last 32 values"),
        },
        informs_only=True,
        needs="It checks the loss of training: record it with CollectionConfig(name='losses').",
        say=_words,
        kinds=(NONE, SPIKES),
    )

    def check(self, state: LossSpikeState, step: StepView, parameters: LossSpikeParameters) -> Check | None:
        """Compare the loss with the last ones."""
        if step.mode not in (Mode.TRAIN, Mode.GLOBAL):
            return None
        names = sorted(step.members(LOSSES), key=lambda each: (not TOTAL.search(each), each))
        state.name = state.name or next(iter(names), None)
        loss = next((used(state, scalar, step, name) for name in names if name == state.name), None)
        if loss is None or not math.isfinite(loss):
            return None
        _follow(state, step.step, loss, parameters.deviations)
        return Check(
            step=step.step,
            at=step.at,
            fires=False,
            tensor=state.name,
            kind=SPIKES if state.spikes else NONE,
            facts=(step_fact(step), *_facts(state)),
        )


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
            _end(state, state.begins, step, middle)
        elif state.length > WINDOW:
            state.begins, state.window = None, [loss]
    elif loss - middle > max(deviations * deviation, HALF * abs(middle)) > 0.0:
        state.begins, state.peak, state.length = step, loss, 1
    else:
        state.window = [*window[-WINDOW + 1 :], loss]


def _end(state: LossSpikeState, begins: int, step: int, middle: float) -> None:
    height = state.peak - middle
    state.spikes += 1
    if height > state.largest:
        state.largest, state.largest_at = height, (begins, step, state.peak)
    state.begins = None


def _facts(state: LossSpikeState) -> tuple[Fact, ...]:
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
