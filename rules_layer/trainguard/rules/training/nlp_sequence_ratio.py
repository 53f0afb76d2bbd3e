"""NLPSequenceRatio: too many tokens of a sequence are of one kind, such as padding.

Source: AWS documentation of NLPSequenceRatio; the share of each token value in a tensor at a step.
"""

from typing import ClassVar

import msgspec
import numpy as np

from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import Percent
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import data_text
from trainguard.rules.training.data_text import TOKEN_SHARE, TokensKind
from trainguard.rules.training.folds import numbers
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, not_saved, used
from trainguard.rules.training.selection import matching
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.tensors.step_view import StepView

_FORMER_THRESHOLDS = (50.0, 50.0)
"""The former default, two thresholds for the one token 0."""


class NLPSequenceRatioParameters(StepParameters, frozen=True, kw_only=True):
    """One threshold, in percent, for each token value."""

    rule_name: ClassVar[str] = "NLPSequenceRatio"
    regex_fields: ClassVar[tuple[str, ...]] = ("tensor_regex",)

    tensor_regex: str = ".*embedding0_input_0"
    token_values: tuple[float, ...] = (0.0,)
    token_thresholds_percent: tuple[Percent, ...] = (50.0,)

    def __post_init__(self) -> None:
        """Refuse lists of unequal length, but for the former default."""
        super().__post_init__()
        tokens, thresholds = len(self.token_values), self.token_thresholds_percent
        if tokens != len(thresholds) and not (tokens == 1 and thresholds == _FORMER_THRESHOLDS):
            expected = f"one threshold for each of the {tokens} token values"
            raise self.fault("token_thresholds_percent", ", ".join(f"{each:g}" for each in thresholds), expected)


SPEC = RuleSpec(
    name="training/NLPSequenceRatio",
    family="training",
    title="Tokens of sequences",
    looks_at="sequences of tokens that enter the model",
    fires_when="one of the given tokens makes up too much of them",
    condition="tokens {token_values} make up more than {token_thresholds_percent} % of a sequence tensor",
    measures=(Measure("share of a token", "%"),),
    counts=STEPS,
    parameters={
        "tensor_regex": ParameterHelp("pattern", "a regular expression that names of inputs match"),
        "token_values": ParameterHelp("tokens", "token values, separated by commas, whose share is measured"),
        "token_thresholds_percent": ParameterHelp("%", "a threshold for each, separated by commas"),
        **RANGE_HELP,
    },
    text=data_text.nlp_sequence_ratio,
)


class NLPSequenceRatio(StepRule[NLPSequenceRatioParameters, StepState]):
    """Fires while a token makes up too much of a sequence tensor."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = NLPSequenceRatioParameters
    state_type = StepState
    needs = data_text.TOKENS_NEEDS

    def check(self, state: StepState, step: StepView, parameters: NLPSequenceRatioParameters) -> Check | None:
        """Count each token in each tensor."""
        tokens = parameters.token_values
        readings = []
        for tensor in matching(step, parameters.tensor_regex):
            if not_saved(state, step, tensor):
                continue
            shares = used(state, lambda view, name: _shares(view, name, tokens), step, tensor)
            for token, share, threshold in zip(tokens, shares or (), parameters.token_thresholds_percent, strict=False):
                readings.append(Reading(tensor, share, threshold, share > threshold, share - threshold, f"{token:g}"))
        check = checked(step, readings, _facts)
        if check is None:
            return None
        return msgspec.structs.replace(check, kind=TokensKind.MANY if check.fires else TokensKind.FINE)


def _shares(step: StepView, tensor: str, tokens: tuple[float, ...]) -> list[float] | None:
    """Return the percentage of each token; None of a tensor that holds no numbers, or nothing."""
    blocks = numbers(step, tensor)
    counts, size = np.zeros(len(tokens)), 0
    for block in blocks or ():
        size += block.size
        counts += [np.count_nonzero(block == token) for token in tokens]
    return [float(share) for share in 100.0 * counts / size] if size else None


def _facts(reading: Reading) -> tuple[Fact, ...]:
    """Return the share of a token, which stands where a reading has its kind, and the token."""
    return measured(TOKEN_SHARE, reading, "%"), Fact(name="token", value=float(reading.kind or 0.0))
