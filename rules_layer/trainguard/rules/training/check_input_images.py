"""CheckInputImages: input images whose mean is far from zero: they were not normalised.

Source: AWS documentation of CheckInputImages; the mean of each channel over all images so far.
"""

import math
from typing import ClassVar

import msgspec
import numpy as np

from trainguard.errors import TensorUnusableError
from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, NonNegativeInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import data_text
from trainguard.rules.training.data_text import CHANNEL_MEAN, ImagesKind
from trainguard.rules.training.folds import Floats, float64, numbers
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, not_saved, used
from trainguard.rules.training.selection import matching
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.tensors.step_view import StepView

MOST_TENSORS = 8
MOST_CHANNELS = 256


class CheckInputImagesParameters(StepParameters, frozen=True, kw_only=True):
    """``channel`` is the axis of the colour channel; axis 0 counts images."""

    rule_name: ClassVar[str] = "CheckInputImages"
    regex_fields: ClassVar[tuple[str, ...]] = ("regex",)

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
        """Mean of each channel."""
        return [total / self.values for total in self.sums]


class CheckInputImagesState(StepState, kw_only=True):
    """The images of each tensor, at most eight tensors."""

    images: dict[str, Images] = msgspec.field(default_factory=dict)


SPEC = RuleSpec(
    name="training/CheckInputImages",
    family="training",
    title="Input images",
    looks_at="images that enter the model",
    fires_when="the mean of a channel is far from zero",
    condition="after {threshold_samples} images the mean of a channel is further than {threshold_mean} from zero",
    measures=(Measure("mean of a channel"),),
    counts=STEPS,
    parameters={
        "threshold_mean": ParameterHelp("", "a mean further from zero counts"),
        "threshold_samples": ParameterHelp("images", "how many are waited for"),
        "regex": ParameterHelp("pattern", "a regular expression that names of inputs match"),
        "channel": ParameterHelp("axis", "which axis is that of the colour channel; axis 0 counts images"),
        **RANGE_HELP,
    },
    text=data_text.check_input_images,
)


class CheckInputImages(StepRule[CheckInputImagesParameters, CheckInputImagesState]):
    """Fires while the mean of a channel over all images so far is far from zero."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = CheckInputImagesParameters
    state_type = CheckInputImagesState
    needs = data_text.IMAGES_NEEDS
    bound = data_text.IMAGES_BOUND

    def check(
        self, state: CheckInputImagesState, step: StepView, parameters: CheckInputImagesParameters
    ) -> Check | None:
        """Add the step's images, and compare the channels' means once there are enough."""
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
            kind = (ImagesKind.FAR if fires else ImagesKind.FINE) if enough else ImagesKind.WAITS
            readings.append(Reading(tensor, mean, threshold, fires, abs(mean), kind))
        return checked(step, readings, lambda reading: _facts(reading, state, parameters))


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


def _facts(reading: Reading, state: CheckInputImagesState, parameters: CheckInputImagesParameters) -> tuple[Fact, ...]:
    kept = state.images[reading.tensor or ""]
    channel = kept.means.index(max(kept.means, key=abs))
    return (
        measured(CHANNEL_MEAN, reading),
        Fact(name="channel", value=channel, series=reading.tensor),
        Fact(name="images", value=kept.images, threshold=float(parameters.threshold_samples)),
    )
