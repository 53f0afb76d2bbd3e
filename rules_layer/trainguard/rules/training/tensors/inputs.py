"""CheckInputImages and NLPSequenceRatio: unnormalised input, or mostly padding. Source: AWS documentation of both."""

import math

import msgspec
import numpy as np

from trainguard.core.errors import TensorUnusableError
from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegative, NonNegativeInt, Percent
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import (
    Floats,
    MetricReading,
    checked,
    float64,
    measured,
    not_saved,
    numbers,
    used,
)
from trainguard.rules.training.selection import matching
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import step_spec, worded

FAR, FINE, WAITS = "far from zero", "fine", "too few images"
TOKEN_KINDS = ("too many", "fine")
_MEAN = "the mean of channel {channel} of {channel_mean.series} over {images:,} images {was/is} {channel_mean}"
_COMPARED = f"{_MEAN}, {{channel_mean:against further from 0 than|not further from 0 than}}"
MOST_TENSORS = 8
MOST_CHANNELS = 256


class CheckInputImagesParameters(StepParameters, frozen=True, kw_only=True):
    threshold_mean: NonNegative = 0.2
    threshold_samples: NonNegativeInt = 500
    regex: str = ".*hybridsequential0_input_0"
    channel: NonNegativeInt = 1


class Images(msgspec.Struct, array_like=True):
    """Sum of each channel, values of a channel, and images so far."""

    sums: list[float]
    values: int = 0
    images: int = 0

    @property
    def means(self) -> list[float]:
        return [total / self.values for total in self.sums]


class CheckInputImagesState(StepState, kw_only=True):
    """The images of each tensor, at most eight tensors."""

    images: dict[str, Images] = msgspec.field(default_factory=dict)


class CheckInputImages(StepRule[CheckInputImagesParameters, CheckInputImagesState]):
    spec = step_spec(
        "CheckInputImages",
        title="Input images",
        looks_at="images that enter the model",
        fires_when="the mean of a channel is far from zero",
        condition="after {threshold_samples} images the mean of a channel is further than {threshold_mean} from zero",
        measures=(Measure("mean of a channel"),),
        parameters={
            "threshold_mean": ParameterHelp("", "a mean further from zero counts"),
            "threshold_samples": ParameterHelp("images", "how many are waited for"),
            "regex": ParameterHelp("pattern", "a regular expression that names of inputs match"),
            "channel": ParameterHelp("axis", "which axis is that of the colour channel; axis 0 counts images"),
        },
        needs=(
            "It checks images as they enter the model: record them in full with CollectionConfig(name='input_image', "
            "parameters={'include_regex': '.*hybridsequential0_input_0'}); where the input is named otherwise, set "
            "regex to match."
        ),
        changes={"": ChangeCode.CHECK_INPUTS},
        say=worded(
            {
                FAR: _COMPARED,
                FINE: _COMPARED,
                WAITS: f"{_MEAN}, and {{images.threshold:,.0f}} images are waited for",
            },
            "Normalise images before training: subtract each channel's mean over the training set and divide by its "
            "standard deviation, in training and in inference alike.",
            "input images were not normalised",
        ),
        kinds=(FAR, FINE, WAITS),
        bound=("tensor", "of inputs beyond the first 8"),
    )

    def check(
        self, state: CheckInputImagesState, step: StepView, parameters: CheckInputImagesParameters
    ) -> Check | None:
        threshold, readings = parameters.threshold_mean, []
        for tensor in matching(step, parameters.regex):
            if tensor not in state.images and len(state.images) >= MOST_TENSORS:
                state.left_out += 1
                continue
            if not_saved(state, step, tensor):
                continue
            sums = used(state, lambda view, name: _channel_sums(view, name, parameters.channel), step, tensor)
            if sums is None:
                continue
            totals, values, count = sums
            kept = state.images.setdefault(tensor, Images([0.0] * totals.size))
            if len(kept.sums) != totals.size:
                reason = f"has {totals.size:,} channels at step {step.step}, and had {len(kept.sums):,}"
                state.leave_out(f"tensor {tensor} {reason}")
                continue
            kept.sums = (np.array(kept.sums) + totals).tolist()
            kept.values += values
            kept.images += count
            mean = max(kept.means, key=abs)
            enough = kept.images >= parameters.threshold_samples
            fires = enough and abs(mean) > threshold
            kind = (FAR if fires else FINE) if enough else WAITS
            readings.append(MetricReading(tensor, mean, threshold, fires, abs(mean), kind))
        return checked(step, readings, lambda reading: _image_facts(reading, state, parameters))


def _channel_sums(step: StepView, tensor: str, axis: int) -> tuple[Floats, int, int] | None:
    """Return the sum of each channel (float64[C]), how many values a channel has, and how many images there are."""
    shape = step.shape(tensor)
    if shape is None or axis >= len(shape):
        raise TensorUnusableError(tensor, step.step, f"its shape is {shape}, which has no axis {axis}")
    channels, stride = shape[axis], math.prod(shape[axis + 1 :])
    if channels > MOST_CHANNELS:
        reason = f"its axis {axis} has {channels:,} channels, expected at most {MOST_CHANNELS:,}"
        raise TensorUnusableError(tensor, step.step, reason)
    blocks = numbers(step, tensor)
    if blocks is None or not math.prod(shape):
        return None
    sums, start = np.zeros(channels), 0
    for block in blocks:
        values = float64(block)
        channel = (np.arange(start, start + values.size) // stride) % channels
        sums += np.bincount(channel, weights=values, minlength=channels)
        start += values.size
    if not np.isfinite(sums).all():
        raise TensorUnusableError(tensor, step.step, "it holds NaN or infinite values")
    return sums, math.prod(shape) // channels, shape[0]


def _image_facts(
    reading: MetricReading, state: CheckInputImagesState, parameters: CheckInputImagesParameters
) -> tuple[Fact, ...]:
    kept = state.images[reading.tensor or ""]
    channel = kept.means.index(max(kept.means, key=abs))
    return (
        measured("channel_mean", reading),
        Fact(name="channel", value=channel, series=reading.tensor),
        Fact(name="images", value=kept.images, threshold=float(parameters.threshold_samples)),
    )


_FORMER_THRESHOLDS = (50.0, 50.0)


class NLPSequenceRatioParameters(StepParameters, frozen=True, kw_only=True):
    tensor_regex: str = ".*embedding0_input_0"
    token_values: tuple[float, ...] = (0.0,)
    token_thresholds_percent: tuple[Percent, ...] = (50.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens, thresholds = len(self.token_values), self.token_thresholds_percent
        if tokens != len(thresholds) and not (tokens == 1 and thresholds == _FORMER_THRESHOLDS):
            expected = f"one threshold for each of the {tokens} token values"
            raise self.fault("token_thresholds_percent", ", ".join(f"{each:g}" for each in thresholds), expected)


class NLPSequenceRatio(StepRule[NLPSequenceRatioParameters, StepState]):
    spec = step_spec(
        "NLPSequenceRatio",
        title="Tokens of sequences",
        looks_at="sequences of tokens that enter the model",
        fires_when="one of the given tokens makes up too much of them",
        condition="tokens {token_values} make up more than {token_thresholds_percent} % of a sequence tensor",
        measures=(Measure("share of a token", "%"),),
        parameters={
            "tensor_regex": ParameterHelp("pattern", "a regular expression that names of inputs match"),
            "token_values": ParameterHelp("tokens", "token values, separated by commas, whose share is measured"),
            "token_thresholds_percent": ParameterHelp("%", "a threshold for each, separated by commas"),
        },
        needs=(
            "It checks tokens as they enter the model: record them in full with "
            "CollectionConfig(name='input_sequence', "
            "parameters={'include_regex': '.*embedding0_input_0'}); where the input is named otherwise, set "
            "tensor_regex to match."
        ),
        changes={"": ChangeCode.CHECK_INPUTS},
        say=worded(
            "token {token:g} {made/makes} up {token_share} % of {token_share.series}, "
            "{token_share:against above|not above} %",
            "If the token is padding, group sequences of like length into batches or pack them; if it stands for "
            "unknown words, enlarge the vocabulary. Check that the tokenizer's numbers are those of the model.",
            "a token made up too much of the input",
            what="shares of tokens",
        ),
        kinds=TOKEN_KINDS,
    )

    def check(self, state: StepState, step: StepView, parameters: NLPSequenceRatioParameters) -> Check | None:
        tokens = parameters.token_values
        readings = []
        for tensor in matching(step, parameters.tensor_regex):
            if not_saved(state, step, tensor):
                continue
            shares = used(state, lambda view, name: _shares(view, name, tokens), step, tensor)
            for token, share, threshold in zip(tokens, shares or (), parameters.token_thresholds_percent, strict=False):
                readings.append(
                    MetricReading(tensor, share, threshold, share > threshold, share - threshold, f"{token:g}")
                )

        def facts(reading: MetricReading) -> tuple[Fact, Fact]:
            return measured("token_share", reading, "%"), Fact(name="token", value=float(reading.kind or 0.0))

        return checked(step, readings, facts, kinds=TOKEN_KINDS)


def _shares(step: StepView, tensor: str, tokens: tuple[float, ...]) -> list[float] | None:
    blocks = numbers(step, tensor)
    counts, size = np.zeros(len(tokens)), 0
    for block in blocks or ():
        size += block.size
        counts += [np.count_nonzero(block == token) for token in tokens]
    return [float(share) for share in 100.0 * counts / size] if size else None
