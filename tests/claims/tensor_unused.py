"""Recomputes which tensors the rules over saved tensors could not use, in the order in which they meet them, and why.

A rule says how often that was, and the last reason: over all steps that it checks, or, of a finding that is over, those
up to the one that it names.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from tests.claims.tensor_classes import began
from tests.claims.tensor_files import GLOBAL, TRAIN, Step, TensorRun
from tests.claims.tensor_runs import differ, step_of_other_run
from tests.claims.tensor_values import Seen, alike, zeros_saved

Reasons: TypeAlias = Callable[[Seen], Iterator[str]]


def unused(run: TensorRun, rule: str, parameters: dict[str, Any], places: int) -> list[str]:
    """Return why tensors of so many first steps could not be used, one reason for each time."""
    found: list[str] = []
    checked = 0
    for place in range(places):
        seen = Seen(run, place, parameters)
        if rule in UNUSED and seen.in_range(seen.step) and checked < parameters.get("steps", math.inf):
            found += UNUSED[rule](seen)
            checked += rule == "PoorWeightInitialization" and _has_begun(seen)
    return found


def _no_entries(name: str, step: Step) -> str:
    return f"tensor {name} at step {step.number}: its entries were not saved"


def _reduced(name: str, step: Step) -> str:
    return f"of tensor {name} at step {step.number} only reductions were saved"


def _selected(told: Callable[[Seen, str], bool]) -> Reasons:
    """Return the selected tensors of which reductions alone were saved, which do not answer the question."""

    def reasons(seen: Seen) -> Iterator[str]:
        for name in seen.selected():
            if name not in seen.step.tensors and not told(seen, name):
                yield _reduced(name, seen.step)

    return reasons


def _zeros_told(seen: Seen, name: str) -> bool:
    return zeros_saved(seen.step, name, float(seen.parameters["threshold"])) is not None


def _variance_told(seen: Seen, name: str) -> bool:
    return any(seen.step.reduction(name, kind) is not None for kind in ("variance", "std"))


def _between(seen: Seen, name: str, low: float, high: float) -> bool:
    """Tell whether the extremes of a layer say that all of its nodes are active, or that none is."""
    least, most = (seen.step.reduction(name, kind) for kind in ("min", "max"))
    if (least is not None and least >= high) or (most is not None and most <= low):
        return True
    return least is not None and most is not None and low < least and most < high


def _saturation_told(seen: Seen, name: str) -> bool:
    of = "tanh" if "tanh" in name.lower() else "sigmoid"
    return _between(seen, name, *(seen.parameters[f"threshold_{of}_{end}"] for end in ("min", "max")))


def _dead_told(seen: Seen, name: str) -> bool:
    least, most = (seen.step.reduction(name, kind) for kind in ("min", "max"))
    return (most is not None and most <= 0.0) or (least is not None and least > 0.0)


def _exploding(seen: Seen) -> Iterator[str]:
    """Return the tensors of which a product alone was saved that is not finite."""
    chosen = seen.parameters.get("collection_names") or seen.parameters.get("tensor_regex")
    for name in seen.selected() if chosen else seen.step.names:
        saved = seen.step.reductions.get(name, {})
        if name not in seen.step.tensors and set(saved) <= {"prod"} and not math.isfinite(saved.get("prod", math.nan)):
            yield _reduced(name, seen.step)


def _vanishing(seen: Seen) -> Iterator[str]:
    for name in seen.run.members(seen.step, "gradients"):
        if name not in seen.step.tensors and seen.step.reduction(name, "abs_mean") is None:
            yield _no_entries(name, seen.step)


def _updates(seen: Seen) -> Iterator[str]:
    modes = {step.mode for step in seen.run.steps[: seen.place + 1] if seen.run.members(step, "weights")}
    if seen.step.mode != (TRAIN if TRAIN in modes else GLOBAL):
        return
    back = seen.parameters.get("num_steps")
    for name in seen.run.members(seen.step, "weights"):
        earlier = seen.before(name)
        if back is not None:
            earlier = [step for step in earlier[:back] if step.number >= seen.step.number - back][::-1]
        if not earlier:
            continue
        lacking = [step for step in (seen.step, earlier[0]) if name not in step.tensors]
        if lacking:
            yield _reduced(name, lacking[0])
        elif seen.step.tensors[name].shape != earlier[0].tensors[name].shape:
            yield f"tensor {name} has another shape at step {seen.step.number} than at step {earlier[0].number}"


def _unchanged(seen: Seen) -> Iterator[str]:
    for name in seen.selected():
        for step in seen.before(name)[: int(seen.parameters["num_steps"]) - 1]:
            same = alike(step, seen.step, name, seen.parameters)
            if same is None:
                yield _no_entries(name, step)
            if not same:
                break


def _similar(seen: Seen) -> Iterator[str]:
    there = step_of_other_run(seen)
    chosen = seen.parameters.get("collection_names") or seen.parameters.get("tensor_regex")
    for name in seen.selected() if chosen else seen.step.names:
        if there is not None and name in there.names and differ(seen.step, there, name) is None:
            yield _no_entries(name, seen.step)


def _inputs(parameter: str, *, finite: bool) -> Reasons:
    """Return the inputs that match a pattern and were not saved in full, or hold what is not finite."""

    def reasons(seen: Seen) -> Iterator[str]:
        for name in seen.run.matching(seen.step, seen.parameters[parameter]):
            if name not in seen.step.tensors:
                yield _reduced(name, seen.step)
            elif finite and not np.isfinite(seen.step.tensors[name]).all():
                yield f"tensor {name} at step {seen.step.number}: it holds NaN or infinite values"

    return reasons


def _of_pair(seen: Seen, names: list[str]) -> Iterator[str]:
    """Return of labels and predictions the first that was not saved in full."""
    lacking = [name for name in names if name not in seen.step.tensors]
    if len(names) == 2 and all(name in seen.step.names for name in names) and lacking:
        yield _no_entries(lacking[0], seen.step)


def _imbalance(seen: Seen) -> Iterator[str]:
    chosen = (seen.run.matching(seen.step, seen.parameters[f"{of}_regex"])[:1] for of in ("labels", "predictions"))
    yield from _of_pair(seen, [name for names in chosen for name in names])


def _confusion(seen: Seen) -> Iterator[str]:
    yield from _of_pair(seen, [seen.parameters[name] for name in ("labels", "predictions")])


def _weights_at_first(seen: Seen) -> Iterator[str]:
    """Return inputs without a variance, then gradients without a range; where all lack one, the first for all."""
    for name in seen.run.matching(seen.step, seen.parameters["activation_inputs_regex"]):
        if name not in seen.step.tensors and not _variance_told(seen, name):
            yield _no_entries(name, seen.step)
    gradients = seen.run.members(seen.step, "gradients")
    known = [name for name in gradients if name in seen.step.tensors or seen.step.reduction(name, "min") is not None]
    for name in gradients:
        if name not in seen.step.tensors and not _range_told(seen, name):
            yield _reduced(name if known else gradients[0], seen.step)


def _range_told(seen: Seen, name: str) -> bool:
    least, most = (seen.step.reduction(name, kind) for kind in ("min", "max"))
    narrow = seen.parameters["distribution_range"]
    return least is not None and most is not None and most - least < narrow


def _has_begun(seen: Seen) -> bool:
    """Tell whether a step holds something that PoorWeightInitialization judges."""
    return bool(began(seen, seen.step, 0 if seen.run.members(seen.step, "losses") else None))


# By rule why it cannot use a tensor; the others look at single numbers, of which no reductions are saved.
UNUSED: dict[str, Reasons] = {
    "VanishingGradient": _vanishing,
    "ExplodingTensor": _exploding,
    "WeightUpdateRatio": _updates,
    "AllZero": _selected(_zeros_told),
    "TensorVariance": _selected(_variance_told),
    "UnchangedTensor": _unchanged,
    "SaturatedActivation": _selected(_saturation_told),
    "DeadRelu": _selected(_dead_told),
    "NLPSequenceRatio": _inputs("tensor_regex", finite=False),
    "CheckInputImages": _inputs("regex", finite=True),
    "SimilarAcrossRuns": _similar,
    "PoorWeightInitialization": _weights_at_first,
    "ClassImbalance": _imbalance,
    "Confusion": _confusion,
}
