"""From what was measured of each tensor of a step to the step's check: the one that is furthest over its threshold."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from trainguard.rules.training.step_rule import USELESS, Check, StepState
from trainguard.tensors.step_view import StepView

T = TypeVar("T")


class Reading(NamedTuple):
    """What was measured of one tensor; ``over`` ranks readings, the higher the nearer to firing or the worse.

    ``tensor`` is None where no tensor of this step was measured.
    """

    tensor: str | None
    value: float
    threshold: float | None
    fires: bool
    over: float
    kind: str | None = None


def used(state: StepState, fold: Callable[[StepView, str], T], step: StepView, tensor: str) -> T | None:
    """Fold a tensor; where it cannot be used, count it and return None."""
    try:
        return fold(step, tensor)
    except USELESS as fault:
        state.leave_out(str(fault))
        return None


def not_saved(state: StepState, step: StepView, tensor: str) -> bool:
    """Whether only reductions of a tensor were saved, which do not answer the question; it is counted then."""
    if step.has_value(tensor):
        return False
    state.leave_out(f"of tensor {tensor} at step {step.step} only reductions were saved")
    return True


def check_of(
    step: StepView,
    readings: Sequence[Reading],
    say: Callable[[Reading], str],
    *,
    what: str = "tensors",
    judged: int | None = None,
) -> Check | None:
    """Return the check of a step, None without a reading; ``say`` is a clause about one of them.

    ``judged`` is how many tensors were measured, where there is no reading of each.
    """
    if not readings:
        return None
    worst = worst_of(readings)
    firing = sum(reading.fires for reading in readings)
    more = (
        f" (the worst of {firing} such {what}, of {len(readings) if judged is None else judged} in all)"
        if firing > 1
        else ""
    )
    return Check(
        step=step.step,
        at=step.at,
        fires=worst.fires,
        reason=f"Step {step.step}: {say(worst)}{more}.",
        tensor=worst.tensor,
        value=worst.value if math.isfinite(worst.value) else None,
        threshold=worst.threshold,
        kind=worst.kind,
    )


def worst_of(readings: Sequence[Reading]) -> Reading:
    """Return the first of the readings that rank highest: there may be thousands a step."""
    held = [each for each in readings if each.fires] or readings
    over = [each.over for each in held]
    if math.isnan(sum(over)):
        return max(held, key=rank)
    return held[over.index(max(over))]


def rank(reading: Reading) -> tuple[bool, float]:
    """Order readings: those that fire last, then by how far over they are; one that is no number comes first."""
    return reading.fires, -math.inf if math.isnan(reading.over) else reading.over


def against(fires: bool, when: str, otherwise: str, threshold: float, unit: str = "") -> str:
    """Return how a value compares, for example ``below the threshold 1e-07``."""
    return f"{when if fires else otherwise} the threshold {threshold:.6g}{unit}"
