"""Recomputes rules over saved losses: whether they fall, and how that of validation stands to that of training."""

import math
from dataclasses import dataclass
from itertools import pairwise

from tests.claims.tensor_classes import Facts, Truths, Whole
from tests.claims.tensor_files import EVAL, GLOBAL, TRAIN, Step
from tests.claims.tensor_values import Seen

RESUMED_S = 21_600.0


def loss_of(seen: Seen, step: Step) -> float | None:
    """Return the mean of the losses of a step."""
    losses = [float(step.tensors[name].ravel()[0]) for name in seen.run.members(step, "losses")]
    return sum(losses) / len(losses) if losses else None


def not_decreasing(seen: Seen, facts: Facts) -> Truths | None:
    """Compare each loss with the newest one that is far enough before it, once in so many steps of its mode."""
    apart = seen.parameters["num_steps"]
    kept: dict[tuple[str, str], list[tuple[int, float]]] = {}
    last: dict[tuple[str, str], int] = {}
    found: dict[str, Truths] = {}
    for step in seen.run.steps[: seen.place + 1]:
        found = {}
        for name, now in _scalars(seen, step).items():
            key = step.mode, name
            history = kept.setdefault(key, [])
            chosen = next(mode for mode in (EVAL, TRAIN, GLOBAL) if any(each == mode for each, _ in kept))
            before = [each for each in history if each[0] <= step.mode_step - apart]
            due = step.mode_step - last.get(key, -apart) >= apart
            if before and due and chosen == step.mode and seen.in_range(step):
                last[key] = step.mode_step
                found[name] = _fall(seen, step, before[-1], now)
            history.append((step.mode_step, now))
    return _worst(found, facts.get("change", {}).get("series"))


def _scalars(seen: Seen, step: Step) -> dict[str, float]:
    """Return the losses of a step; where it has none, all single numbers."""
    names = seen.run.members(step, "losses") or step.names
    alone = {name: step.tensors[name] for name in names if name in step.tensors and step.tensors[name].size == 1}
    return {name: float(values.ravel()[0]) for name, values in alone.items() if values.dtype.kind in "fiu"}


def _worst(found: dict[str, Truths], named: str | None) -> Truths | None:
    """Return what is true of the loss that is named, which has to be the furthest over of those that fire."""
    if not found:
        return None
    firing = {name: each["over"] for name, each in found.items() if each["fires"]}
    whole: Truths = {"fires": bool(firing), "firing": len(firing), "judged": len(found)}
    if named is None or firing.get(named, -math.inf) < max(firing.values(), default=math.inf):
        return whole
    return {**found[named], **whole}


def _fall(seen: Seen, step: Step, before: tuple[int, float], now: float) -> Truths:
    fall = 100.0 * (before[1] - now) / abs(before[1]) if before[1] else 0.0
    rises = fall < 0.0
    limit = seen.parameters["increase_threshold_percent" if rises else "diff_percent"]
    from_zero = before[1] == 0.0 and (now < 0.0 or math.isnan(now))  # only a loss below 0 is a fall from 0
    return {
        "fires": not from_zero and (-fall > limit if rises else fall < limit),
        "over": -fall - limit if rises else limit - fall,
        "mode": step.mode,
        "compared_step": before[0],
        "loss_before": before[1],
        "loss_now": now,
        "change": abs(fall),
        "threshold of change": limit,
    }


def overfit(seen: Seen, facts: Facts) -> Truths | None:
    """Compare the mean losses of validation and training at the first step of training after a validation."""
    train: list[float] = []
    validation: list[float] = []
    truths, over = None, 0
    for step in seen.so_far:
        truths, loss = None, loss_of(seen, step)
        if loss is None or step.mode not in {TRAIN, EVAL}:
            continue
        if step.mode == EVAL:
            validation.append(loss)
            continue
        if validation:
            if train and sum(train):
                of_train, of_validation = sum(train) / len(train), sum(validation) / len(validation)
                gap = (of_validation - of_train) / abs(of_train)
                over = over + 1 if gap > seen.parameters["ratio_threshold"] else 0
                truths = {
                    "fires": over >= seen.parameters["patience"],
                    "loss_validation": of_validation,
                    "loss_training": of_train,
                    "gap": gap,
                    "times_in_a_row": over,
                    "patience": seen.parameters["patience"],
                    "threshold of gap": seen.parameters["ratio_threshold"],
                }
            train, validation = [], []
        train.append(loss)
    return truths


@dataclass
class _Best:
    """The best loss of a mode, its step, and how many came since."""

    loss: float
    step: int
    since: int = 0


def overtraining(seen: Seen, facts: Facts) -> Truths | None:
    """Count the saved steps of each mode since its loss last improved."""
    bests: dict[str, _Best] = {}
    held = False
    for step in seen.so_far:
        loss = loss_of(seen, step)
        held = loss is not None and step.mode in {TRAIN, EVAL}
        if loss is None or not held:
            continue
        best = bests.get(step.mode)
        if best is None or math.isnan(best.loss) or loss < best.loss - seen.parameters["delta"]:
            bests[step.mode] = _Best(loss, step.number)
        else:
            best.since += 1
    if not held:
        return None
    words = {TRAIN: "training", EVAL: "validation"}
    patience = {mode: seen.parameters[f"patience_{word if mode == EVAL else 'train'}"] for mode, word in words.items()}
    late = [mode for mode, best in bests.items() if best.since >= patience[mode]]
    truths: Truths = {"fires": bool(late), "firing": len(late), "judged": len(bests), "delta": seen.parameters["delta"]}
    worst = max(late, key=lambda mode: bests[mode].since / patience[mode], default=None)
    named = [mode for mode in late if words[mode] == facts.get("of", {}).get("value")]
    if worst is not None:
        least = bests[worst].since / patience[worst]
        mode = named[0] if named and bests[named[0]].since / patience[named[0]] == least else worst
        best = bests[mode]
        truths |= {
            "of": words[mode],
            "loss_lowest": best.loss,
            "loss_lowest_step": best.step,
            "steps_without_improvement": best.since,
            "threshold of steps_without_improvement": patience[mode],
        }
    return truths


def stalled(seen: Seen, facts: Facts) -> Truths | None:
    """Measure the time before a step, and compare it with the run's own rhythm."""
    if not seen.in_range(seen.step):
        return None
    steps, longest = seen.run.steps, 0.0
    for before, step in pairwise(steps[: seen.place + 1]):
        gap = step.at - before.at
        patience = max(float(seen.parameters["threshold"]), 2.0 * longest)
        resumed = gap > max(RESUMED_S, float(seen.parameters["threshold"]))
        fires = gap > patience and not resumed and longest > 0.0
        if step is seen.step:
            return {
                "fires": fires,
                "names": before.number if fires else step.number,
                "time_without_step": gap,
                "threshold of time_without_step": patience,
                "until_step": step.number,
            }
        if seen.in_range(step) and not fires and not resumed:
            longest = max(longest, gap)
    return {"fires": False}


LOSSES: dict[str, Whole] = {
    "LossNotDecreasing": not_decreasing,
    "Overfit": overfit,
    "Overtraining": overtraining,
    "StalledTrainingRule": stalled,
}
