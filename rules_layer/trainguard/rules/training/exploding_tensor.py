"""ExplodingTensor: a tensor that holds NaN or infinite values.

Source: AWS documentation of ExplodingTensor. What is added: where only reductions were saved, one that overflowed over
finite entries fires only if the extremes say nothing else; and where nothing is selected, the columns of XGBoost's
trees are left out, in which NaN stands for a leaf.
"""

import math
from typing import ClassVar

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.folds import not_finite
from trainguard.rules.training.parameter_help import RANGE_HELP, SELECTION_HELP
from trainguard.rules.training.readings import Reading, check_of, not_saved
from trainguard.rules.training.selecting import SelectingParameters
from trainguard.rules.training.step_rule import USELESS, Check, StepRule, StepState
from trainguard.rules.units import counted
from trainguard.tensors.step_view import ReductionKind, StepView

NAN, INFINITE = "NaN", "infinite"
_TREES = "trees/"
_SUMS: tuple[tuple[ReductionKind, bool], ...] = tuple(
    (kind, absolute) for kind in ("mean", "std", "variance", "l2", "l1", "sum") for absolute in (True, False)
)


class ExplodingTensorParameters(SelectingParameters, frozen=True, kw_only=True):
    """``only_nan`` leaves infinite values alone; nothing selected stands for all tensors."""

    rule_name: ClassVar[str] = "ExplodingTensor"

    only_nan: bool = False


SPEC = RuleSpec(
    name="training/ExplodingTensor",
    family="training",
    title="NaN and infinite values",
    looks_at="the selected tensors; where nothing is selected, all",
    fires_when="one holds NaN or an infinite value",
    condition="a tensor holds NaN, or an infinite value unless only NaN counts (only_nan: {only_nan})",
    measures=(Measure("entries that are not finite"),),
    counts=STEPS,
    parameters={
        **SELECTION_HELP,
        "only_nan": ParameterHelp("", "whether infinite values are left alone"),
        **RANGE_HELP,
    },
    clause="values became NaN or infinite",
)


class ExplodingTensor(StepRule[ExplodingTensorParameters, StepState]):
    """Fires while a tensor holds NaN or infinite values."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = ExplodingTensorParameters
    state_type = StepState
    needs = (
        "It checks numbers of any tensor: record at least the losses, with CollectionConfig(name='losses'), "
        "or those that collection_names and tensor_regex select."
    )

    def check(self, state: StepState, step: StepView, parameters: ExplodingTensorParameters) -> Check | None:
        """Count the entries of each selected tensor that are not finite, or look at its saved reductions."""
        readings = []
        tensors = parameters.tensors(step) if parameters.selects else _all_but_trees(step)
        for tensor in tensors:
            look = _of_entries if step.has_value(tensor) else _of_reductions
            try:
                reading = look(state, step, tensor, parameters.only_nan)
            except USELESS as fault:
                state.leave_out(str(fault))
                continue
            if reading is not None:
                readings.append(reading)
        return check_of(step, readings, lambda reading: _say(reading, len(readings)))

    def advice(self, check: Check, parameters: ExplodingTensorParameters) -> str:
        """Say what to look at first, by what was found."""
        del parameters
        if check.kind == INFINITE:
            return (
                "Lower the learning rate or clip gradients, and in float16 check the loss scale. "
                f"Infinite values turn into NaN soon: save {check.tensor} at earlier steps to see where they begin."
            )
        return (
            "Stop and go back to a checkpoint before this step: NaN does not go away by itself. Look for a learning "
            "rate that is too high, a division by zero, the logarithm of zero, or NaN in the input."
        )


def _all_but_trees(step: StepView) -> list[str]:
    return [name for name in step.names if not name.startswith(_TREES)]


def _of_entries(_: StepState, step: StepView, tensor: str, only_nan: bool) -> Reading | None:
    found = not_finite(step, tensor)
    if found is None:
        return None
    count = found.nan if only_nan else found.nan + found.infinite
    kind = NAN if found.nan else INFINITE
    return Reading(tensor, float(count), 0.0, count > 0, count / max(found.size, 1), kind if count else None)


def _of_reductions(state: StepState, step: StepView, tensor: str, only_nan: bool) -> Reading | None:
    """Judge by what was saved; the value is then not a count, so that it stays open."""
    saved = _telling(step, tensor)
    if not saved:
        product = step.reduction(tensor, "prod")
        if product is None or not math.isfinite(product):
            not_saved(state, step, tensor)
            return None
    if all(map(math.isfinite, saved)):
        return Reading(tensor, 0.0, 0.0, False, 0.0)
    nan = any(map(math.isnan, saved))
    infinite = any(map(math.isinf, saved)) and not only_nan
    kind = NAN if nan else INFINITE if infinite else None
    return Reading(tensor, math.nan if kind else 0.0, 0.0, kind is not None, 0.0, kind)


def _telling(step: StepView, tensor: str) -> list[float]:
    """Return the saved reductions that tell whether all entries are finite; none where only a product was saved.

    A sum that is finite is only of finite entries. One that is not may have overflowed, unless the extremes say so too.
    """
    sums = []
    for kind, absolute in _SUMS:
        value = step.reduction(tensor, kind, absolute=absolute)
        if value is None:
            continue
        if math.isfinite(value):
            return [value]
        sums.append(value)
    least, most = step.reduction(tensor, "min"), step.reduction(tensor, "max")
    highest = step.reduction(tensor, "max", absolute=True)
    if least is not None and most is not None:
        return [least, most]
    if highest is not None:
        return [highest]
    others = (least, most, step.reduction(tensor, "min", absolute=True))
    return [*sums, *(value for value in others if value is not None)]


def _say(reading: Reading, checked: int) -> str:
    if not reading.fires:
        return f"none of {counted(checked, 'tensor')} holds {NAN} or infinite values"
    if math.isnan(reading.value):
        return f"a saved reduction of {reading.tensor} is {reading.kind}"
    one, what = reading.value == 1, "NaN or infinite" if reading.kind == NAN else "infinite"
    return (
        f"{reading.tensor} holds {reading.value:.0f} {'entry' if one else 'entries'} that {'is' if one else 'are'} "
        f"{what}, above the threshold 0"
    )
