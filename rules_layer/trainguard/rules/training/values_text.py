"""The words of rules over the values of any tensor: zeros, NaN, variances, and tensors that stay the same or differ."""

from enum import StrEnum

from trainguard.rules.training.tensor_words import against, be, fires, said, shown, step_text
from trainguard.rules.units import counted
from trainguard.rules.words import FactSheet, Words

ZERO_NEEDS = (
    "It checks the tensors that collection_names and tensor_regex select: record them with a CollectionConfig, "
    "in full unless the threshold is 100 %."
)
EXPLODING_NEEDS = (
    "It checks numbers of any tensor: record at least the losses, with CollectionConfig(name='losses'), "
    "or those that collection_names and tensor_regex select."
)
VARIANCE_NEEDS = (
    "It checks the tensors that collection_names and tensor_regex select: record them, in full or as reduction "
    "variance, with a CollectionConfig."
)
UNCHANGED_NEEDS = (
    "It checks the tensors that collection_names and tensor_regex select: record them in full, at several steps, "
    "with a CollectionConfig."
)
SIMILAR_NEEDS = "It checks tensors that this run and the other one saved at the same steps: record the same in both."

ZEROS, VARIANCE, SAME_STEPS, DIFFERENCE = "zeros", "variance", "same_steps", "difference"
ENTRIES, REDUCTION, TENSORS = "entries_not_finite", "reduction_not_finite", "tensors"


class AllZeroKind(StrEnum):
    """What AllZero finds at a step."""

    ZERO = "zeros"
    FINE = "fine"


class ExplodingKind(StrEnum):
    """What ExplodingTensor finds at a step."""

    NAN = "NaN"
    INFINITE = "infinite"
    FINE = "fine"


class VarianceKind(StrEnum):
    """Which threshold TensorVariance compares with; the status says whether it is crossed."""

    HIGH = "high"
    LOW = "low"
    UNSET = "no threshold"


class UnchangedKind(StrEnum):
    """What UnchangedTensor finds at a step."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"


class SimilarKind(StrEnum):
    """What SimilarAcrossRuns finds at a step."""

    DIFFERS = "differs"
    SAME = "same"


def _zero(sheet: FactSheet) -> Words:
    zeros = sheet[ZEROS]
    compared = against(sheet, ZEROS, "not below", "below", " %")
    return said(
        sheet,
        f"{shown(zeros)} % of {zeros.series} {be(sheet)} zero, {compared}",
        f"Check that {zeros.series} is reached and updated: initialisation, masks, activations that are always "
        "negative before a ReLU, input that was not filled.",
        "a tensor was zero",
    )


def _exploding(sheet: FactSheet) -> Words:
    if not fires(sheet):
        tensors = counted(int(sheet.number(TENSORS)), "tensor")
        return said(sheet, f"none of {tensors} holds NaN or infinite values", "", "")
    reduction = sheet.get(REDUCTION)
    found = sheet[ENTRIES] if reduction is None else reduction
    advice = (
        "Stop and go back to a checkpoint before this step: NaN does not go away by itself. Look for a learning "
        "rate that is too high, a division by zero, the logarithm of zero, or NaN in the input."
    )
    if sheet.kind == ExplodingKind.INFINITE:
        advice = (
            "Lower the learning rate or clip gradients, and in float16 check the loss scale. "
            f"Infinite values turn into NaN soon: save {found.series} at earlier steps to see where they begin."
        )
    if reduction is not None:
        sentence = f"the saved {reduction.value} of {reduction.series} {be(sheet)} {sheet.kind}"
    else:
        one, what = found.value == 1, "NaN or infinite" if sheet.kind == ExplodingKind.NAN else "infinite"
        entries = f"{sheet.number(ENTRIES):.0f} {'entry' if one else 'entries'}"
        holds, compared = "held" if sheet.past else "holds", against(sheet, ENTRIES, "above", "")
        sentence = f"{found.series} {holds} {entries} that {be(sheet, many=not one)} {what}, {compared}"
    return said(sheet, sentence, advice, "values became NaN or infinite")


def _variance(sheet: FactSheet) -> Words:
    variance, low = sheet[VARIANCE], sheet.kind == VarianceKind.LOW
    sentence = f"the variance of {variance.series} {be(sheet)} {shown(variance)}"
    if variance.threshold is None:
        return said(sheet, f"{sentence}, and no threshold is set", "", "")
    advice = (
        f"Look at the scale of what enters {variance.series}: inputs, initialisation, normalisation, learning rate."
    )
    if low:
        advice = f"All entries of {variance.series} are nearly the same: look at the initialisation and at dead inputs."
    compared = against(sheet, VARIANCE, *(("below", "not below") if low else ("above", "not above")))
    return said(sheet, f"{sentence}, {compared}", advice, "the variance of a tensor left its range")


def _unchanged(sheet: FactSheet) -> Words:
    same = sheet[SAME_STEPS]
    steps = f"{sheet.number(SAME_STEPS):.0f}"
    sentence = f"{same.series} {be(sheet)} the same at its last {steps} saved steps, which is the threshold"
    if not fires(sheet):
        of = f"{steps} of the {same.threshold or 0.0:.0f} saved steps that count"
        sentence = f"{same.series} changed: it is the same at {of}"
    return said(
        sheet,
        sentence,
        f"Check that {same.series} is meant to change: an optimizer that does not hold it, frozen layers, a "
        "learning rate of zero, or a loss that does not depend on it.",
        "a tensor no longer changed",
    )


def _similar(sheet: FactSheet) -> Words:
    run, apart = sheet.name("other_run"), sheet.get(DIFFERENCE)
    if not fires(sheet):
        return said(sheet, f"all tensors that both runs hold are the same as in run {run}", "", "")
    differs = "differed" if sheet.past else "differs"
    sentence = f"{sheet['tensor'].value} {differs} from that of run {run} at the same step"
    if apart is not None:
        sentence += f", by {apart.value:.6g}; up to {apart.threshold or 0.0:.6g} counts as the same"
    return said(
        sheet,
        sentence,
        "Compare seeds, data, their order and versions of the two runs from the first step that differs on. Some "
        "operations on GPUs are not deterministic unless the framework is told to make them so.",
        "a tensor differed from the other run's",
    )


all_zero = step_text("AllZero", ZERO_NEEDS, _zero)
exploding_tensor = step_text("ExplodingTensor", EXPLODING_NEEDS, _exploding)
tensor_variance = step_text("TensorVariance", VARIANCE_NEEDS, _variance)
unchanged_tensor = step_text("UnchangedTensor", UNCHANGED_NEEDS, _unchanged)
similar_across_runs = step_text("SimilarAcrossRuns", SIMILAR_NEEDS, _similar)
