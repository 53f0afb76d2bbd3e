"""UnchangedTensor: a tensor that stays the same over several steps.

Source: AWS documentation of UnchangedTensor, and its parameters, which are those of ``numpy.allclose``. The values
before are those that the run has saved, also from before ``start_step``.
"""

from typing import Annotated, ClassVar

import msgspec

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import values_text
from trainguard.rules.training.compare import Closeness
from trainguard.rules.training.parameter_help import RANGE_HELP, SELECTION_HELP
from trainguard.rules.training.readings import Reading, checked, used
from trainguard.rules.training.selecting import SelectingParameters
from trainguard.rules.training.step_rule import Check, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.rules.training.values_text import SAME_STEPS, UnchangedKind
from trainguard.tensors.step_view import StepView


class UnchangedTensorParameters(SelectingParameters, frozen=True, kw_only=True):
    """``num_steps`` counts saved steps of the tensor, the one that is checked included."""

    rule_name: ClassVar[str] = "UnchangedTensor"
    required: ClassVar[bool] = True

    num_steps: Annotated[int, msgspec.Meta(ge=2)] = 3
    rtol: NonNegative = 1e-5
    atol: NonNegative = 1e-8
    equal_nan: bool = False


SPEC = RuleSpec(
    name="training/UnchangedTensor",
    family="training",
    title="Unchanged tensors",
    looks_at="the selected tensors",
    fires_when="one has been the same over several of its saved steps",
    condition="a tensor is the same over its last {num_steps} saved steps",
    measures=(Measure("saved steps without a change"),),
    counts=STEPS,
    parameters={
        **SELECTION_HELP,
        "num_steps": ParameterHelp("saved steps", "over how many a tensor must be the same, this one included"),
        "rtol": ParameterHelp("", "a change of this share of a value, or less, is none"),
        "atol": ParameterHelp("", "a change of this much, or less, is none"),
        "equal_nan": ParameterHelp("", "whether NaN is the same as NaN"),
        **RANGE_HELP,
    },
    text=values_text.unchanged_tensor,
)


class UnchangedTensor(StepRule[UnchangedTensorParameters, StepState]):
    """Fires while a tensor is the same as at its last saved steps."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = UnchangedTensorParameters
    state_type = StepState
    needs = values_text.UNCHANGED_NEEDS

    def check(self, state: StepState, step: StepView, parameters: UnchangedTensorParameters) -> Check | None:
        """Compare each tensor with its values at the saved steps before this one, of the same mode."""
        closeness = Closeness(parameters.rtol, parameters.atol, equal_nan=parameters.equal_nan)
        needed = parameters.num_steps
        readings = []

        def unchanged(now: StepView, tensor: str) -> int | None:
            """Return over how many saved steps the tensor has not changed; None where it was saved too rarely."""
            same = 1
            earlier = now.earlier(tensor, needed - 1)
            for before in earlier:
                if not closeness.tensors(before, now, tensor):
                    return same
                same += 1
            return same if len(earlier) == needed - 1 else None

        tensors = parameters.tensors(step)
        state.waiting += bool(tensors)
        first: dict[int, Reading] = {}
        for tensor in tensors:
            same = used(state, unchanged, step, tensor)
            if same is None:
                continue
            if same not in first:
                kind = UnchangedKind.UNCHANGED if same >= needed else UnchangedKind.CHANGED
                first[same] = Reading(tensor, float(same), float(needed), same >= needed, float(same), kind)
            readings.append(first[same])
        return checked(step, readings, lambda reading: (measured(SAME_STEPS, reading, "steps"),))
