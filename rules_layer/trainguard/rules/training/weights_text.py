"""The words of rules over gradients and weights."""

from enum import StrEnum

from trainguard.rules.training.tensor_words import against, be, fires, said, shown, step_text
from trainguard.rules.units import counted
from trainguard.rules.words import FactSheet, Words

VANISHING_NEEDS = (
    "It checks the tensors of the collection gradients: record them, in full or as reduction abs_mean, "
    "with CollectionConfig(name='gradients')."
)
UPDATE_NEEDS = (
    "It checks the tensors of the collection weights: record them in full, at two steps or more, with "
    "CollectionConfig(name='weights')."
)
INITIALIZATION_NEEDS = (
    "It checks activation inputs, gradients and losses of the first saved steps: record them with "
    "CollectionConfig(name='relu_input', parameters={'include_regex': '.*relu_input'}), "
    "CollectionConfig(name='gradients') and CollectionConfig(name='losses')."
)
RANKS_NEEDS = (
    "It checks a checksum of the parameters per rank: record one number for each as trainguard/checksum/RANK, "
    "for all ranks at the same steps."
)
ABS_MEAN, UPDATE = "mean_absolute_gradient", "relative_change"
RATIO, RANGE, WAITED = "variance_ratio", "gradient_range", "steps_without_lower_loss"


class VanishingKind(StrEnum):
    """What VanishingGradient finds at a step."""

    ZERO = "zero"
    VANISHED = "vanished"
    FINE = "fine"


class UpdateKind(StrEnum):
    """Which threshold WeightUpdateRatio compares with; the status says whether it is crossed."""

    LARGE = "large"
    SMALL = "small"


class InitializationKind(StrEnum):
    """Which condition of PoorWeightInitialization is nearest to firing; the status says whether it holds."""

    VARIANCE = "variance"
    SPREAD = "spread"
    LOSS = "loss"


class RanksKind(StrEnum):
    """What RanksOutOfSync finds at a step."""

    APART = "apart"
    EQUAL = "equal"


def _vanishing(sheet: FactSheet) -> Words:
    mean = sheet[ABS_MEAN]
    advice = (
        "Use activations that do not saturate, residual connections or normalisation, and an initialisation that "
        "fits the activation. In float16 raise the loss scale."
    )
    if sheet.kind == VanishingKind.ZERO:
        advice = (
            f"Check that {mean.series} has a path to the loss: a gradient of exactly zero means a detached, "
            "frozen or dead part of the model, or underflow where gradients are float16 without loss scaling."
        )
    compared = against(sheet, ABS_MEAN, "below", "not below")
    sentence = f"the mean absolute value of {mean.series} {be(sheet)} {shown(mean)}, {compared}"
    return said(sheet, sentence, advice, "gradients vanished")


def _update(sheet: FactSheet) -> Words:
    change, large = sheet[UPDATE], sheet.kind == UpdateKind.LARGE
    advice = "Lower the learning rate or clip gradients: one update changes the weight by more than it holds."
    if not large:
        advice = (
            f"Check that the optimizer holds {change.series} and that its gradient is not zero, or raise the learning "
            "rate. A layer that is frozen on purpose always fires: leave it out of the collection weights."
        )
    compared = against(sheet, UPDATE, *(("above", "not above") if large else ("below", "not below")))
    since = "its saved step before"
    sentence = f"{change.series} changed by {shown(change)} of its norm since {since}, {compared}"
    return said(sheet, sentence, advice, "weights changed too much or not at all")


def _initialization(sheet: FactSheet) -> Words:
    advice = (
        "Initialise each layer for its fan-in and activation (Kaiming for ReLU, Xavier for tanh), or normalise "
        "between layers. Start again: what begins badly rarely recovers."
    )
    if sheet.kind == InitializationKind.LOSS:
        advice = "Check the learning rate and the initialisation: from a good start the first steps lower the loss."
    ways = ((RATIO, _ratio), (RANGE, _range), (WAITED, _waited))
    sentence = "; ".join(say(sheet) for name, say in ways if sheet.get(name) is not None)
    return said(sheet, sentence, advice, "weights were initialised poorly")


def _ratio(sheet: FactSheet) -> str:
    ratio, compared = sheet[RATIO], against(sheet, RATIO, "above", "not above")
    times = f"{shown(ratio)} times the least of the activation inputs"
    return f"the variance of {ratio.series} {be(sheet)} {times}, {compared}"


def _range(sheet: FactSheet) -> str:
    width, compared = sheet[RANGE], against(sheet, RANGE, "below", "not below")
    return f"the range of {width.series} (5th to 95th percentile) {be(sheet)} {shown(width)}, {compared}"


def _waited(sheet: FactSheet) -> str:
    waited = sheet[WAITED]
    compared = f"{'not below' if fires(sheet) else 'below'} the threshold {waited.threshold or 0.0:.0f}"
    steps = counted(int(sheet.number(WAITED)), "saved step")
    has = "had" if sheet.past else "has"
    return f"the loss ({waited.series}) {has} not fallen below its best for {steps}, {compared}"


def _ranks(sheet: FactSheet) -> Words:
    ranks = int(sheet.number("ranks"))
    if not fires(sheet):
        return said(sheet, f"the checksums of {counted(ranks, 'rank')} are equal", "", "")
    apart, same = int(sheet.number("ranks_apart")), int(sheet.number("ranks_alike"))
    named = sheet.all("checksum_apart")
    has = "had" if sheet.past else "has"
    shown_ranks = ", ".join(f"{(each.device or '').removeprefix('rank ')} {has} {each.value}" for each in named)
    differ = "differed" if sheet.past else "differ"
    more = f" and {apart - len(named)} more {differ}" if apart > len(named) else ""
    have = "had" if sheet.past else "has" if same == 1 else "have"
    return said(
        sheet,
        f"{same} of {ranks} ranks {have} the checksum {sheet.name('checksum')}, rank {shown_ranks}{more}",
        "Stop and go back to a checkpoint before this step: from here on ranks train different models. Look for "
        "parameters outside the distributed wrapper, a rank that loaded another checkpoint or has another seed, "
        "steps that one rank skips, and a broken GPU: if it is always the same rank, replace its node.",
        "ranks held different parameters",
    )


vanishing_gradient = step_text("VanishingGradient", VANISHING_NEEDS, _vanishing)
weight_update_ratio = step_text("WeightUpdateRatio", UPDATE_NEEDS, _update)
poor_weight_initialization = step_text("PoorWeightInitialization", INITIALIZATION_NEEDS, _initialization)
ranks_out_of_sync = step_text("RanksOutOfSync", RANKS_NEEDS, _ranks)
