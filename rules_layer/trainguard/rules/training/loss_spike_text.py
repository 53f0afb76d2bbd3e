"""The words of LossSpike."""

from enum import StrEnum

from trainguard.rules.training.step_text import step_words
from trainguard.rules.units import counted
from trainguard.rules.words import FactSheet, Words

NEEDS = "It checks the loss of training: record it with CollectionConfig(name='losses')."


class SpikeKind(StrEnum):
    """The outcomes of LossSpike."""

    NONE = "no spike"
    SPIKES = "spikes"


def text(sheet: FactSheet) -> Words:
    """Return the words of a judgement."""
    return step_words(sheet, _words, rule="LossSpike", needs=NEEDS)


def _words(sheet: FactSheet) -> Words:
    spikes = sheet["spikes"]
    if sheet.kind == SpikeKind.NONE:
        return Words(f"Step {sheet['step'].value}: {spikes.series} had no spike.")
    largest = f"the largest began at step {sheet['spike_first_step'].value}"
    return Words(
        f"Step {sheet['step'].value}: {spikes.series} had {counted(int(spikes.value), 'spike')} that recovered; "
        f"{largest}, reached {sheet.number('loss_peak'):.6g}, {sheet.number('spike_height'):.4g} above its level, and "
        f"was over at step {sheet['spike_over_step'].value}."
    )
