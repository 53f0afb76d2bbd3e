"""From what was measured of each tensor of a step to the step's check: the one that is furthest over its threshold."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from trainguard.finding import Fact
from trainguard.rules.training.step_rule import USELESS, Check, StepState
from trainguard.rules.words import FactSheet
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


def checked(
    step: StepView,
    readings: Sequence[Reading],
    facts: Callable[[Reading], Sequence[Fact]],
    *,
    judged: int | None = None,
) -> Check | None:
    """Return the check of a step by facts, None without a reading; ``facts`` are those of one of them.

    The facts ``step`` and, of several readings that fire, ``firing`` and ``judged`` go with them: how many fire, and of
    how many.
    """
    if not readings:
        return None
    worst = worst_of(readings)
    firing = sum(reading.fires for reading in readings)
    several = (
        Fact(name="firing", value=firing),
        Fact(name="judged", value=len(readings) if judged is None else judged),
    )
    return Check(
        step=step.step,
        at=step.at,
        fires=worst.fires,
        tensor=worst.tensor,
        value=worst.value if math.isfinite(worst.value) else None,
        threshold=worst.threshold,
        kind=worst.kind,
        facts=(step_fact(step), *facts(worst), *(several if firing > 1 else ())),
    )


def step_fact(step: StepView) -> Fact:
    """Return the number of a step, with the time at which it was saved where it says that itself."""
    at = step.at if step.timed else None
    return Fact(name="step", value=step.step, unit="steps", start=at, end=at)


def several_words(sheet: FactSheet, what: str = "tensors") -> str:
    """Say of how many that fire the named one is the worst; empty of one alone."""
    firing = sheet.get("firing")
    if firing is None:
        return ""
    return f" (the worst of {firing.value} such {what}, of {sheet['judged'].value} in all)"


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
