"""Compares each tensor of a step with that of another run at the same step."""

import math
from functools import lru_cache
from pathlib import Path

import numpy as np

from tests.claims.tensor_files import Array, Step, TensorRun, read_tensors
from tests.claims.tensor_values import Reading, Readings, Seen

# As far as ``numpy.allclose`` says, by default.
RELATIVE, ABSOLUTE = 1e-5, 1e-8


@lru_cache(maxsize=2)
def other_run(place: str) -> TensorRun:
    """Return the other run, which lies in a folder."""
    return read_tensors(Path(place))


def step_of_other_run(seen: Seen) -> Step | None:
    """Return the step of the other run that has the same number."""
    steps = other_run(seen.parameters["other_trials"]).steps
    return next((step for step in steps if step.number == seen.step.number), None)


def similar(seen: Seen) -> Readings:
    """Measure by how much each tensor differs that both runs hold: the entry that is furthest over its tolerance."""
    there = step_of_other_run(seen)
    if there is None:
        return {}
    chosen = seen.parameters.get("collection_names") or seen.parameters.get("tensor_regex")
    names = seen.selected() if chosen else seen.step.names
    readings = {
        name: differ(seen.step, there, name)
        for name in names
        if name in there.names and not name.startswith("trainguard/")
    }
    return {name: reading for name, reading in readings.items() if reading is not None}


def differ(here: Step, there: Step, name: str) -> Reading | None:
    """Return what a tensor's difference is; None where only reductions were saved and none of them differs."""
    if name in here.tensors and name in there.tensors:
        one, other = here.tensors[name], there.tensors[name]
        if one.shape != other.shape:
            return Reading(math.nan, True, math.inf, None)
        if one.dtype.kind in "Ob":
            same = bool((one == other).all())
            return Reading(math.nan, not same, math.inf, None)
    else:
        kinds = [kind for kind in here.reductions.get(name, {}) if kind in there.reductions.get(name, {})]
        one, other = (np.array([step.reductions[name][kind] for kind in kinds]) for step in (here, there))
        if _is_close(one, other):
            return None
    return Reading(math.nan, False, math.inf, None) if _is_close(one, other) else _apart(one, other)


def _is_close(one: Array, other: Array) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.allclose(one, other, RELATIVE, ABSOLUTE, equal_nan=True))


def _apart(one: Array, other: Array) -> Reading:
    """Return the finite difference that is furthest over what counts as the same; none where no entry has one."""
    with np.errstate(all="ignore"):
        was = other.astype(np.float64).ravel()
        apart, allowed = np.abs(one.astype(np.float64).ravel() - was), ABSOLUTE + RELATIVE * np.abs(was)
        over = np.where(np.isfinite(apart), apart / allowed, -math.inf)
    place = int(over.argmax())
    if not math.isfinite(over[place]):
        return Reading(math.nan, True, math.inf, None)
    return Reading(float(apart[place]), True, float(over[place]), float(allowed[place]))
