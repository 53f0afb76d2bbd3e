"""The words of rules over what enters the model, and over labels and predictions."""

from enum import StrEnum

from trainguard.rules.training.tensor_words import against, be, said, shown, step_text
from trainguard.rules.words import FactSheet, Words

IMAGES_NEEDS = (
    "It checks images as they enter the model: record them in full with CollectionConfig(name='input_image', "
    "parameters={'include_regex': '.*hybridsequential0_input_0'}); where the input is named otherwise, set "
    "regex to match."
)
IMAGES_BOUND = ("tensor", "of inputs beyond the first 8")
CLASSES_NEEDS = (
    "It checks labels and predictions saved at the same step: record both in full, with "
    "CollectionConfig(name='labels', parameters={'include_regex': '.*labels'}) and the same for predictions."
)
CLASSES_BOUND = ("sample", "of classes beyond the first 1,024")
CONFUSION_NEEDS = (
    "It checks labels and predictions saved at the same step: record both in full, in collections labels and "
    "predictions, or name them by the parameters labels and predictions."
)
TOKENS_NEEDS = (
    "It checks tokens as they enter the model: record them in full with CollectionConfig(name='input_sequence', "
    "parameters={'include_regex': '.*embedding0_input_0'}); where the input is named otherwise, set "
    "tensor_regex to match."
)
CHANNEL_MEAN, TOKEN_SHARE = "channel_mean", "token_share"
RATIO, WRONG_SHARE = "class_ratio", "share_predicted_wrongly"
RIGHT, OTHER = "share_right", "share_of_another_class"


class ImagesKind(StrEnum):
    """What CheckInputImages finds at a step."""

    FAR = "far from zero"
    FINE = "fine"
    WAITS = "too few images"


class BalanceKind(StrEnum):
    """Which condition of ClassImbalance is nearest to firing; the status says whether it holds."""

    IMBALANCE = "imbalance"
    MISPREDICTION = "misprediction"
    WAITS = "too few samples"


class ConfusionKind(StrEnum):
    """Which share of a predicted class Confusion speaks of; the status says whether its threshold is crossed."""

    RIGHT = "right"
    WRONG = "wrong"
    NEVER = "never predicted"


class TokensKind(StrEnum):
    """What NLPSequenceRatio finds at a step."""

    MANY = "too many"
    FINE = "fine"


def _images(sheet: FactSheet) -> Words:
    mean, images = sheet[CHANNEL_MEAN], sheet["images"]
    channel = f"channel {sheet.number('channel'):.0f} of {mean.series}"
    sentence = f"the mean of {channel} over {images.value:,} images {be(sheet)} {shown(mean)}"
    if sheet.kind == ImagesKind.WAITS:
        return said(sheet, f"{sentence}, and {images.threshold or 0.0:,.0f} images are waited for", "", "")
    compared = against(sheet, CHANNEL_MEAN, "further from 0 than", "not further from 0 than")
    return said(
        sheet,
        f"{sentence}, {compared}",
        "Normalise images before training: subtract each channel's mean over the training set and divide by its "
        "standard deviation, in training and in inference alike.",
        "input images were not normalised",
    )


def _balance(sheet: FactSheet) -> Words:
    if sheet.kind == BalanceKind.WAITS:
        samples = sheet["samples"]
        waited = f"{samples.threshold or 0.0:,.0f} samples that are waited for"
        return said(sheet, f"{samples.value:,} of the {waited} were saved", "", "")
    advice = "Draw the classes more evenly, or weight the loss by class; judge the model by each class's own recall."
    if sheet.kind == BalanceKind.MISPREDICTION:
        advice = "Look at samples and labels of this class: too few, mislabelled, or too like another class."
    ways = ((RATIO, _ratio), (WRONG_SHARE, _mispredicted))
    sentence = "; ".join(say(sheet) for name, say in ways if sheet.get(name) is not None)
    return said(sheet, sentence, advice, "classes were out of balance")


def _ratio(sheet: FactSheet) -> str:
    ratio, smallest = sheet[RATIO], sheet.get("smallest_class")
    which = "each class" if smallest is None else f"class {sheet['largest_class'].value}"
    than = "" if smallest is None else f" and class {smallest.value} {sheet['smallest_class_samples'].value:,}"
    has, samples = "had" if sheet.past else "has", f"{sheet['largest_class_samples'].value:,} samples"
    compared = against(sheet, RATIO, "above", "not above")
    return f"{which} {has} {samples} in {ratio.series}{than}, a ratio of {shown(ratio)}, {compared}"


def _mispredicted(sheet: FactSheet) -> str:
    share = sheet[WRONG_SHARE]
    samples = f"{sheet['samples_predicted_wrongly'].value:,} of {sheet['class_samples'].value:,} samples"
    compared = against(sheet, WRONG_SHARE, "above", "not above")
    return (
        f"{samples} of class {sheet['class'].value} were predicted wrongly ({share.series}), "
        f"a share of {shown(share)}, {compared}"
    )


def _confusion(sheet: FactSheet) -> Words:
    other = sheet.get(OTHER)
    share = sheet[RIGHT] if other is None else other
    compared = f"right, {against(sheet, RIGHT, 'below', 'not below')}" if other is None else ""
    if other is not None:
        compared = f"of class {sheet['label_class'].value}, {against(sheet, OTHER, 'above', 'not above')}"
    if sheet.kind == ConfusionKind.NEVER:
        never = f"class {sheet['label_class'].value} {be(sheet)} a label and never predicted ({share.series})"
        sentence = f"{never}, a share of 0 that {be(sheet)} {compared}"
    else:
        samples = f"of the {sheet['predicted_samples'].value:,} samples"
        which = f"predicted as class {sheet['predicted_class'].value} ({share.series})"
        sentence = f"{samples} {which} a share of {shown(share)} {be(sheet)} {compared}"
    return said(
        sheet,
        sentence,
        "Look at samples of the classes that are confused, and at their labels. Early steps, and steps with few "
        "samples a class, confuse easily: set start_step, or save larger batches.",
        "classes were confused",
    )


def _tokens(sheet: FactSheet) -> Words:
    share, makes = sheet[TOKEN_SHARE], "made" if sheet.past else "makes"
    compared = against(sheet, TOKEN_SHARE, "above", "not above", " %")
    return said(
        sheet,
        f"token {sheet.number('token'):g} {makes} up {shown(share)} % of {share.series}, {compared}",
        "If the token is padding, group sequences of like length into batches or pack them; if it stands for "
        "unknown words, enlarge the vocabulary. Check that the tokenizer's numbers are those of the model.",
        "a token made up too much of the input",
        what="shares of tokens",
    )


check_input_images = step_text("CheckInputImages", IMAGES_NEEDS, _images, bound=IMAGES_BOUND)
class_imbalance = step_text("ClassImbalance", CLASSES_NEEDS, _balance, bound=CLASSES_BOUND)
confusion = step_text("Confusion", CONFUSION_NEEDS, _confusion)
nlp_sequence_ratio = step_text("NLPSequenceRatio", TOKENS_NEEDS, _tokens)
